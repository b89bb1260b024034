"""The simulator by hand: how long things take, in which order they happen, what goes wrong, when it ends."""

import resource
import time
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from federations import LOCAL, SIZES, finished, one_by_one, pool, simulate, small, values, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Script

from potluck import fleet
from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.core import codec
from potluck.core.codec import value
from potluck.core.errors import ConfigError, PotluckError, StalledError
from potluck.core.job import Cost, ModelSpec, Result
from potluck.core.messages import Cancel, Lost, Move, Note, Reply, Task, Tell, Until, Wake
from potluck.core.replies import Replies
from potluck.data import procedural
from potluck.engine.kept_records import KeptRecords
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.federation import Federation
from potluck.fleet import REFERENCE_OPS, Intervals, OnOff
from potluck.jobs import SGD, LabelCounts, Probe, Train
from potluck.models import Models
from potluck.rules import Rounds

FOREVER = StopAt(seconds=1e9)
LINEAR = ModelSpec("linear")  # 5 inputs, 4 classes: 24 numbers of 8 bytes, 20 multiply-accumulates
FULL = Train(LINEAR, optim=SGD(0.5), batch=64)  # one step on all rows
NUMBER = {"n": torch.zeros(125)}  # 500 bytes


@value
class Work:
    """Takes its time, sends back what it got, and counts on its device how often it ran."""

    seconds: float = 1.0
    ops: float = 0.0

    def cost(self, at):
        return Cost(self.ops, dict(at.inbox), self.seconds, metrics=("runs",))

    def run(self, at):
        runs = 1 if at.keep is None else at.keep["runs"] + 1
        return Result(dict(at.inbox), keep={"runs": runs}, metrics={"runs": float(runs)})


@value
class Faulty:
    """Promises one tree and sends another."""

    kind: str

    def cost(self, at):
        return Cost(0.0, {"delta": torch.zeros(3)})

    def run(self, at):
        if self.kind == "fails":
            raise KeyError("no such kind")
        body = {
            "nan": {"delta": torch.tensor([0.0, float("nan"), 0.0])},
            "infinite": {"delta": torch.tensor([0.0, 0.0, -float("inf")])},
            "shape": {"delta": torch.zeros(4)},
            "type": {"delta": torch.zeros(3, dtype=torch.float64)},
            "keys": {"gradient": torch.zeros(3)},
            "more": {"delta": torch.zeros(3), "extra": torch.zeros(1)},
            "number": {"delta": 0.0},
        }.get(self.kind, {"delta": torch.zeros(3)})
        weight = {"weight": float("nan"), "negative": -1.0, "endless": float("inf")}.get(self.kind, 1.0)
        return Result(body, weight, keep={"runs": 99})


def even(n=4, sizes=None, **more):
    """Devices that are all alike: 50 ms, 1 Mbit/s up, 2 Mbit/s down, 100 ms a sample."""
    profile = {"compute": 100.0, "up": 1e6, "down": 2e6, "latency": 0.05} | more.pop("profile", {})
    return small(sizes or (10,) * n, source="uniform", **profile, **more)


def play(script, federation=None, stop=FOREVER, **more):
    return finished(federation or even(), script, stop=stop, **more)


DOWN, UP = 0.05 + 8 * 500 / 2e6, 0.05 + 8 * 500 / 1e6  # seconds for NUMBER: 0.052 and 0.054


# ---------------------------------------------------------------------------------------------- durations


def test_duration_of_a_task_by_hand():
    job = replace(FULL, epochs=2)
    script = Script(lambda ctx: Task(1, job, {"params": ctx.models[LINEAR].init(0)}, id=(None, 1, 0)))
    sim = play(script)
    ((now, reply),) = script.of(Reply)
    assert reply.spent.down == pytest.approx(0.05 + 8 * 192 / 2e6)
    assert reply.spent.compute == pytest.approx(3 * 10 * 2 * 20 / REFERENCE_OPS * 0.1)  # rows x epochs x ops
    assert reply.spent.up == pytest.approx(0.05 + 8 * 192 / 1e6)
    assert now == pytest.approx(reply.spent.total)
    assert (sim.accounts.down, sim.accounts.up) == ({"device": 192.0}, {"device": 192.0})
    assert sim.accounts.seconds == pytest.approx(now)
    assert sim.accounts.tasks == 1
    assert sim.accounts.took_part.tolist() == [False, True, False, False]


