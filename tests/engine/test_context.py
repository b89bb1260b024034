"""How an event draws devices: by counter where it wants one, by a generator where it wants several."""

from dataclasses import replace

import numpy as np
import pytest
from federations import LOCAL, simulate, small
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck import algorithms
from potluck.core import keys
from potluck.engine.context import FIRST, ONE, EventContext


@pytest.fixture(scope="module")
def sim():
    return simulate(small(), algorithms.make("fedavg", LOCAL))


def event(sim, tick):
    return EventContext(sim, sim.root, (tick,))


@settings(max_examples=60, deadline=None)
@given(tick=st.integers(0, 10**6), out=st.sets(st.integers(0, 9), max_size=6))
def test_one_device_is_drawn_by_counter(sim, tick, out):
    ctx = event(sim, tick)
    key = keys.derive(sim.seed, sim.root, tick)
    drawn = [int(10 * keys.chance(key, ONE - place)) for place in range(FIRST)]
    wanted = next((node for node in drawn if node not in out), None)
    found = ctx.sample(1, out)
    if wanted is not None:
        assert found == [wanted]
        assert ctx._rng is None  # it needed no generator
        assert ctx.rng.random() == event(sim, tick).rng.random()  # and leaves it as it was
    assert not out.intersection(found)
    assert event(sim, tick).sample(1, out) == found


@pytest.mark.parametrize("tick", range(20))
def test_who_was_drawn_is_not_drawn_again(sim, tick):
    ctx = event(sim, tick)
    found = [
        ctx.sample(1),
        ctx.sample(1),
        ctx.sample(2),
        ctx.only([0, 3, 4, 5, 8, 9]).sample(1),
        ctx.sample(1),
    ]
    nodes = [node for each in found for node in each]
    assert len(nodes) == len(set(nodes)) >= 5


def test_all_are_drawn_equally_often(sim):
    first, second = np.zeros(10), np.zeros(10)
    for tick in range(4000):
        ctx = event(sim, tick)
        first[ctx.sample(1)] += 1
        second[ctx.sample(1)] += 1
    assert max(abs(first - 400).max(), abs(second - 400).max()) < 5 * np.sqrt(400)


def test_where_chance_finds_nobody_all_are_looked_at(sim):
    everybody = set(range(10))
    for left in everybody:
        assert event(sim, 7).sample(1, everybody - {left}) == [left]
    assert event(sim, 7).sample(1, everybody) == []


def test_rows_are_those_that_a_node_has_now():
    sim = simulate(small(), algorithms.make("fedavg", LOCAL))
    assert event(sim, 0).rows([3, 0, 6, sim.root]).tolist() == [12, 3, 20, 0]  # of SIZES
    assert event(sim, 0).only([1, 2]).rows(range(3)).tolist() == [3, 7, 10]
    assert event(sim, 0).rows([]).tolist() == []
    sim.devices.holdings.move(6, 0, np.arange(5), 0.0)
    assert event(sim, 1).rows([0, 1, 6]).tolist() == [8, 7, 15]


def test_rows_are_counted_without_being_looked_for():
    where, asked = small(), []

    class Crowd:
        """A million devices, of whom only those asked for are looked at."""

        clients, user, left_out = 1_000_000, None, 0

        def size(self, client):
            asked.append(client)
            return client % 7

    sim = simulate(where, algorithms.make("fedavg", LOCAL))
    sim.devices.holdings.federation = replace(where, partition=Crowd())
    sim.devices.holdings.devices = 1_000_000
    assert event(sim, 0).rows([5, 700_002]).tolist() == [5, 2]
    assert asked == [5, 700_002]
