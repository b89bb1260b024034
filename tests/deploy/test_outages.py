"""Devices that are away, disks that are full, folders that are damaged, and what a member may say and do."""

import json
import resource
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from campaign import deployed_answers
from every import make
from schedules import Stage, find_difference, record, run_by_script
from test_parity import FLAT, crowd

from potluck.core import codec
from potluck.core.errors import StorageError
from potluck.core.messages import Task
from potluck.deploy import parcels
from potluck.deploy.conduct import journal, reports
from potluck.deploy.conduct.claims import read_hello
from potluck.deploy.conduct.crowd import UNKNOWN
from potluck.deploy.conduct.replay import replay
from potluck.deploy.https.blobs import Blobs, Pieces
from potluck.deploy.https.boxes import MOST, Box, Parcel
from potluck.deploy.parcels import Failed, Present, Scored
from potluck.engine import snapshot
from potluck.fleet import COLUMNS

pytestmark = pytest.mark.slow
FEW = (12, 9, 15)  # train rows of three devices
SHY = 1


def read_journal(stage):
    return [what for _, what, _ in journal.read(stage.folder / "server", stage.server.serial)]


# ---------------------------------------------------------------------------------------------- who is away


class Absence:
    """A device that is away for a while, from its second work on; what it is sent meanwhile is lost."""

    def __init__(self, stage, seconds):
        self.stage, self.seconds, self.until = stage, seconds, None

    def __call__(self, heard):
        stage = self.stage
        mine = [key for node, key in stage.port.keys if node == SHY]
        if heard.node == SHY and len(mine) >= 2 and self.until is None:
            self.until = stage.now + self.seconds
            del stage.port.sessions[SHY]
        if self.until is not None and stage.now >= self.until:
            stage.port.sessions[SHY] = "again"
        return b"" if heard.node == SHY and SHY not in stage.port.sessions else heard.parcel


class Coming(Absence):
    """The same; looked at by the clock too, since nobody may answer anything meanwhile."""

    def nodes(self):
        if self.until is not None and self.stage.now >= self.until:
            self.stage.port.sessions.setdefault(SHY, "again")
        return {node: session for node, session in self.stage.port.sessions.items() if node != 3}


def run_with_absence(stage, seconds, monkeypatch):
    script = Coming(stage, seconds)
    monkeypatch.setattr("schedules.ToldPort.nodes", lambda port: script.nodes())
    return run_by_script(stage, script)


def test_within_patience_nothing_is_lost(tmp_path, monkeypatch):
    federation, algorithm = crowd(FEW), make("scaffold", clients=3)
    sim, _ = record(federation, algorithm, rounds=6)
    stage = Stage(federation, algorithm, tmp_path, rounds=6)
    run_with_absence(stage, 50, monkeypatch)
    assert stage.server.state.accounts.lost == {}
    assert find_difference(sim, stage.server, spent=False) is None


def test_after_that_work_is_lost_and_later_it_is_asked_again_from_the_memory_that_counted(
    tmp_path, monkeypatch
):
    stage = Stage(crowd(FEW), make("scaffold", clients=3), tmp_path, rounds=8)
    orders = []
    carry = stage.devices[SHY].answer

    def note(parcel, *more):
        order, _ = parcels.unpack_order(parcel, stage.allow)
        if isinstance(order, parcels.Work):
            orders.append((order.key, order.base))
        return carry(parcel, *more)

    monkeypatch.setattr(stage.devices[SHY], "answer", note)
    run_with_absence(stage, 62.5, monkeypatch)
    assert stage.server.state.accounts.lost == {"gone": 1}
    assert [line for line in stage.said if "has been away for 60 s: its work is given up" in line]
    (first, _), (_, base), (third, again), *rest = orders
    assert base == again == first  # the second was computed, and didn't count
    assert rest[0][1] == third