def test_bytes_are_those_of_the_tensors_that_are_sent():
    ballast = {"ballast": torch.zeros(1000, dtype=torch.float32)}
    script = Script(Task(0, Probe(), ballast, id=(None, 1, 0)), Task(1, LabelCounts(4), {}, id=(None, 1, 1)))
    sim = play(script)
    assert sim.accounts.down["device"] == 4000
    assert sim.accounts.up["device"] == 4000 + 4 * 8
    (_, counts), (_, probe) = script.of(Reply)  # the smaller one comes first
    assert (probe.spent.down, probe.spent.up) == (0.05 + 8 * 4000 / 2e6, 0.05 + 8 * 4000 / 1e6)
    assert (counts.spent.down, counts.spent.compute) == (0.05, 0.0)


def test_claims_are_shown_and_truth_is_used():
    honest = even()
    lying = replace(honest, fleet=honest.fleet.claim([2], compute=1.0, up=9e9))
    shown = []
    script = Script(lambda ctx: shown.append(ctx.profiles([1, 2])) or Task(2, Work(0, ops=REFERENCE_OPS), {}))
    play(script, lying)
    assert shown[0].compute.tolist() == [100.0, 1.0]
    assert shown[0].up.tolist() == [1e6, 9e9]
    assert script.times() == pytest.approx([0.05 + 0.1 + 0.05])  # 100 ms for a pass of the reference model


# ------------------------------------------------------------------------------------------------- queues


def test_a_device_does_one_thing_after_another():
    tasks = [Task(0, Work(), NUMBER, id=(None, 1, i)) for i in range(3)]
    other = Task(1, Work(), NUMBER, id=(None, 1, 3))
    script = Script(*tasks, other)
    sim = play(script)
    each = DOWN + 1 + UP
    assert script.times() == pytest.approx([each, each, 2 * each, 3 * each])
    assert [e.task.to for _, e in script.of(Reply)] == [0, 1, 0, 0]
    assert [e.metrics["runs"] for _, e in script.of(Reply) if e.task.to == 0] == [1, 2, 3]  # no keep is lost
    assert sim.memories.get(0, None)["runs"] == 3


def test_slots_are_memories_of_their_own():
    script = Script(*(Task(0, Work(), {}, slot=s, id=(None, 1, i)) for i, s in enumerate(("a", "b", "a"))))
    sim = play(script)
    assert [sim.memories.get(0, slot) for slot in ("a", "b", None)] == [{"runs": 2}, {"runs": 1}, None]


def test_a_tell_runs_and_is_not_answered():
    script = Script(Tell(0, Work(), NUMBER), Task(0, Work(), NUMBER, id=(None, 1, 0)))
    sim = play(script)
    assert script.times() == pytest.approx([DOWN + 1 + DOWN + 1 + UP])  # nothing goes up for a tell
    assert len(script.heard) == 1
    assert sim.memories.get(0, None)["runs"] == 2
    assert (sim.accounts.down["device"], sim.accounts.up["device"]) == (1000, 500)


def test_cancelling_frees_the_device_and_charges_what_was_used():
    tasks = [Task(0, Work(10), NUMBER, id=(None, 1, i)) for i in range(3)]

    def then(e, ctx):
        if isinstance(e, Wake):  # the first one runs, the second one waits
            return [Cancel((None, 1, 1)), Cancel((None, 1, 0)), Cancel((None, 7, 7))]
        return []

    script = Script(*tasks, Wake(4.0), then=then)
    sim = play(script)
    assert script.times() == pytest.approx([4 + DOWN + 10 + UP])
    assert script.of(Reply)[0][1].task is tasks[2]
    assert sim.accounts.seconds == pytest.approx(4 + DOWN + 10 + UP)
    assert (sim.accounts.down["device"], sim.accounts.up["device"]) == (1000, 500)
    assert not sim.devices.queues.count()
    assert sim.memories.get(0, None)["runs"] == 1


