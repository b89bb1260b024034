"""A sample of one is drawn without NumPy, and is the one that NumPy's generator gives."""

import numpy as np
import pytest
from federations import simulate, small
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flame import LOCAL

from potluck import algorithms
from potluck.core import keys
from potluck.engine import context, host
from potluck.engine.context import FIRST, EventContext


@pytest.fixture(scope="module")
def sim():
    return simulate(small(), algorithms.make("fedavg", LOCAL))


def by_generator(sim, stream, out, among=None):
    """The first of a generator's numbers who is free, and the generator after them."""
    ctx = EventContext(sim, sim.root, stream)
    rng, here = keys.generator(keys.derive(ctx.key, 1)), list(ctx.children if among is None else among)
    nodes = [here[place] for place in rng.integers(len(here), size=FIRST)]
    return next((n for n in nodes if n not in out), None), rng


@settings(max_examples=60, deadline=None)
@given(tick=st.integers(0, 10**6), out=st.sets(st.integers(0, 9), max_size=6))
def test_it_is_the_generators(sim, tick, out):
    ctx = EventContext(sim, sim.root, (tick,))
    wanted, rng = by_generator(sim, (tick,), out)
    if wanted is not None:
        assert ctx.sample(1, out) == [wanted]
        told = list(keys.below(keys.first_words(keys.derive(ctx.key, 1)), len(ctx.children)))
        assert (ctx._rng is None) == any(place not in out for place in told)  # no generator was needed
        assert ctx.rng.random() == rng.random()  # what is drawn afterwards goes on after it


@given(many=st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_words_of_many_are_those_of_each(many):
    assert keys.all_first_words(np.array(many, np.uint64)) == [[*keys.first_words(key)] for key in many]


@pytest.mark.parametrize("ticks", [range(1, 600), [5, 6, 8, 7, 300, 301, 303, 5, 6], [0, 1, 2, 260, 261]])
def test_words_do_not_depend_on_who_was_asked_before(ticks):
    lots, seed, me = host.Lots(9), 9, 1000
    for tick in ticks:
        assert [*lots.words(me, tick)] == [*keys.first_words(keys.derive(keys.derive(seed, me, tick), 1))]
        lots.words(me + 1, 17 * tick)


@pytest.mark.parametrize("tick", range(20))
def test_a_second_sample_goes_on(sim, tick, monkeypatch):
    quick = EventContext(sim, sim.root, (tick,))
    found = [quick.sample(1), quick.sample(1), quick.sample(2), quick.only([0, 3, 4, 5, 8, 9]).sample(1)]
    monkeypatch.setattr(context.EventContext, "_next_one", lambda *_: None)
    slow = EventContext(sim, sim.root, (tick,))
    assert found == [slow.sample(1), slow.sample(1), slow.sample(2), slow.only([0, 3, 4, 5, 8, 9]).sample(1)]
    assert quick.rng.random() == slow.rng.random()
    assert len({n for nodes in found for n in nodes}) == len([n for nodes in found for n in nodes])


def test_where_first_numbers_do_not_tell_the_generator_does(sim):
    everybody = set(np.arange(len(EventContext(sim, sim.root, (0,)).children)).tolist())
    for left in everybody:
        assert EventContext(sim, sim.root, (7,)).sample(1, everybody - {left}) == [left]
    assert EventContext(sim, sim.root, (7,)).sample(1, everybody) == []
