"""Jitter and tiers' links on the virtual clock, by hand."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from federations import LOCAL, chained, finished, lines, simulate, small
from hypothesis import given
from hypothesis import strategies as st

from potluck.algorithms.fedavg import FedAvg
from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import ConfigError
from potluck.core.job import Cost, Result
from potluck.core.messages import Answer, Move, Reply, Task
from potluck.engine.schedule import StopAt
from potluck.fleet import REFERENCE_OPS, DayNight, Jitter

HALF_KB = {"n": torch.zeros(125)}  # 500 bytes


@value
class Work:
    """2 reference passes and a second that no speed changes; sends back what it got."""

    def cost(self, at):
        return Cost(2.0 * REFERENCE_OPS, dict(at.inbox), 1.0)

    def run(self, at):
        return Result(dict(at.inbox))


class Script:
    """Says what it is told at the start, and what `then` makes of each event."""

    def __init__(self, *commands, then=None):
        self.commands, self.then, self.heard = commands, then or (lambda e: []), []

    def init(self, ctx):
        return None, list(self.commands)

    def receive(self, s, e, ctx):
        self.heard.append((ctx.now, e))
        return s, self.then(e)

    def serve(self, s, node, ctx):
        return {}

    def round(self, s):
        return 0

    def waiting(self, s, ctx):
        return []


@dataclass(frozen=True)
class TwoTiers:
    rules: dict
    tiers = ("edge",)

    def at(self, tier):
        return self.rules[tier]


def even(n=4, **more):
    profile = {"compute": 100.0, "up": 1e6, "down": 2e6, "latency": 0.05}
    return small((10,) * n, source="uniform", **profile, **more)


def play(script, federation):
    return finished(federation, script, stop=StopAt(seconds=1e9))


def by_hand(jitter, node, slot):
    """Factors of compute and rates, straight from the definition."""
    bits = int(keys.hash_all(keys.derive(jitter.key, node), np.array([slot]))[0])
    u, v = (bits >> 32) / 2**32, (bits % 2**32) / 2**32
    radius = math.sqrt(-2 * math.log(1 - u))
    x = 1 + jitter.rates * radius * math.cos(2 * math.pi * v)
    omega = 1.0 if x <= 0 else 2.0 if x >= 2 else x
    return math.exp(jitter.compute * radius * math.sin(2 * math.pi * v)), omega


# -------------------------------------------------------------------------------------------------- jitter


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31), st.floats(0, 1e7), st.floats(0, 2), st.floats(0, 2))
def test_factors_are_those_of_the_definition(key, node, when, rates, compute):
    jitter = Jitter(key, 10.0, rates, compute)
    slower, faster = jitter.factors(node, when)
    assert (slower, faster) == pytest.approx(by_hand(jitter, node, int(when // 10)), rel=1e-9)
    assert slower > 0
    assert 0 < faster <= 2
    assert jitter.factors(node, when // 10 * 10 + 5) == (slower, faster)  # one slot, one draw


def test_jitter_deviates_as_it_is_told():
    drawn = np.array([Jitter(3, 60.0, 0.2, 0.3).factors(n, 60.0 * s) for n in range(100) for s in range(200)])
    assert np.log(drawn[:, 0]).mean() == pytest.approx(0, abs=0.01)
    assert np.log(drawn[:, 0]).std() == pytest.approx(0.3, rel=0.02)
    assert drawn[:, 1].mean() == pytest.approx(1, abs=0.005)
    assert drawn[:, 1].std() == pytest.approx(0.2, rel=0.02)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.03
    wild = np.array([Jitter(3, rates=2.0).factors(n, 0.0)[1] for n in range(20_000)])
    assert (wild == 2).mean() == pytest.approx(0.309, abs=0.015)  # x >= 2: half a deviation up
    assert (wild == 1).mean() == pytest.approx(0.309, abs=0.015)  # x <= 0: half a deviation down
    assert Jitter(3, rates=0.0).factors(5, 7.0) == (1.0, 1.0)


def test_durations_with_jitter_by_hand():
    jitter = Jitter(11, every=1.3, rates=0.2, compute=0.5)
    tasks = [Task(node, Work(), HALF_KB, id=(None, 1, node)) for node in range(4)]
    again = Task(0, Work(), HALF_KB, id=(None, 2, 0))
    script = Script(*tasks, again)
    play(script, even(jitter=jitter))
    replies = {e.task.id[1:]: (now, e.spent) for now, e in script.heard if isinstance(e, Reply)}
    for node in range(4):
        slower, faster = by_hand(jitter, node, 0)
        down, compute, up = (
            0.05 + 8 * 500 / (2e6 * faster),
            2 * 0.1 * slower + 1.0,
            0.05 + 8 * 500 / (1e6 * faster),
        )
        now, spent = replies[1, node]
        assert (spent.down, spent.compute, spent.up) == pytest.approx((down, compute, up))
        assert now == pytest.approx(down + compute + up)
    start = replies[1, 0][0]  # the second task to device 0 has the factors of when it starts
    slower, faster = by_hand(jitter, 0, int(start // 1.3))
    now, spent = replies[2, 0]
    assert spent.compute == pytest.approx(0.2 * slower + 1.0)
    assert now - start == pytest.approx(0.1 + 8 * 500 * 1.5 / (1e6 * faster) + 0.2 * slower + 1.0)


def test_moves_have_the_rates_of_both_ends():
    jitter = Jitter(11, every=60.0, rates=0.2)
    federation = even(jitter=jitter)
    script = Script(Move(0, 2, ()), Task(2, Work(), {}, id=(None, 1, 0)))
    y = federation.pool.y[federation.partition.rows(0, "train")]
    script.commands = (Move(0, 2, ((int(y[0]), 1),)), *script.commands[1:])
    play(script, federation)
    ((now, reply),) = [h for h in script.heard if isinstance(h[1], Reply)]
    bits = 8 * (5 * 8 + 8)  # a row: five doubles and a label
    (_, one), (_, two) = by_hand(jitter, 0, 0), by_hand(jitter, 2, 0)
    moved = 0.05 + bits / (1e6 * one) + 0.05 + bits / (2e6 * two)
    assert now - reply.spent.total == pytest.approx(moved)


def test_aggregators_do_not_change():
    federation = even(jitter=Jitter(11, every=60.0, rates=0.2, compute=0.5))
    script = Script(Task(4, Work(), {}, id=(None, 1, 0)))  # to the cloud itself
    play(script, federation)
    assert script.heard[0][1].spent.compute == pytest.approx(2 * 0.001 + 1.0)


def test_claims_stay_nominal_and_runs_repeat():
    federation = small(jitter=Jitter(11, every=5.0, rates=0.2, compute=0.3))
    sim = simulate(federation, FedAvg(3, LOCAL))
    assert np.array_equal(sim.claimed.take(range(10)).up, federation.fleet.true.up)
    one, two = (finished(federation, FedAvg(3, LOCAL), rounds=4) for _ in range(2))
    assert lines(one) == lines(two)
    assert one.now != finished(small(), FedAvg(3, LOCAL), rounds=4).now


def test_resuming_changes_nothing():
    night = DayNight(4, (0.0, 12.0), zones=5, spread=2.0, period=40.0)
    federation = small(availability=night, edges=2, jitter=Jitter(11, every=0.5, rates=0.2, compute=0.3))
    straight = finished(federation, FedAvg(3, LOCAL), rounds=4)
    resumed, events = chained(federation, FedAvg(3, LOCAL), rounds=4)
    assert events > 10
    assert lines(resumed) == lines(straight)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every = 0: give seconds, above 0"),
        ({"rates": -0.1}, "rates = -0.1: give a deviation, at least 0"),
        ({"compute": "much"}, "compute = 'much': give a deviation, at least 0"),
    ],
)
def test_jitter_names_key_value_and_fix(settings, message):
    with pytest.raises(ConfigError, match=f"fleet.jitter.{message}"):
        Jitter(1, **settings)


# -------------------------------------------------------------------------------------------- tiers' links

TIERS = {"edge": {"up": 1e7, "down": 4e7, "latency": 0.02, "compute": 10.0}}
LINKS = {"edge": {"latency": [0.01, 0.01]}, "cloud": {"latency": [0.2, 0.2]}}


def test_edges_have_links_of_their_own_by_hand():
    """Cloud (4) to edge (5), which lets device 0 and its own machine work, and answers."""
    asked = Task(5, Work(), HALF_KB, id=(None, 1, 0))
    cloud = Script(asked)
    edge = Script()

    def act(e):
        if isinstance(e, Task):
            edge.owed = e
            return [Task(0, Work(), HALF_KB, id=(None, 1, 0)), Task(5, Work(), {}, id=(None, 1, 1))]
        two = len([h for _, h in edge.heard if isinstance(h, Reply)]) == 2
        return [Answer(edge.owed, HALF_KB, 1.0)] if two else []

    edge.then = act
    federation = even(edges=2, tiers=TIERS, links=LINKS)
    play(TwoTiers({"cloud": cloud, "edge": edge}), federation)
    to_edge, from_edge = 0.02 + 8 * 500 / 4e7, 0.02 + 8 * 500 / 1e7
    device = (0.01 + 8 * 500 / 2e6) + (0.2 + 1.0) + (0.01 + 8 * 500 / 1e6)
    own = 2 * 0.01 + 1.0
    times = [now for now, e in edge.heard if isinstance(e, Reply)]
    assert times == pytest.approx([to_edge + own, to_edge + device])
    ((now, reply),) = [h for h in cloud.heard if isinstance(h[1], Reply)]
    assert now == pytest.approx(to_edge + device + from_edge)
    assert (reply.spent.down, reply.spent.up) == pytest.approx((to_edge, from_edge))


def test_without_edges_the_cloud_is_far_away():
    script = Script(Task(0, Work(), HALF_KB, id=(None, 1, 0)))
    play(script, even(edges=2, tiers=TIERS, links=LINKS))
    spent = script.heard[0][1].spent
    assert (spent.down, spent.up) == pytest.approx((0.2 + 8 * 500 / 2e6, 0.2 + 8 * 500 / 1e6))