def test_who_is_there_and_never_answers_is_given_up(tmp_path):
    """Its work and its scores; the run ends."""
    stage = Stage(crowd(FEW), make("fedavg", clients=3), tmp_path, rounds=2)
    stage.server.timeout = 100.0
    answer = stage.devices[SHY].answer

    def hush(parcel, *more):
        order, _ = parcels.unpack_order(parcel, stage.allow)
        return answer(parcel, *more) if isinstance(order, parcels.Hello | parcels.CallOff) else b""

    stage.devices[SHY].answer = hush
    run_by_script(stage)
    assert stage.server.state.accounts.lost == {"gone": 2}
    assert [line for line in stage.said if "has had something to do for 100 s" in line]
    assert stage.server.poster.posted == {}


# ------------------------------------------------------------------------------------------------- full disks


class FullDisk:
    """No file may become longer than this, for a while: the system itself refuses."""

    def __init__(self, most):
        self.most = most

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.most, self.before[1]))

    def __exit__(self, *error):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


@pytest.mark.parametrize("room", [200, 1_000, 3_000, 9_000, 20_000])
def test_a_full_disk_ends_the_server_and_it_goes_on_from_there(room, tmp_path):
    federation, algorithm = crowd(FEW), make("scaffold", clients=3)
    sim, _ = record(federation, algorithm, rounds=5)
    stage = Stage(federation, algorithm, tmp_path, rounds=5)
    with pytest.raises(StorageError, match=r"can't be written \(File too large\); make room"), FullDisk(room):
        run_by_script(stage)
    with suppress(StorageError), FullDisk(room):
        stage.server.close()
    stage.build()
    run_by_script(stage)
    assert find_difference(sim, stage.server, spent=False) is None


def test_a_full_disk_ends_a_device_and_it_goes_on_from_there(tmp_path):
    federation, algorithm = crowd(FEW), make("scaffold", clients=3)
    sim, _ = record(federation, algorithm, rounds=3)
    stage = Stage(federation, algorithm, tmp_path, rounds=3)
    answer, full = stage.devices[SHY].answer, []

    def fill(parcel, *more):
        order, _ = parcels.unpack_order(parcel, stage.allow)
        if isinstance(order, parcels.Work) and not full:
            full.append(order.key)
            with pytest.raises(StorageError, match="make room"), FullDisk(100):
                answer(parcel, *more)
            stage.port.sessions[SHY] = "again"  # its process has ended, and was started again
            return b""
        return answer(parcel, *more)

    stage.devices[SHY].answer = fill
    run_by_script(stage)
    assert full
    assert stage.server.state.accounts.lost == {}
    assert find_difference(sim, stage.server, spent=False) is None


# ------------------------------------------------------------------------------------------- damaged folders


def leave_in_the_middle(tmp_path):
    stage = Stage(crowd(FEW), make("scaffold", clients=3), tmp_path, rounds=6)
    with pytest.raises(AssertionError, match="no end"):
        run_by_script(stage, until=3)
    stage.server.save()
    with pytest.raises(AssertionError, match="no end"):
        run_by_script(stage, until=2)
    stage.server.close()
    return stage