def test_a_transfer_that_is_cut_is_charged_in_part():
    script = Script(
        Task(0, Work(), NUMBER, id=(None, 1, 0)),
        Task(1, Work(), NUMBER, id=(None, 1, 1)),
        Wake(DOWN / 2, "early"),
        Wake(DOWN + 1 + UP / 2, "late"),
        then=lambda e, ctx: [Cancel((None, 1, int(e.tag == "late")))],
    )
    sim = play(script)
    assert sim.accounts.down["device"] == pytest.approx(250 + 500, abs=1)
    assert sim.accounts.up["device"] == pytest.approx(250, abs=1)


def test_the_aggregators_own_machine():
    here = len(SIZES)
    script = Script(
        lambda ctx: Task(ctx.here, Work(0, ops=1000 * REFERENCE_OPS), NUMBER, id=(None, 1, 0)),
        lambda ctx: Task(ctx.here, Work(0.5), NUMBER, id=(None, 1, 1)),
        Task(0, Work(1.2), NUMBER, id=(None, 1, 2)),
    )
    sim = play(script, even(here))
    # 1 ms a pass on a server, and no link to itself; a device works meanwhile.
    assert script.times() == pytest.approx([1.0, DOWN + 1.2 + UP, 1.5])
    assert sim.accounts.seconds == pytest.approx(DOWN + 1.2 + UP)  # those of devices are counted
    assert sim.accounts.up == {"cloud": 0, "device": 500}
    assert sim.memories.get(here, None)["runs"] == 2


# -------------------------------------------------------------------------------------------------- moves


def counts(sim, node):
    return Counter(sim.federation.pool.y[torch.tensor(sim.devices.rows(node))].tolist())


def held(sim, nodes):
    return sorted(row for node in nodes for row in sim.devices.rows(node).tolist())


def a_label(federation, node, least=2):
    """A label of which a device has some rows."""
    labels = federation.pool.y[torch.tensor(federation.partition.rows(node, "train"))].tolist()
    return next(label for label, n in Counter(labels).items() if n >= least)


def test_a_move_moves_rows_and_occupies_both_ends():
    federation = even()
    label, size = a_label(federation, 0), 2 * (5 * 8 + 8)  # two rows of five numbers and a label
    path = (0.05 + 8 * size / 1e6) + (0.05 + 8 * size / 2e6)
    script = Script(
        Task(1, Work(), {}, id=(None, 1, 0)),
        Move(0, 1, ((label, 2),)),
        Task(0, LabelCounts(4), {}, id=(None, 1, 1)),
        Task(1, LabelCounts(4), {}, id=(None, 1, 2)),
    )
    before = simulate(federation, Script(), stop=FOREVER)
    sim = play(script, federation)
    up = 0.05 + 8 * 32 / 1e6  # of four counts
    work = 0.05 + 1 + 0.05
    assert script.times() == pytest.approx([work, work + path + 0.05 + up, work + path + 0.05 + up])
    first, second = (e.body["counts"] for _, e in script.of(Reply)[1:])  # what a job sees after the move
    assert first[label] == counts(before, 0)[label] - 2 == counts(sim, 0)[label]
    assert second[label] == counts(before, 1)[label] + 2 == counts(sim, 1)[label]
    assert held(sim, range(4)) == held(before, range(4))
    assert sim.accounts.down["device"] == size
    assert sim.accounts.up["device"] == size + 2 * 32
    assert sim.accounts.seconds == pytest.approx(work + 2 * path + 2 * (0.05 + up))


def test_a_move_waits_for_the_other_end_and_holds_its_own():
    federation = even()
    script = Script(
        Task(1, Work(5), {}, id=(None, 1, 0)),
        Move(0, 1, ((a_label(federation, 0), 1),)),
        Task(0, Work(0), {}, id=(None, 1, 1)),
    )
    play(script, federation)
    assert script.times()[1] > 5.1 + 0.1  # after the move, which waited for device 1


@pytest.mark.parametrize(
    "take",
    [((0, 1), (1, 99)), ((7, 1),), ((0, -1),), ((0, 1), (0, 99)), "twice"],
    ids=["too many", "no such label", "negative", "named twice, too many", "named twice"],
)
def test_a_move_is_whole_or_refused(take):
    federation = even()
    if take == "twice":
        take = ((a_label(federation, 0), 1),) * 2  # each alone could be had, but it would be the same row
    script = Script(Move(0, 1, take), Task(0, Work(0), {}))
    sim = play(script, federation)
    ((_, lost),) = script.of(Lost)
    assert (lost.why, lost.what.take) == ("refused", take)
    assert sim.accounts.lost == {"refused": 1}
    for node in range(4):
        assert sim.devices.rows(node).tolist() == federation.partition.rows(node, "train").tolist()
    assert len(script.of(Reply)) == 1  # and the device goes on


