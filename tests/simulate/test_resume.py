"""Runs that are interrupted: damaged snapshots, wrong ones, and processes killed at any moment."""

import hashlib
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, replace

import interrupted
import numpy as np
import pytest
import torch
from federations import (
    LOCAL,
    LOOP,
    SIZES,
    STACKED,
    chained,
    dealt,
    finished,
    lines,
    one_by_one,
    pool,
    small,
    weights,
)

from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedbuff import fedbuff
from potluck.algorithms.scaffold import scaffold
from potluck.core.codec import value
from potluck.core.errors import SnapshotError
from potluck.core.job import Cost, Result
from potluck.core.messages import Move, Note, Tell
from potluck.data import Phase
from potluck.engine import snapshot
from potluck.engine.memories import Memories
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.fleet import Jitter, OnOff
from potluck.jobs import SGD
from potluck.simulate import Simulation
from potluck.simulate.run_state import RunState

pytestmark = pytest.mark.slow

RULE = scaffold(replace(LOCAL, optim=SGD(0.1)), clients=4)  # it has memories on devices too
SETTINGS = dict(seed=2, stop=StopAt(rounds=5), evaluate=EvaluateAt(rounds=2), identity="this one")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The records of a run that nobody disturbed, without and with a folder."""
    folder = tmp_path_factory.mktemp("straight")
    sim = Simulation(small(), RULE, folder=folder, **SETTINGS)
    sim.run()
    return (folder / "records.jsonl").read_bytes(), weights(sim)


@pytest.fixture
def broken_off(tmp_path):
    """A run that has got some way, with snapshots at events 4, 7 and 10 and more in its logs."""
    sim = Simulation(small(), RULE, folder=tmp_path, **SETTINGS)
    sim.start()
    with one_by_one():
        for event in range(1, 13):
            assert sim.step()
            if event in (4, 7, 10):
                sim.save()
    sim.logs.file.flush()
    sim.memories.flush()
    sim.close()
    return tmp_path


def snapshots(folder):
    return sorted((folder / "snapshots").glob("*.snapshot"))


def resumed(folder, rule=RULE, **changes):
    return Simulation.resume(small(), rule, folder=folder, **SETTINGS | changes)


def ends_like(sim, straight):
    sim.run()
    return (sim.folder / "records.jsonl").read_bytes() == straight[0] and torch.equal(
        weights(sim), straight[1]
    )


def test_a_folder_changes_nothing(straight):
    sim = finished(small(), RULE, seed=2, rounds=5, often=EvaluateAt(rounds=2))
    assert straight[0].count(b"\n") == len(sim.records)
    assert torch.equal(weights(sim), straight[1])


def test_snapshots_only_look(tmp_path, straight):
    sim = Simulation(small(), RULE, folder=tmp_path, snapshot_every=0.0, **SETTINGS)
    with one_by_one():
        assert ends_like(sim, straight)
    assert sim.snapshots > 20
    assert len(snapshots(tmp_path)) == 3  # older ones are cleared away
    assert len(list((tmp_path / "snapshots").iterdir())) == 3


def test_a_run_goes_on_where_it_was(broken_off, straight):
    sim = resumed(broken_off)
    assert sim.notices == []
    assert ends_like(sim, straight)


def test_a_finished_run_stays_as_it_is(broken_off, straight):
    resumed(broken_off).run()
    before = [path.read_bytes() for path in snapshots(broken_off)]
    again = resumed(broken_off)
    assert again.finished
    assert ends_like(again, straight)
    assert [path.read_bytes() for path in snapshots(broken_off)] == before


def flip(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: flip(data, 0),
        lambda data: flip(data, len(data) // 2),
        lambda data: flip(data, -1 + len(data)),
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"",
    ],
    ids=["hash", "middle", "end", "half", "one byte short", "one byte more", "empty"],
)
def test_a_damaged_snapshot_is_passed_over(damage, broken_off, straight):
    newest = snapshots(broken_off)[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    sim = resumed(broken_off)
    assert sim.notices == [f"snapshot {newest.name} is damaged or half-written: an earlier one is used"]
    assert ends_like(sim, straight)


def test_the_last_good_one_counts(broken_off, straight):
    for path in snapshots(broken_off)[1:]:
        path.write_bytes(path.read_bytes()[:99])
    sim = resumed(broken_off)
    assert len(sim.notices) == 2
    assert ends_like(sim, straight)


def test_none_is_good(broken_off):
    for path in snapshots(broken_off):
        path.write_bytes(flip(path.read_bytes(), 40))
    with pytest.raises(SnapshotError, match=r"no good snapshot to resume from; .* is damaged"):
        resumed(broken_off)


def test_a_snapshot_that_was_never_finished_is_ignored(broken_off, straight):
    (broken_off / "snapshots" / "00000009.partial").write_bytes(b"half a snap")
    assert ends_like(resumed(broken_off), straight)


def test_without_a_snapshot_it_begins_again(tmp_path, straight):
    (tmp_path / "records.jsonl").write_bytes(b'{"round":0')  # killed before the first one
    (tmp_path / "keep.log").write_bytes(b"something")
    assert ends_like(resumed(tmp_path), straight)


def test_another_experiment_is_refused(broken_off):
    before = (broken_off / "records.jsonl").read_bytes(), (broken_off / "keep.log").read_bytes()
    with pytest.raises(SnapshotError, match="another experiment"):
        resumed(broken_off, identity="that one")
    assert ((broken_off / "records.jsonl").read_bytes(), (broken_off / "keep.log").read_bytes()) == before


@pytest.mark.parametrize("log", ["records.jsonl", "keep.log"])
def test_a_log_that_lost_its_end_is_refused(log, broken_off):
    path = broken_off / log
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SnapshotError, match=rf"{log}: 100 bytes, but \d+ when the snapshot was taken"):
        resumed(broken_off)
    path.unlink()
    with pytest.raises(SnapshotError, match=rf"{log}: 0 bytes"):
        resumed(broken_off)


def test_the_plan_of_the_beginning_is_used(tmp_path):
    rule = fedbuff(LOCAL, clients=6, buffer=4)
    straight = finished(small(), rule, seed=2, rounds=5, plan=STACKED)
    sim = Simulation(small(), rule, plan=STACKED, folder=tmp_path, **SETTINGS)
    sim.start()
    for _ in range(9):
        sim.step()
    sim.save()
    sim.close()
    again = resumed(tmp_path, rule, plan=LOOP)
    again.run()
    assert again.plan == STACKED
    assert torch.equal(weights(again), weights(straight))  # to the byte: with the loop it would differ
    assert not torch.equal(weights(again), weights(finished(small(), rule, seed=2, rounds=5)))


def test_a_snapshot_of_something_else_is_refused(tmp_path):
    snapshot.write(tmp_path, 7, {"a": 1})
    with pytest.raises(SnapshotError, match=r"00000007.snapshot: holds no RunState"):
        snapshot.read_newest(tmp_path, RunState)


def test_damage_is_found_by_the_hash(tmp_path):
    path = snapshot.write(tmp_path, 7, {"a": [1, 2.5, None], "b": torch.arange(3)})
    data = path.read_bytes()
    assert hashlib.blake2b(data[32:], digest_size=32).digest() == data[:32]
    serial, state, said = snapshot.read_newest(tmp_path, dict)
    assert (serial, state["a"], state["b"].tolist(), said) == (7, [1, 2.5, None], [0, 1, 2], [])


def test_a_snapshot_with_a_right_hash_that_can_not_be_read(tmp_path):
    """Of another version, or changed and sealed anew: no earlier one would be better."""
    path = snapshot.write(tmp_path, 7, {"a": EvaluateAt((1.0,))})
    body = path.read_bytes()[32:].replace(b"EvaluateAt", b"EvaluateOn")
    path.write_bytes(hashlib.blake2b(body, digest_size=32).digest() + body)
    with pytest.raises(SnapshotError, match=r"00000007.snapshot: can't be read \(unknown kind .*EvaluateOn"):
        snapshot.read_newest(tmp_path, dict)


# --------------------------------------------------------------------------------------------- every event


@dataclass
class Tiers:
    """A rule at every tier."""

    tiers: tuple
    rules: dict

    def at(self, tier):
        return self.rules[tier]


@value
class Counting:
    """Counts on its device, with a number drawn there."""

    def cost(self, at):
        return Cost(0.0, {})

    def run(self, at):
        before = 0 if at.keep is None else at.keep["count"]
        return Result({}, keep={"count": before + 1, "drawn": at.seed % 1000})


@value
class Busy(FedAvg):
    """Moves rows, tells devices something and takes notes at the start of every round."""

    def plan(self, m, lane, ctx):
        m, commands = FedAvg.plan(self, m, lane, ctx)
        src, dst, told = (int(n) for n in ctx.rng.permutation(len(ctx.children))[:3])
        move = Move(src, dst, ((int(ctx.rng.integers(4)), 1),))
        note = Note("moved", {"from": src, "to": dst}, group=("pair", src, dst))
        return m, [move, Tell(told, Counting(), {}, slot="count"), note, *commands]


SLOW = dict(compute=4e5)
HARD = {
    "tiers": (Tiers(("edge",), {t: FedAvg(3, LOCAL) for t in ("cloud", "edge")}), dict(edges=3)),
    "three tiers": (
        Tiers(("edge", "user"), {t: FedAvg(2, LOCAL, deadline=9.0) for t in ("cloud", "edge", "user")}),
        dict(users=5, edges=2),
    ),
    "asynchronous edges": (
        Tiers(("edge",), {"cloud": fedasync(LOCAL, clients=3), "edge": FedAvg(2, LOCAL, inner_rounds=2)}),
        dict(edges=3),
    ),
    "edges that are late": (
        Tiers(("edge",), {"cloud": FedAvg(3, LOCAL, deadline=1.5), "edge": FedAvg(2, LOCAL)}),
        dict(edges=3),
    ),
    "deadlines": (FedAvg(4, LOCAL, overcommit=1.5, deadline=2.0), {}),
    "coming and going": (fedbuff(LOCAL, clients=6, buffer=3), dict(availability=OnOff(3, 8.0, 0.4))),
    "nobody for long": (FedAvg(2, LOCAL), dict(availability=OnOff(3, 60.0, 0.1))),
    "moves and tells": (Busy(4, LOCAL), {}),
    "jitter": (fedasync(LOCAL, clients=4), dict(jitter=Jitter(1, every=1.0, compute=0.5))),
    "rows that change": (Busy(4, LOCAL), {}),
}


def crowd(name):
    federation = small(**SLOW | HARD[name][1])
    if name != "rows that change":
        return federation
    test, half = federation.test_rows(), np.arange(len(SIZES)) % 2 == 0
    return replace(federation, changes=(Phase(3.0, dealt(pool(), SIZES, key=1), test, half),))


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
@pytest.mark.parametrize("name", HARD)
def test_resumed_at_every_event(name, plan):
    algorithm, _ = HARD[name]
    stop, often = StopAt(rounds=9, device_seconds=25.0), EvaluateAt(rounds=3, seconds=2.5)
    settings = dict(seed=1, stop=stop, plan=plan, often=often)
    straight = finished(crowd(name), algorithm, **settings)
    sim, events = chained(crowd(name), algorithm, **settings)
    assert events >= 10
    assert lines(sim) == lines(straight)
    assert torch.equal(weights(sim), weights(straight))
    for node in range(len(SIZES)):
        assert sim.devices.rows(node).tolist() == straight.devices.rows(node).tolist()


# ------------------------------------------------------------------------------------------------ memories


def test_memories_that_do_not_fit_are_read_from_disk(tmp_path):
    tree = {"x": torch.arange(100.0)}
    memories = Memories(tmp_path / "keep.log", budget=1000)  # two and a half of them
    for node in range(10):
        memories.put(node, None, {"x": tree["x"] + node})
    for node in (3, 9, 0):
        assert torch.equal(memories.get(node, None)["x"], tree["x"] + node)
    memories.put(3, None, {"x": tree["x"] * 2})
    assert torch.equal(memories.get(3, None)["x"], tree["x"] * 2)
    assert memories.sizes <= 1000
    state = memories.flush()
    memories.put(3, None, {"x": tree["x"] * 3})  # after the snapshot: forgotten
    memories.flush()
    memories.close()
    again = Memories(tmp_path / "keep.log", budget=1000)
    again.restore(state)
    assert torch.equal(again.get(3, None)["x"], tree["x"] * 2)
    assert torch.equal(again.get(9, None)["x"], tree["x"] + 9)
    assert again.get(11, None) is None
    assert (tmp_path / "keep.log").stat().st_size == state.length
    again.close()


def test_a_memory_does_not_hold_on_to_its_stack():
    stack = torch.arange(12.0).reshape(3, 4)
    memories = Memories(None)
    memories.put(0, None, {"row": stack[1]})
    kept = memories.get(0, None)["row"]
    assert kept.untyped_storage().nbytes() == 16
    stack.zero_()
    assert kept.tolist() == [4.0, 5.0, 6.0, 7.0]


# ---------------------------------------------------------------------------------------------- kill -9

LENGTH = 50.0  # device-seconds: about 40 tasks


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("fedavg", "stacked"),
        ("fedasync", "stacked"),
        ("fedbuff", "workers"),
        ("fedbuff", "stacked"),
        ("scaffold", "loop"),
    ],
)
def test_killed_at_any_moment(name, plan, tmp_path):
    calm, hunted = tmp_path / "calm", tmp_path / "hunted"

    def start(folder):
        return interrupted.forked(lambda: interrupted.go(name, plan, folder, LENGTH))

    interrupted.go(
        name, plan, tmp_path / "first", LENGTH
    )  # here, so that children needn't load what they need
    begun = time.monotonic()
    interrupted.go(name, plan, calm, LENGTH)
    whole, rng = time.monotonic() - begun, random.Random(f"{name} {plan}")
    killed = interrupted.endure(start, hunted, 4, iter(lambda: rng.uniform(0.1, 0.5) * whole, None))
    assert killed >= 1
    first, second = (interrupted.outcome(name, plan, folder, LENGTH) for folder in (calm, hunted))
    assert first[0].count(b"\n") > 50
    assert interrupted.same(first, second)


def dying(call, count, name, plan, folder):
    """Run, but be killed at the `count`th call of a function of os."""
    real, calls = getattr(os, call), 0

    def fatal(*args, **named):
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **named)

    setattr(os, call, fatal)
    interrupted.go(name, plan, folder, LENGTH, snapshot_every=0.0)


def test_killed_at_every_stage_of_a_snapshot(tmp_path):
    """Four calls of fsync (both logs, the snapshot, its folder) and one of replace make a snapshot."""
    name, plan, calm, hunted = "scaffold", "loop", tmp_path / "calm", tmp_path / "hunted"
    interrupted.go(name, plan, calm, LENGTH)
    for count in range(1, 6):
        for call in ("fsync", "replace"):
            child = interrupted.forked(lambda call=call, count=count: dying(call, count, name, plan, hunted))
            assert interrupted.ended(child) == -signal.SIGKILL
    assert interrupted.ended(interrupted.forked(lambda: interrupted.go(name, plan, hunted, LENGTH))) == 0
    first, second = (interrupted.outcome(name, plan, folder, LENGTH) for folder in (calm, hunted))
    assert interrupted.same(first, second)
    assert any(first[2][node] is not None for node in range(len(SIZES)))


def test_killed_in_a_process_of_its_own(tmp_path):
    """As in life: a fresh interpreter, found dead, and another one."""
    script = interrupted.command("fedavg", "loop", tmp_path / "run", 200.0)
    first = subprocess.Popen(script)
    for _ in range(2000):
        if len(snapshots(tmp_path / "run")) == 3 or first.poll() is not None:
            break
        time.sleep(0.01)
    first.kill()
    assert first.wait() in (-signal.SIGKILL, 0)  # 0: this process was held up for longer than it ran
    assert subprocess.run(script, check=False).returncode == 0
    interrupted.go("fedavg", "loop", tmp_path / "calm", 200.0)
    records = [(tmp_path / folder / "records.jsonl").read_bytes() for folder in ("run", "calm")]
    assert records[0] == records[1]