def test_a_damaged_snapshot_is_passed_over(tmp_path):
    sim, _ = record(crowd(FEW), make("scaffold", clients=3), rounds=6)
    stage = leave_in_the_middle(tmp_path)
    newest = tmp_path / "server" / snapshot.list_all(tmp_path / "server")[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    stage.build()
    assert len([line for line in stage.said if newest.name in line]) == 1
    run_by_script(stage)
    assert find_difference(sim, stage.server, spent=False) is None


def test_a_torn_entry_is_as_if_it_had_not_happened(tmp_path):
    sim, _ = record(crowd(FEW), make("scaffold", clients=3), rounds=6)
    stage = leave_in_the_middle(tmp_path)
    path = tmp_path / "server" / journal.name(stage.server.serial)
    path.write_bytes(path.read_bytes()[:-9])
    stage.build()
    run_by_script(stage)
    assert find_difference(sim, stage.server, spent=False) is None


# ------------------------------------------------------------------------------------- what a member may say


def say_hello(**more):
    told = {"protocol": 1, "version": "", "rows": {"train": 3}, "labels": [1, 2], "claims": {}} | more
    return read_hello(parcels.pack(Present(**told)), 2)


@pytest.mark.parametrize(
    "more, why",
    [
        ({"protocol": 7}, "speaks protocol 7, this server 1: install the same version"),
        ({"protocol": 10**4000}, "speaks protocol"),
        ({"protocol": torch.ones(2)}, "Present.protocol is a Tensor"),
        ({"rows": {"train": 1 << 40}}, "says of its rows what can't be"),
        ({"rows": {"train": -1}}, "says of its rows what can't be"),
        ({"rows": {7: 3}}, "says of its rows what can't be"),
        ({"rows": [3]}, "Present.rows is a list"),
        ({"labels": [1, 2, 0]}, "labels of other classes"),
        ({"labels": [1, 1]}, "says of its labels what can't be"),
        ({"labels": [-1, 4]}, "says of its labels what can't be"),
        ({"labels": [1] * 200_000}, "more than 100000 items"),
        ({"version": "x" * (1 << 20)}, "bytes, more than 1048576"),
        ({"claims": torch.ones(1)}, "Present.claims is a Tensor"),
    ],
)
def test_a_hello_that_can_not_be_is_told_in_a_line(more, why):
    told = say_hello(**more)
    assert isinstance(told, str)
    assert why in told
    assert told.isprintable()
    assert len(told) <= parcels.LINE + 60


def test_who_can_not_take_part_is_told_of_once(tmp_path):
    """A device of another protocol: it says so, the server says so, and the others work."""
    stage = Stage(crowd(FEW), make("fedavg", clients=2), tmp_path, rounds=3)
    stage.server.start_with, stage.server.patience = 2, 2.0
    answer = stage.devices[SHY].answer
    newer = parcels.pack(parcels.Hello(parcels.PROTOCOL + 1, "r", SHY))
    stage.devices[SHY].answer = lambda parcel, *more: answer(newer)
    run_by_script(stage)
    told = "refused: protocol 2, this device speaks 1: install the same version"
    assert stage.said == [f"device {SHY}: {told}"]
    assert SHY not in stage.server.state.members


def test_claims_are_believed_as_far_as_they_can_be(tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=3), tmp_path, rounds=1)
    odd = {
        "compute": 1e308,
        "up": float("nan"),
        "down": -5.0,
        "latency": "x",
        "memory": 10**400,
        "other": 1.0,
    }
    stage.devices[SHY].claims = lambda: odd
    run_by_script(stage)
    claims = stage.server.state.members[SHY].claims
    assert claims["compute"] <= 1e18
    assert claims["down"] > 0
    assert set(claims) <= set(COLUMNS)
    assert {"up", "latency", "memory"}.isdisjoint(claims)
    assert UNKNOWN["up"] == stage.server.conductor.claimed.up[SHY]


def test_rows_are_known_of_those_who_came(tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=3), tmp_path, rounds=1)
    stage.begin()
    conductor, members = stage.server.conductor, stage.server.state.members
    assert conductor.count_rows([2, 0]) == [FEW[2], FEW[0]]
    members.pop(0)
    assert conductor.count_rows([0, 1]) == [0, FEW[1]]
    assert conductor.count_rows([conductor.root]) == [conductor.terms.server["train"]]


@pytest.mark.parametrize("name", FLAT)
def test_billions_of_rows_take_no_memory(name, tmp_path):
    """A device may say so: what its work would cost is asked without any of them."""
    stage = Stage(crowd(), make(name), tmp_path, rounds=1)
    stage.begin()
    members = stage.server.state.members
    for member in members.values():
        member.rows["train"] = (1 << 32) - 1
    resource_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    items = [f.item for f in stage.server.conductor.queues.flights.values() if isinstance(f.item, Task)]
    assert items
    for item in items:
        stage.server.conductor.estimate_cost(item)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resource_before < 200 << 10  # kB


def test_texts_of_others_do_not_steer_a_terminal():
    failed = parcels.pack(Failed("k", "bad", "\x1b[2J\nround 9\ud800\u202e" + "x" * 10**5))
    found = reports.read_work(failed, reports.Cost(), parcels.BODY)
    assert isinstance(found, reports.Refusal)
    assert found.text.startswith("bad: ?[2J?round 9??xxx")
    assert found.text.isprintable()
    assert len(found.text) <= parcels.LINE