def test_a_move_to_itself_is_refused():
    federation = even()
    sim = play(Script(Move(2, 2, ((a_label(federation, 2), 1),)), Task(2, Work(), {})), federation)
    assert sim.accounts.lost == {"refused": 1}
    assert len(sim.devices.rows(2)) == 10


def test_rows_may_move_to_an_aggregators_machine():
    federation = even()
    label = a_label(federation, 0)
    script = Script(
        lambda ctx: Move(0, ctx.here, ((label, 2),)),
        lambda ctx: Task(ctx.here, LabelCounts(4), {}, id=(None, 1, 0)),
    )
    sim = play(script, federation)
    assert script.of(Reply)[0][1].body["counts"].sum() == 2
    assert held(sim, range(5)) == held(simulate(federation, Script(), stop=FOREVER), range(4))


@pytest.mark.parametrize("gone", [0, 1])
def test_a_device_that_leaves_in_mid_move_leaves_every_row_where_it_was(gone):
    spans = [[(0.0, np.inf)]] * 4
    spans[gone] = [(0.0, 0.06), (5.0, np.inf)]
    federation = even(availability=Intervals.of(spans))
    script = Script(Move(0, 1, ((a_label(federation, 0), 2),)))
    sim = play(script, federation)
    assert [(now, e.why) for now, e in script.of(Lost)] == [(0.06, "gone")]
    for node in range(4):
        assert sim.devices.rows(node).tolist() == federation.partition.rows(node, "train").tolist()
    # 96 bytes go up in 50.768 ms, and only then down: 9.2 of 50.384 ms.
    assert sim.accounts.up["device"] == 96
    assert sim.accounts.down["device"] == 17


takes = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), max_size=3).map(tuple)
moves = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), takes), max_size=12)


@settings(max_examples=40, deadline=None)
@given(moves, st.booleans())
def test_no_sequence_of_moves_makes_or_loses_a_row(moves, leaving):
    spans = [[(0.0, 0.5 + node)] for node in range(4)] if leaving else [[(0.0, np.inf)]] * 4
    federation = even(availability=Intervals.of(spans))
    sim = play(Script(*(Move(*move) for move in moves)), federation)
    everything = sorted(row for node in range(4) for row in federation.partition.rows(node, "train").tolist())
    assert held(sim, range(5)) == everything
    assert not sim.devices.queues.count()
    assert not sim.devices.queues.first


moments = st.sets(st.integers(0, 30), max_size=5)


def stored(sim):
    """A snapshot, and the logs beside it."""
    state = codec.encode(sim.make_state())
    sim.memories.file.seek(0)
    return state, sim.memories.file.read(), list(sim.logs.kept)


@settings(max_examples=40, deadline=None)
@given(moves, st.lists(st.integers(0, 3), max_size=4), st.booleans(), moments, moments)
def test_no_sequence_of_moves_losses_and_kills_makes_or_loses_a_row(moves, works, leaving, saves, kills):
    online = [(0.0, np.inf)]
    spans = [[(0.0, 0.4 + node / 4), (2.0, np.inf)] if leaving else online for node in range(4)]
    federation = even(availability=Intervals.of(spans))
    tasks = [Task(node, Work(0.3), {}, id=(None, 1, i)) for i, node in enumerate(works)]
    commands = *tasks, *(Move(*move) for move in moves)
    everything = sorted(row for node in range(4) for row in federation.partition.rows(node, "train").tolist())
    sim, events = simulate(federation, Script(*commands), stop=FOREVER), 0
    sim.start()
    snapshot = stored(sim)
    while True:
        assert held(sim, range(5)) == everything  # at every moment, each exactly once
        if events in saves:
            snapshot = stored(sim)
        if events in kills:  # a new process goes back to the last snapshot
            sim.close()
            sim = simulate(federation, Script(*commands), stop=FOREVER)
            sim.memories.file.write(snapshot[1])
            sim.logs.kept = KeptRecords(snapshot[2])
            sim.restore(codec.decode(snapshot[0]))
            assert held(sim, range(5)) == everything
        events += 1
        if not sim.step():
            break
    sim.close()
    straight = play(Script(*commands), federation)
    assert [held(sim, [node]) for node in range(5)] == [held(straight, [node]) for node in range(5)]


