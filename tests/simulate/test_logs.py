"""Both logs of a run are covered by checksums, and the memories' leaves old versions behind."""

import os
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, finished, one_by_one, simulate, small, weights

from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.scaffold import scaffold
from potluck.core.errors import SnapshotError
from potluck.engine import kept_records, snapshot
from potluck.engine import memories as engine_memories
from potluck.engine.kept_records import KeptRecords
from potluck.engine.memories import Memories, find_log_fault
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.jobs import SGD
from potluck.simulate import Simulation
from potluck.simulate.run_state import RunState, read_memories, read_newest

RULE = scaffold(replace(LOCAL, optim=SGD(0.1)), clients=4)  # it has memories on devices too
SETTINGS = dict(seed=2, stop=StopAt(rounds=5), evaluate=EvaluateAt(rounds=2), identity="this one")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The records and the model of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    sim = Simulation(small(), RULE, folder=folder, **SETTINGS)
    sim.run()
    return (folder / "records.jsonl").read_bytes(), weights(sim)


@pytest.fixture
def broken_off(tmp_path):
    """A run that has got some way, with snapshots at its beginning and at events 7 and 10."""
    sim = Simulation(small(), RULE, folder=tmp_path, **SETTINGS)
    sim.start()
    with one_by_one():
        for event in range(1, 13):
            assert sim.step()
            if event in (7, 10):
                sim.save()
    sim.close()
    return tmp_path


def resumed(folder):
    return Simulation.resume(small(), RULE, folder=folder, **SETTINGS)


def ends_like(sim, straight):
    sim.run()
    return (sim.folder / "records.jsonl").read_bytes() == straight[0] and torch.equal(
        weights(sim), straight[1]
    )


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def read_state(folder, which):
    """What the oldest (0) or a later snapshot holds."""
    path = folder / snapshot.list_all(folder)[which]
    return snapshot.read(path.read_bytes()[snapshot.DIGEST :], "cpu", path)


def find_all_needed(folder):
    """Places of memories that each snapshot needs, by their offset."""
    return [{row[2]: row for row in read_state(folder, which).memories.index} for which in range(3)]


# ------------------------------------------------------------------------------------------------- damage


def test_a_flipped_bit_of_a_new_memory_costs_a_snapshot(broken_off, straight):
    _, older, newest = find_all_needed(broken_off)
    node, _, offset, size, _ = newest[max(set(newest) - set(older))]
    flip(broken_off / "keep.log", offset + size - 1)
    sim = resumed(broken_off)
    (said,) = sim.notices
    assert f"keep.log: damaged (what device {node} remembers: {size} bytes at {offset})" in said
    assert said.endswith("an earlier one is used")
    assert ends_like(sim, straight)


def test_a_flipped_bit_that_all_snapshots_need_is_refused(broken_off):
    for name in snapshot.list_all(broken_off)[:1]:
        (broken_off / name).unlink()
    kept = set(read_state(broken_off, 0).memories.places()) & set(read_state(broken_off, 1).memories.places())
    places = [read_state(broken_off, which).memories.places() for which in (0, 1)]
    name = next(name for name in sorted(kept) if places[0][name] == places[1][name])
    for at in range(places[0][name].offset, places[0][name].offset + places[0][name].size, 29):
        flip(broken_off / "keep.log", at)
        said = rf"keep.log: damaged \(what device {name[0]} .*or run it again"
        with pytest.raises(SnapshotError, match=said):
            resumed(broken_off)
        with pytest.raises(SnapshotError, match=r"keep.log: damaged"):  # what another run would begin with
            read_memories(broken_off)
        flip(broken_off / "keep.log", at)


def test_a_flipped_bit_is_found_in_the_run_itself(tmp_path):
    memories = Memories(tmp_path / "keep.log", budget=0)
    for node in range(3):
        memories.put(node, None, {"x": torch.arange(9.0) + node})
    memories.flush()
    flip(tmp_path / "keep.log", memories.index[1, None].offset + 100)
    assert memories.get(2, None)["x"][0] == 2
    with pytest.raises(SnapshotError, match=r"keep.log: damaged \(what device 1 remembers.*resume the run"):
        memories.get(1, None)
    memories.close()


def test_a_flipped_bit_of_a_new_record_costs_a_snapshot(broken_off, straight):
    assert read_state(broken_off, 1).records < read_state(broken_off, 2).records
    flip(broken_off / "records.jsonl", read_state(broken_off, 2).records - 3)
    sim = resumed(broken_off)
    assert "records.jsonl: damaged or edited" in sim.notices[0]
    assert ends_like(sim, straight)


def test_a_flipped_bit_of_an_old_record_is_refused(broken_off):
    for at in np.linspace(0, read_state(broken_off, 0).records - 1, 20).astype(int):
        flip(broken_off / "records.jsonl", at)
        with pytest.raises(SnapshotError, match=r"records.jsonl: damaged or edited .*put the old files back"):
            resumed(broken_off)
        flip(broken_off / "records.jsonl", at)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-20], lambda data: b"x" + data])
def test_checksums_that_are_gone_or_damaged_are_refused(damage, broken_off):
    sums = broken_off / "records.sums"
    sums.write_bytes(damage(sums.read_bytes().splitlines()[-1]))
    with pytest.raises(SnapshotError, match=r"records.sums: (damaged|has no checksum of \d+ bytes)"):
        resumed(broken_off)


# -------------------------------------------------------------------------------------------- old versions