def test_scores_that_can_not_be_are_left_out(tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=3), tmp_path, rounds=1)
    lies = iter(
        [
            Scored("", {"accuracy": 1.5}),
            Scored("", {"accuracy": 1e308}),
            Scored("", {"loss": float("inf")}),
            Scored("", {"a\nb": 1.0}),
            Scored("", {f"m{i}": 1.0 for i in range(65)}),
            Scored("", {"accuracy": 0.5}, {"name": torch.ones(2), 7: 1.0}),
            Scored("", {"accuracy": torch.ones(2)}),
        ]
    )
    answer = stage.devices[SHY].answer

    def lie(parcel, *more):
        order, _ = parcels.unpack_order(parcel, stage.allow)
        return parcels.pack(next(lies)) if isinstance(order, parcels.Score) else answer(parcel, *more)

    stage.devices[SHY].answer = lie
    run_by_script(stage)
    stage.server.close()
    lines = [json.loads(line) for line in (tmp_path / "server" / "records.jsonl").read_text().splitlines()]
    told = [line for line in lines if line.get("node") == SHY and line["metric"] != "chosen"]
    assert told == []
    assert [line for line in lines if line["metric"] == "accuracy" and line.get("node") == 0]


# --------------------------------------------------------------------------------- how much a member may fill


def test_junk_does_not_fill_the_journal(tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=3), tmp_path, rounds=3)
    run_by_script(stage, lambda heard: bytes(30 << 20) if heard.node == SHY else heard.parcel)
    assert stage.server.state.accounts.lost == {"bad": 3}
    assert [line for line in stage.said if "31457280 bytes where" in line]
    stored = sum(path.stat().st_size for path in (tmp_path / "server").rglob("*") if path.is_file())
    assert stored < 1 << 20
    stage.server.save()
    assert replay(tmp_path / "server", stage.terms).difference is None


def test_a_device_that_comes_anew_all_the_time_is_greeted_once_a_second(tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=3), tmp_path, rounds=3)
    said = [0]

    def flood(heard):
        said[0] += 1
        stage.port.sessions[SHY] = f"s{stage.now}{said[0]}"
        return heard.parcel

    run_by_script(stage, flood)
    greeted = [what for what in read_journal(stage) if type(what).__name__ == "Came" and what.node == SHY]
    assert len(greeted) <= stage.now + 1
    assert stage.server.state.accounts.lost == {}


def test_a_box_holds_so_much_and_no_more(tmp_path):
    box = Box(Pieces(tmp_path, 0, 100))
    for i in range(3 * MOST):
        box.put(i, Parcel(0, f"hello/{i}", b"x", "", True))
    assert len(box.parcels) == len(box.wanted) == MOST
    box.put(10**6, Parcel(0, f"hello/{3 * MOST - 1}", b"called off", "", False))
    assert f"hello/{3 * MOST - 1}" not in box.wanted


def test_bodies_stay_while_somebody_waits_for_them(tmp_path):
    blobs = Blobs(tmp_path / "blobs")
    names = [blobs.store(bytes([i]) * 100_000) for i in range(100)]
    blobs.forget(names, set(names[:20]))
    assert [name for name in names if blobs.find(name) is None] == names[20:96]
    again = blobs.store(bytes([30]) * 100_000)
    blobs.forget([], ())
    assert blobs.find(again) is not None  # nobody can wait for it yet


def test_the_campaigns_row_can_fail(monkeypatch):
    assert deployed_answers.find_fault.__wrapped__(3) == ""

    def weigh_more(rng, done, body):
        return parcels.pack(replace(done, weight=1e6), codec.encode(body))

    monkeypatch.setattr(deployed_answers, "KINDS", [weigh_more])
    assert deployed_answers.find_fault.__wrapped__(3) == ""
    monkeypatch.setattr(reports, "find_problem", lambda *args, **more: None)
    assert deployed_answers.find_fault.__wrapped__(3) != ""