# ------------------------------------------------------------------------------------ leaving and arriving


def test_a_device_that_leaves_loses_its_task():
    script = Script(*(Task(n, Work(), NUMBER, id=(None, 1, n)) for n in range(3)))
    federation = even(availability=Intervals.of([[(0.0, 0.5)], [(0.0, 9.0)], [(3.0, 9.0)], []]))
    sim = play(script, federation)
    assert [(now, e.what.to, e.why) for now, e in script.of(Lost)] == [
        (pytest.approx(0.051), 2, "gone"),  # noticing that nobody is there takes its latency
        (0.5, 0, "gone"),
    ]
    assert script.times() == pytest.approx([DOWN + 1 + UP])
    assert sim.accounts.lost == {"gone": 2}
    assert sim.accounts.seconds == pytest.approx(DOWN + 1 + UP + 0.5 + 0.051)
    assert sim.memories.get(0, None) is None


def test_a_tell_may_vanish():
    script = Script(Tell(0, Work(), NUMBER))
    sim = play(script, even(availability=Intervals.of([[(0.0, 0.5)], [], [], []])))
    assert script.heard == []
    assert sim.memories.get(0, None) is None


@pytest.mark.parametrize("deadline", [None, 1000.0])
def test_a_run_waits_for_devices_to_come(deadline):
    spans = [[(0.0, 50.0), (100.0, 120.0), (500.0, np.inf)]] * 4
    rule = FedAvg(clients=2, local=LOCAL, deadline=deadline)
    asked = []

    class Watched(Rounds):
        def receive(self, s, e, ctx):
            s, commands = super().receive(s, e, ctx)
            asked.extend(ctx.now for c in commands if isinstance(c, Task))
            return s, commands

    federation = even(availability=Intervals.of(spans), profile={"latency": 20.0})
    sim = finished(federation, Watched(rule), rounds=4)
    assert sorted({round(t) for t in asked}) == [40, 100, 500, 540]  # 40, 100: begun, but left
    assert sim.accounts.lost == {"gone": 4}
    assert sim.round == 4


def test_devices_that_come_and_go_are_all_asked():
    federation = even(availability=OnOff(3, 100.0, 0.2), profile={"latency": 1.0})
    sim = finished(federation, FedAvg(clients=1, local=LOCAL), stop=StopAt(rounds=10_000, seconds=400))
    assert sim.accounts.took_part.all()


def test_a_stall_names_the_lanes():
    federation = even(availability=Intervals.of([[(0.0, 10.0)]] * 4), profile={"latency": 6.0})
    with pytest.raises(StalledError, match=r"at 10 virtual seconds .* \(cloud: lanes \[None\]\)"):
        finished(federation, FedAvg(clients=2, local=LOCAL))


@value
class Parked(FedAvg):
    """Waits for something that never happens."""

    def plan(self, m, lane, ctx):
        return m, []


def test_a_rule_that_waits_for_nothing_is_a_stall():
    with pytest.raises(StalledError, match=r"cloud: lanes \[None\]"):
        finished(even(), Parked())


# ---------------------------------------------------------------------------------------------- barriers


def test_over_commitment_goes_on_with_the_first():
    federation = even(8)
    federation.fleet.true.latency[:] = np.linspace(0.1, 0.8, 8)
    heard = []

    class Watched(Rounds):
        def receive(self, s, e, ctx):
            heard.append((ctx.now, e))
            return super().receive(s, e, ctx)

    with one_by_one():
        sim = finished(federation, Watched(FedAvg(clients=3, local=FULL, overcommit=8 / 3)), rounds=1)
    replies = [(now, reply.task.to) for now, e in heard if isinstance(e, Replies) for reply in e]
    assert [node for _, node in replies] == [0, 1, 2]
    assert sim.accounts.tasks == 3
    assert sim.accounts.seconds == pytest.approx(sum(t for t, _ in replies) + 5 * replies[-1][0])
    assert sim.accounts.lost == {"late": 5}