def fill(memories, rounds, devices=8):
    """Snapshots of memories that all change all the time; the sizes of the logs, and the last states."""
    sizes, states, path = [], [], memories.path
    for turn in range(rounds):
        for node in range(devices):
            if turn == 0 or node:  # one of them never changes
                memories.put(node, None, {"x": torch.full((1000,), float(turn))})
        memories.make_room()
        states.append(memories.flush())
        sizes.append(sum(file.stat().st_size for file in path.parent.glob("keep*.log")))
        for state in states[-snapshot.KEPT :]:  # all that can be resumed from
            assert find_log_fault(path, state) is None
    return sizes, states


def test_old_versions_are_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_memories, "SMALL", 50_000)
    memories = Memories(tmp_path / "keep.log")
    sizes, states = fill(memories, 60)
    live = sum(place.size for place in memories.index.values())
    assert max(sizes[30:]) == max(sizes[10:30]) < 9 * live
    assert states[-1].log > 5
    assert len(list(tmp_path.glob("keep*.log"))) <= 2
    memories.close()
    for which in (-1, -2, -3):  # the logs of later ones are deleted then
        again = Memories(tmp_path / "keep.log")
        again.restore(states[which])
        assert again.get(3, None)["x"][0] == 60 + which
        assert again.get(0, None)["x"][0] == 0
        assert again.flush().index == states[which].index
        again.close()


def test_a_small_log_is_not_copied(tmp_path):
    memories = Memories(tmp_path / "keep.log")
    sizes, states = fill(memories, 20)
    assert states[-1].log == 0
    assert sizes[-1] > 10 * sizes[0]
    memories.close()


def test_memories_without_a_folder_leave_old_versions_behind(monkeypatch):
    monkeypatch.setattr(engine_memories, "SMALL", 50_000)
    memories, sizes = Memories(None, budget=10_000), []
    for turn in range(200):
        for node in range(8):
            memories.put(node, None, {"x": torch.full((1000,), float(turn))})
        sizes.append(memories.file.seek(0, os.SEEK_END))
    assert max(sizes) < 150_000
    assert all(memories.get(node, None)["x"][0] == 199 for node in range(8))
    memories.close()


def test_a_kill_at_any_moment_resumes_without_a_difference(tmp_path, straight, monkeypatch):
    """A copy of the folder is taken before all that reaches the disk, and each is resumed."""
    monkeypatch.setattr(engine_memories, "SMALL", 1)
    run, copies = tmp_path / "run", []
    run.mkdir()
    real = os.fsync

    def copy_first(file):
        copies.append(tmp_path / f"{len(copies):03d}")
        shutil.copytree(run, copies[-1])
        real(file)

    sim = Simulation(small(), RULE, folder=run, **SETTINGS)
    monkeypatch.setattr(os, "fsync", copy_first)
    sim.start()
    event = 0
    with one_by_one():
        while sim.step():
            event += 1
            if event % 2 == 0:
                sim.save()
    sim.close()
    monkeypatch.setattr(os, "fsync", real)
    assert [path.name for path in run.glob("keep*")] == ["keep.1.log"]
    assert len(copies) > 50
    for copy in copies[::2]:
        again = resumed(copy)
        assert again.notices == []
        assert ends_like(again, straight), copy


def test_an_unfinished_log_is_no_harm(tmp_path, monkeypatch):
    """Killed after old versions were left behind, before a snapshot said so."""
    monkeypatch.setattr(engine_memories, "SMALL", 50_000)
    memories = Memories(tmp_path / "keep.log")
    _, states = fill(memories, 9)
    assert memories.log
    memories.close()
    other = tmp_path / f"keep.{memories.log + 1}.log"
    other.write_bytes(b"half")
    again = Memories(tmp_path / "keep.log")
    again.restore(states[-1])
    assert not other.exists()
    assert again.get(1, None)["x"][0] == 8
    again.close()


# ------------------------------------------------------------------------------- records without a folder


@pytest.mark.parametrize("most", [1, 3, 50])
def test_records_in_memory_are_few_and_none_is_lost(most, monkeypatch):
    rule = fedasync(LOCAL, clients=4)  # it notes something of every task
    straight = finished(small(), rule, rounds=40, often=EvaluateAt(rounds=10))
    monkeypatch.setattr(kept_records, "MOST", most)
    sim = simulate(small(), rule, rounds=40, often=EvaluateAt(rounds=10))
    sim.start()
    while sim.step():
        assert len(sim.logs.kept.recent) < most
    assert sim.records == straight.records
    assert len(sim.logs.kept) == len(straight.records)
    sim.logs.truncate(33)
    assert sim.records == straight.records[:33]
    sim.close()


def test_a_rule_that_notes_much_keeps_a_process_flat():
    """ShuffleFL notes 30 things a round: 7 kB, that once stayed in memory."""
    records, sizes = KeptRecords(), []
    tracemalloc.start()
    try:
        for turn in range(40_000):
            records.append(
                {"round": turn, "time": turn * 0.1, "metric": "alpha", "value": turn * 0.3, "group": 1}
            )
            if turn % 5000 == 4000:
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes[1:]) < 1.1 * sizes[0]
    assert [r["round"] for r in records] == list(range(40_000))


def test_the_state_of_a_run_says_which_log(broken_off):
    state = read_newest(broken_off)[1]
    assert isinstance(state, RunState)
    assert (state.memories.log, state.memories.snapshots) == (0, 3)


@pytest.mark.parametrize("named", [True, False])
def test_memories_of_a_run_that_is_over_can_still_be_read(named, tmp_path):
    tree = {"x": torch.arange(100.0)}
    memories = Memories(tmp_path / "keep.log" if named else None, budget=1000)  # two and a half of them
    for node in range(10):
        memories.put(node, None, {"x": tree["x"] + node})
    memories.flush()
    memories.close()
    for node in range(10):
        assert torch.equal(memories.get(node, None)["x"], tree["x"] + node)
    memories.close()
