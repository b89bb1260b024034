"""What passes between aggregators: what they answer is judged by what they were sent, and calls may cross."""

from dataclasses import replace

import pytest
import torch
from federations import LOCAL, chained, finished, small, weights
from support import Script

from potluck import algorithms
from potluck.core.messages import Answer, Cancel, Reply, Task, Wake
from potluck.engine.schedule import StopAt
from potluck.rules.state import GlobalState

TOLD = GlobalState.report


def run(monkeypatch, change=lambda weight: weight, seconds=100.0):
    """Rounds of HierFL whose edges answer with another weight."""

    def report(self, task):
        body, weight = TOLD(self, task)
        return body, change(weight)

    monkeypatch.setattr(GlobalState, "report", report)
    algorithm = algorithms.make("hierfl", LOCAL, clients=10)
    return finished(small(edges=2, compute=4e5), algorithm, stop=StopAt(rounds=4, seconds=seconds))


def test_an_edge_may_count_all_rows_that_it_was_sent(monkeypatch):
    sim = run(monkeypatch)
    assert sim.round == 4
    assert sim.accounts.lost.get("bad", 0) == 0


@pytest.mark.parametrize(
    "wrong", [lambda w: 100 * w, lambda w: -1.0, lambda w: float("nan"), lambda w: "all"]
)
def test_an_edge_that_counts_more_is_refused(monkeypatch, wrong):
    sim, start = run(monkeypatch, wrong), run(monkeypatch, seconds=1e-3)
    assert sim.accounts.lost["bad"] >= 2
    assert torch.equal(weights(sim), weights(start))


# ------------------------------------------------------------------------------------------------- crossing

DOWN = 0.005 + 8 * 1000 / 1e9  # seconds to an edge for a thousand bytes: 5 ms, 1 Gbit/s
ID = (None, 1, 0)


class Office:
    """A cloud that asks one edge and calls it off at a moment; the edge answers as soon as it hears."""

    tiers = ("edge",)

    def __init__(self, calls, asks_first):
        def ask(ctx):
            return Task(ctx.children[0], None, {"n": torch.zeros(125, dtype=torch.float64)}, id=ID)

        commands = [ask, Wake(calls)] if asks_first else [Wake(calls), ask]
        self.cloud = Script(*commands, then=lambda e, ctx: [Cancel(ID)] if isinstance(e, Wake) else [])
        self.edge = Script(then=self.reply)

    def reply(self, e, ctx):
        return [Answer(e, {}, 1.0)] if isinstance(e, Task) and ctx.me == 11 else []

    def at(self, tier):
        return self.cloud if tier == "cloud" else self.edge


@pytest.mark.parametrize("run", [finished, lambda *given, **more: chained(*given, **more)[0]])
@pytest.mark.parametrize(
    ("calls", "asks_first", "heard", "passed"),
    [
        (DOWN, False, [], 1000),  # the call comes first, at the very moment when the task arrives
        (DOWN, True, [Task, Cancel], 1000),  # the task does
        (DOWN - 4e-6, False, [], 999),  # 4 us before it would: of 5.008 ms, and 1000 bytes
        (DOWN + 1e-3, False, [Task, Cancel], 1000),
    ],
)
def test_a_call_may_meet_the_task_that_it_calls_off(run, calls, asks_first, heard, passed):
    office = Office(calls, asks_first)
    sim = run(small(edges=2), office, stop=StopAt(seconds=1.0))
    assert [type(e) for _, e in office.edge.heard if isinstance(e, Task | Cancel)] == heard
    assert not office.cloud.of(Reply)
    assert sim.links.state.messages == 0
    assert sim.accounts.down == {"edge": passed}


class Stack:
    """FedEdge's cloud and edges above ShuffleFL's hubs."""

    tiers = ("edge", "user")

    def __init__(self):
        edges, users = algorithms.make("fededge", LOCAL), algorithms.make("shufflefl", LOCAL, shuffle=False)
        self.rules = {"cloud": edges.at("cloud"), "edge": edges.at("edge"), "user": users.at("user")}

    def at(self, tier):
        return self.rules[tier]


def test_edges_above_hubs_come_to_an_end():
    """An edge answers upward and asks downward at once, over equal links: the stop meets what it asked."""
    where = small(users=5, edges=2, compute=4e5)
    where = replace(where, fleet=replace(where.fleet, edge=where.fleet.user % 2))
    sim = finished(where, Stack(), stop=StopAt(rounds=3))
    assert sim.round == 3
    assert sim.links.state.messages == 0