def test_a_deadline_closes_a_round():
    federation = even(4)
    federation.fleet.true.latency[:2] = 2.0
    sim = finished(federation, FedAvg(clients=4, local=FULL, deadline=1.0), rounds=1)
    assert sim.now == 1.0
    assert sim.accounts.took_part.tolist() == [False, False, True, True]
    quick = (0.05 + 8 * 192 / 2e6) + 3 * 10 * 20 / REFERENCE_OPS * 0.1 + (0.05 + 8 * 192 / 1e6)
    assert sim.accounts.seconds == pytest.approx(2 * quick + 2 * 1.0)


# ------------------------------------------------------------------------------------------- bad updates

KINDS = ("nan", "infinite", "shape", "type", "keys", "more", "number", "weight", "negative", "endless")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_update_is_lost_and_told(kind):
    script = Script(Task(1, Faulty(kind), {}, id=(None, 1, 0)), Task(1, Faulty("good"), {}, slot=1))
    sim = play(script)
    ((_, lost),) = script.of(Lost)
    assert (lost.why, lost.what.to) == ("bad", 1)
    assert sim.accounts.lost == {"bad": 1}
    (record,) = [r for r in sim.records if r["metric"] == "bad_update"]
    assert (record["node"], record["round"]) == (1, 0)
    assert values(sim, "lost", group="bad")[-1] == 1
    assert sim.memories.get(1, None) is None  # nothing of it stays
    assert len(script.of(Reply)) == 1  # and the device goes on
    assert sim.accounts.tasks == 1


def test_a_job_that_fails_is_named():
    with pytest.raises(PotluckError, match="device 3: Faulty: 'no such kind'"):
        play(Script(Task(3, Faulty("fails"), {})))


# -------------------------------------------------------------------------------------------- hierarchies


@dataclass
class Tiers:
    """A rule at every tier."""

    tiers: tuple
    rules: dict

    def at(self, tier):
        return self.rules[tier]


def averaging(*tiers, **more):
    rules = {tier: FedAvg(clients=99, local=FULL) for tier in ("cloud", *tiers)}
    return Tiers(tiers, rules | more)


def test_averages_of_averages_are_the_average():
    federation = even(sizes=SIZES, users=5, edges=2)
    flat = finished(federation, FedAvg(clients=99, local=FULL), rounds=3)
    for tiers in (("edge",), ("user",), ("edge", "user")):
        deep = finished(federation, averaging(*tiers), rounds=3)
        torch.testing.assert_close(weights(deep), weights(flat), rtol=0, atol=1e-12)
        assert deep.round == 3
        assert deep.accounts.tasks == 3 * len(SIZES)


def test_bytes_by_tier():
    federation = even(sizes=SIZES, users=5, edges=2)
    sim = finished(federation, averaging("edge", "user"), rounds=2)
    expected = {"edge": 2 * 2 * 192, "user": 2 * 5 * 192, "device": 2 * 10 * 192}
    assert (sim.accounts.down, sim.accounts.up) == (expected, expected)
    assert {r["group"] for r in sim.records if r["metric"] == "bytes_up"} == set(expected)


def test_time_adds_up_through_the_tiers():
    federation = even(4, edges=2)
    sim = finished(federation, averaging("edge"), rounds=1)
    wire = 2 * 0.005 + 2 * 8 * 192 / 1e9  # cloud and edge: servers
    device = (0.05 + 8 * 192 / 2e6) + 3 * 10 * 20 / REFERENCE_OPS * 0.1 + (0.05 + 8 * 192 / 1e6)
    assert sim.now == pytest.approx(wire + device)


def test_an_edge_may_do_several_rounds_for_one():
    federation = even(4, edges=2)
    sim = finished(federation, averaging("edge", edge=FedAvg(99, FULL, inner_rounds=3)), rounds=2)
    assert sim.accounts.tasks == 2 * 3 * 4
    assert sim.accounts.up["edge"] == 2 * 2 * 192


