"""What passes between aggregators: what they answer is judged by what they were sent, and calls may cross."""

from dataclasses import replace

import pytest
import torch
from federations import LOCAL, chained, finished, small, weights
from support import Script

from potluck import algorithms
from potluck.algorithms.auxo.device import SLOT, CheckIn, TakeFeedback, unpack_request
from potluck.algorithms.fedavg import FedAvg
from potluck.core.messages import Answer, Cancel, Lost, Reply, Task, Tell, Wake
from potluck.engine.schedule import StopAt
from potluck.fleet import Intervals
from potluck.jobs import LabelSet
from potluck.rules.relay import Relay

TOLD = Relay.report


def run(monkeypatch, change=lambda weight: weight, seconds=100.0):
    """Rounds of HierFL whose edges answer with another weight."""

    def report(self, m, task, ctx):
        told = TOLD(self, m, task, ctx)
        return told and (told[0], change(told[1]))

    monkeypatch.setattr(Relay, "report", report)
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


# ------------------------------------------------------------------------------------------------- errands


class Enquiry:
    """A cloud that asks, and tells, aggregators which run FedAvg."""

    tiers = ("edge",)

    def __init__(self, *commands):
        self.cloud, self.edge = Script(*commands), FedAvg(4, LOCAL)

    def at(self, tier):
        return self.cloud if tier == "cloud" else self.edge


FEEDBACK = {"cohort": "", "side": {}, "leaves": [""], "gain": 0.5, "others": {}}


def test_what_a_parent_asks_beside_training_goes_down_and_comes_back():
    labels = [Task(edge, LabelSet(4), {}, id=(None, 1, edge)) for edge in (11, 12)]
    told = Tell(12, TakeFeedback(), {"feedback": FEEDBACK}, SLOT)
    enquiry = Enquiry(*labels, told, Wake(5.0))
    where = small(edges=2, compute=4e5)
    ask = Task(12, CheckIn(), {"leaves": [""], "epsilon": 0.0}, slot=SLOT, id=(None, 2, 0))
    enquiry.cloud.then = lambda e, ctx: [ask] if isinstance(e, Wake) else []
    sim = finished(where, enquiry, stop=StopAt(seconds=9.0))
    found = {reply.task.id: reply for _, reply in enquiry.cloud.of(Reply)}
    first, second, third = (found[task.id] for task in (*labels, ask))
    y = where.pool.y
    for reply, devices in ((first, range(5)), (second, range(5, 10))):
        rows = [sim.devices.rows(n) for n in devices]
        held = {label for r in rows for label in y[torch.tensor(r)].tolist()}
        assert reply.body["holds"].nonzero().flatten().tolist() == sorted(held)
        assert reply.weight == sum(map(len, rows))
        # Down and up over the edge's link, and the slowest device's answer between.
        assert reply.spent.down == pytest.approx(0.005)
        assert reply.spent.up == pytest.approx(0.005 + 8 * 4 / 1e9)
        true = where.fleet.true.take(list(devices))
        assert reply.spent.compute == pytest.approx((2 * true.latency + 8 * 4 / true.up).max())
    # The edge remembers for those below it, and answers of what it remembers.
    assert sim.memories.get(12, SLOT)["reward"] == {"": pytest.approx(0.45)}  # .9 of the gain
    assert unpack_request(third.body, [""])["affinity"] == pytest.approx(0.45)
    assert unpack_request(third.body, [""])["times"] == 1
    assert not sim.accounts.took_part.any()  # nobody trained


def test_an_errand_that_nobody_answers_is_lost():
    enquiry = Enquiry(Task(11, LabelSet(4), {}, id=(None, 1, 0)))
    never = Intervals.of([[]] * 10)
    finished(small(edges=2, availability=never), enquiry, stop=StopAt(seconds=9.0))
    ((_, lost),) = enquiry.cloud.of(Lost)
    assert lost.why == "gone"


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