def test_devices_without_an_edge_hang_below_the_cloud():
    federation = even(sizes=SIZES, edges=2)
    lone = federation.fleet.edge.copy()
    lone[:3] = -1
    federation = replace(federation, fleet=replace(federation.fleet, edge=lone))
    flat = finished(federation, FedAvg(clients=99, local=FULL), rounds=2)
    deep = finished(federation, averaging("edge"), rounds=2)
    torch.testing.assert_close(weights(deep), weights(flat), rtol=0, atol=1e-12)
    assert deep.accounts.up["edge"] == 2 * 2 * 192


def test_edges_answer_asynchronously():
    federation = small(edges=3)
    cloud = fedasync(FULL, clients=3)
    sim = finished(federation, averaging("edge", cloud=cloud), rounds=9)
    assert sim.round == 9
    assert max(values(sim, "staleness")) >= 1
    assert sim.accounts.took_part.all()


@pytest.mark.parametrize("lanes", [2, 7])
def test_an_edge_is_asked_one_thing_at_a_time(lanes):
    """More lanes than edges: those without one are parked, and the run goes on."""
    sim = finished(small(edges=2), averaging("edge", cloud=fedasync(FULL, clients=lanes)), rounds=6)
    assert sim.round == 6


def test_an_edge_with_nobody_below_answers_when_somebody_comes():
    spans = [[(0.0, np.inf)]] * 5 + [[(30.0, np.inf)]] * 5
    sim = finished(small(edges=2, availability=Intervals.of(spans)), averaging("edge"), rounds=2)
    assert sim.now > 30
    assert sim.accounts.took_part.all()


def test_a_late_edge_is_not_waited_for():
    federation = small(edges=2)
    federation.fleet.true.latency[:5] = 100.0
    cloud = FedAvg(clients=2, local=FULL, deadline=20.0)
    sim = finished(federation, averaging("edge", cloud=cloud), rounds=1)
    assert sim.now == pytest.approx(20.005, abs=1e-3)  # the edge is told that it needn't go on
    assert sim.accounts.up["edge"] == 192  # of the other one


@value
class Spoilt(FedAvg):
    """An edge that answers with what is no number."""

    def report(self, m, task, ctx):
        answer = FedAvg.report(self, m, task, ctx)
        return answer and ({"delta": {k: v * float("nan") for k, v in answer[0]["delta"].items()}}, answer[1])


def test_bad_answers_of_edges_are_lost_too():
    federation = even(4, edges=2)
    sim = finished(federation, averaging("edge", edge=Spoilt(99, FULL)), rounds=2)
    start = simulate(federation, averaging("edge"), rounds=2)
    start.start()
    assert sim.accounts.lost == {"bad": 4}
    assert torch.equal(weights(sim), weights(start))


# --------------------------------------------------------------------------------------------------- ends


def test_an_end_is_needed():
    for wrong in ({}, {"target": 0.9}, {"rounds": 0}, {"seconds": -1.0}):
        with pytest.raises(ConfigError, match="stop"):
            StopAt(**wrong)


def test_stop_by_rounds():
    sim = finished(small(), FedAvg(clients=2, local=LOCAL), rounds=4)
    assert (sim.round, sim.finished, sim.accounts.tasks) == (4, True, 8)


def test_stop_by_seconds():
    sim = finished(small(), FedAvg(clients=2, local=LOCAL), stop=StopAt(rounds=10_000, seconds=3.0))
    assert sim.now == 3.0
    assert not sim.devices.queues.count()
    assert 0 < sim.round < 100
    assert sim.progress().done == 1.0


def test_stop_by_device_seconds():
    sim = finished(even(), FedAvg(clients=2, local=LOCAL), stop=StopAt(device_seconds=5.0))
    assert 5.0 <= sim.accounts.seconds <= 5.2


def test_stop_by_target():
    rule, often = FedAvg(clients=4, local=replace(LOCAL, optim=SGD(0.5))), EvaluateAt(rounds=1)
    sim = finished(small(), rule, stop=StopAt(rounds=500, target=0.7), often=often)
    reached = values(sim, "accuracy_mean")
    assert sim.round < 500
    assert reached[-1] >= 0.7 > max(reached[:-1])


def test_a_run_whose_algorithm_has_nothing_to_do_ends():
    sim = play(Script())
    assert (sim.now, sim.finished) == (0.0, True)


@value
class Farewell(FedAvg):
    """Has one last task after the end, and says so."""

    def lanes(self, m, ctx):
        return ("last",) if ctx.stop and m.picks is None else FedAvg.lanes(self, m, ctx)

    def plan(self, m, lane, ctx):
        if lane is None:
            return FedAvg.plan(self, m, lane, ctx)
        return m, [Task(ctx.here, Work(7.0), NUMBER), Until()]

    def merge(self, m, lane, got, ctx):
        if lane is None:
            return FedAvg.merge(self, m, lane, got, ctx)
        return replace(m, picks="said goodbye"), [Note("goodbye", len(got.replies), group="last")]


def test_last_tasks_are_done_after_the_end():
    federation = even()
    federation.fleet.true.latency[:2] = 0.3
    plain = finished(federation, FedAvg(clients=4, local=FULL), stop=StopAt(seconds=2.0))
    sim = finished(federation, Farewell(clients=4, local=FULL), stop=StopAt(seconds=2.0))
    assert plain.now == 2.0
    assert sim.now == 9.0
    assert values(sim, "goodbye", group="last") == [1]
    assert sim.accounts.tasks == plain.accounts.tasks + 1
    assert torch.equal(weights(sim), weights(plain))
    assert [r["time"] for r in sim.records if r["metric"] == "accuracy_mean"][-1] == 9.0


def test_notes_are_recorded():
    script = Script(Note("split", [1, 2], group="leaf 3"), Note("temperature", 4.5), Wake(2.0))
    script.then = lambda e, ctx: [Note("awake", ctx.now)]
    sim = play(script)
    assert values(sim, "split", group="leaf 3") == [[1, 2]]
    assert values(sim, "temperature") == [4.5]
    assert [r for r in sim.records if r["metric"] == "awake"] == [
        {"round": 0, "time": 2.0, "metric": "awake", "value": 2.0}
    ]


def test_progress_is_told():
    told = []
    sim = simulate(small(), FedAvg(clients=2, local=LOCAL), rounds=4)
    sim.run(lambda: told.append(sim.progress()))
    assert (told[-1].round, told[-1].time, told[-1].done) == (4, sim.now, 1.0)
    assert told[-1].accuracy == sim.accuracy


def test_an_alarm_can_be_called_off_and_set_anew():
    script = Script(Wake(2.0, "a"), Wake(3.0, "b"), Wake(1.0, "c"))
    script.then = lambda e, ctx: [Cancel("b"), Wake(5.0, "a")] if e.tag == "c" else []
    play(script)
    assert [(now, e.tag) for now, e in script.heard] == [(1.0, "c"), (5.0, "a")]


def test_as_many_devices_as_clients():
    federation = small()
    with pytest.raises(ConfigError, match="fleet of 3 devices for 10 clients"):
        simulate(replace(federation, fleet=fleet.build("uniform", 3, 0)), FedAvg())


# ------------------------------------------------------------------------------------------------ a crowd


def test_a_million_devices():
    data = pool(dtype=torch.float32)
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    crowd = Federation(
        data,
        procedural(data, 1_000_000, 3, largest=20),
        fleet.build("mobile", 1_000_000, 3),
        Models(data.shape, data.classes),
    )
    sim = simulate(crowd, FedAvg(clients=100, local=FULL), rounds=3)
    ready = time.monotonic()
    sim.run()
    assert sim.accounts.tasks == 300
    assert sim.accounts.took_part.sum() >= 295  # chosen from all of them
    assert ready - begun < 10
    assert time.monotonic() - ready < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * 2**20  # KiB


def test_devices_that_were_too_late_can_be_asked_again_at_once():
    # All four are asked; the two that miss the deadline must be among the next round's four again.
    federation = small((5, 5, 5, 5), source="uniform")
    compute = np.array([1.0, 1.0, 1e9, 1e9])
    slow = replace(federation.fleet.true, compute=compute)
    federation = replace(federation, fleet=replace(federation.fleet, true=slow, claimed=slow))
    sim = simulate(federation, FedAvg(clients=4, local=LOCAL, deadline=60.0), rounds=3)
    sim.start()
    asked = {0: sim.devices.queues.count()}
    while sim.step():
        asked[sim.round] = max(asked.get(sim.round, 0), sim.devices.queues.count())
    assert [asked[r] for r in range(3)] == [4, 4, 4]
    assert sim.accounts.lost == {"late": 6}
