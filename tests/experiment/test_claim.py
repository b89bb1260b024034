"""Machines that share a folder: one of them computes a run, and who has lost it writes nothing more."""

import fcntl
import json
import os
import signal
import time

import pytest
import torch
from apart import contents, until

import potluck
from potluck.core.errors import ClaimError, ConfigError, SnapshotError
from potluck.experiment import Experiment, claim, runs
from potluck.experiment.claimed_run import find_patience
from potluck.experiment.run_lock import lock_run

ELSEWHERE = {"host": "far", "machine": "another", "space": "", "process": 7, "began": "1", "patience": 120.0}


def write_claim(folder, age=0.0, **changes):
    path = folder / claim.NAME
    path.write_text(json.dumps({**ELSEWHERE, **changes}))
    now = time.time()
    os.utime(path, (now - age, now - age))
    return path


def read_owner(folder):
    return json.loads((folder / claim.NAME).read_text())


def test_a_claim_names_its_process_and_goes_with_it(tmp_path):
    with lock_run(tmp_path, 120.0):
        owner = read_owner(tmp_path)
        assert (owner["process"], owner["patience"]) == (os.getpid(), 120.0)
        with pytest.raises(ConfigError, match=rf"this run \(process {os.getpid()} on .*\); wait"):
            claim.take(tmp_path, 120.0, locked=False)  # where no lock of the system is heard of
    assert list(tmp_path.iterdir()) == []


def test_one_whose_process_is_dead_here_is_taken_over_at_once(tmp_path):
    if (child := os.fork()) == 0:
        claim.take(tmp_path, 120.0, locked=False)
        os._exit(0)
    os.waitpid(child, 0)
    assert read_owner(tmp_path)["process"] == child
    with lock_run(tmp_path, 120.0) as own:
        assert own.former == ""  # nothing to tell of
        assert read_owner(tmp_path)["process"] == os.getpid()


def test_another_process_of_the_same_number_is_another(tmp_path):
    claim.take(tmp_path, 120.0, locked=False)
    owner = read_owner(tmp_path)
    write_claim(tmp_path, **{**owner, "began": "1"})
    assert claim.take(tmp_path, 120.0, locked=False).former == ""
    assert read_owner(tmp_path) == owner


def test_who_has_the_lock_of_a_machine_need_not_wait_for_its_containers(tmp_path):
    """One that was started anew sees no process of the one before; where nothing is locked, it waits."""
    with lock_run(tmp_path, 120.0):
        owner = read_owner(tmp_path)
    write_claim(tmp_path, **{**owner, "space": "another", "process": 1})
    with pytest.raises(ConfigError, match=r"is computing this run \(process 1 on "):
        claim.take(tmp_path, 120.0, locked=False)
    with lock_run(tmp_path, 120.0):
        assert read_owner(tmp_path) == owner


@pytest.mark.parametrize(
    ("age", "patience", "fix"),
    [
        (0, 120.0, r"end it there, and 2 min later this can go on here$"),
        (100, 120.0, r"end it there, and 2 min later"),
        (200, 240.0, r"end it there, and 4 min later"),
        (10**6, None, r"if there is no such process any more, delete .*/\.computing$"),
    ],
)
def test_one_of_another_machine_that_gives_signs_of_life_is_kept(tmp_path, age, patience, fix):
    path = write_claim(tmp_path, age, patience=patience)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"is computing this run \(process 7 on far\).*" + fix):
        claim.take(tmp_path, 120.0, locked=False)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [claim.NAME]


@pytest.mark.parametrize(("age", "patience"), [(130, 120.0), (250, 240.0)])
def test_one_that_gives_none_is_taken_over_with_a_remark(tmp_path, age, patience):
    (tmp_path / "records.jsonl").write_text("x\n")
    asleep = open(tmp_path / "records.jsonl", "a")  # noqa: SIM115
    write_claim(tmp_path, age, patience=patience)
    with lock_run(tmp_path, 120.0) as own, asleep:
        assert own.former.startswith("process 7 on far, which gave no sign of life for ")
        asleep.write("what it had still to write")
    assert (tmp_path / "records.jsonl").read_text() == "x\n"


def test_the_clock_of_the_file_system_counts(tmp_path, monkeypatch):
    write_claim(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 4e9)  # this machine's clock is wrong by decades
    with pytest.raises(ConfigError, match="another process is computing this run"):
        claim.take(tmp_path, 120.0, locked=False)


@pytest.mark.parametrize("content", [b"", b'{"host": "far", "pro', b"[]", b'{"host": 1}', b"\xff"])
def test_one_that_says_nothing_is_believed_for_a_while(tmp_path, content):
    path = write_claim(tmp_path)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="another process is computing this run; wait"):
        claim.take(tmp_path, 120.0, locked=False)
    now = time.time()
    os.utime(path, (now - 130, now - 130))
    assert claim.take(tmp_path, 120.0, locked=False).former.startswith("a process, which gave no sign")


def test_one_that_is_released_while_it_is_looked_at_is_taken(tmp_path, monkeypatch):
    path, make = write_claim(tmp_path), claim.tempfile.NamedTemporaryFile

    def release(**settings):
        path.unlink(missing_ok=True)
        return make(**settings)

    monkeypatch.setattr(claim.tempfile, "NamedTemporaryFile", release)
    claim.take(tmp_path, 120.0, locked=False)
    assert read_owner(tmp_path)["process"] == os.getpid()


def test_who_is_slower_puts_back_what_the_faster_one_has_made(tmp_path):
    path = write_claim(tmp_path, 200)
    found = claim._find(tmp_path)
    write_claim(tmp_path, host="faster")
    assert not claim._remove(tmp_path, found)
    assert read_owner(tmp_path)["host"] == "faster"
    path.unlink()
    assert not claim._remove(tmp_path, found)
    assert list(tmp_path.iterdir()) == []


def test_a_sign_of_life_is_given_with_every_snapshot_and_after_a_sleep(tmp_path, monkeypatch):
    own = claim.take(tmp_path, 120.0, locked=False)
    path = tmp_path / claim.NAME
    os.utime(path, (0, 0))
    own.look()
    assert path.stat().st_mtime == 0
    own.renewed -= 61  # half of what it may
    own.look()
    assert path.stat().st_mtime > 0
    write_claim(tmp_path)
    for ask in (own.renew, lambda: path.unlink() or own.renew()):
        with pytest.raises(ClaimError, match=r"taken over by .*; it writes nothing more there"):
            ask()
    write_claim(tmp_path)
    own.release()
    assert read_owner(tmp_path)["host"] == "far"  # not its own to remove


def test_no_link_is_followed(tmp_path):
    (tmp_path / "other").write_text("mine")
    (tmp_path / claim.NAME).symlink_to(tmp_path / "other")
    with pytest.raises(SnapshotError, match="a symbolic link"):
        claim.take(tmp_path, 120.0, locked=False)
    assert (tmp_path / "other").read_text() == "mine"


# ---------------------------------------------------------------------------------------------- whole runs


def long(rounds):
    return Experiment(
        data={"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
        model={"name": "linear"},
        stop={"rounds": rounds},
        evaluate={"rounds": 1},
        algorithm="scaffold",  # whose devices remember something
        run={"executor": "loop", "snapshot_every": 0.05},
    )


def start_elsewhere(place, rounds):
    """A process of another machine: its lock isn't heard of here, and nobody here can see it."""
    if (child := os.fork()) != 0:
        return child
    try:

        def refuse(*_):
            raise OSError("no locks on this file system")

        fcntl.flock, claim.identify_machine = refuse, lambda: "another"
        potluck.run(long(rounds), place)
        os._exit(0)
    except ClaimError as error:
        place.with_name("said").write_text(str(error))
        os._exit(3)
    except BaseException:
        os._exit(1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="forks of what has trained, beside a GPU")
def test_one_that_slept_ends_and_the_records_are_whole(tmp_path):
    """It wakes while the other one computes, in the middle of an event, and has records to write."""
    place = tmp_path / "run"
    child = start_elsewhere(place, rounds=150)
    until(lambda: len(list(place.glob("snapshots/*.snapshot"))) >= 2)
    os.kill(child, signal.SIGSTOP)
    with pytest.raises(ConfigError, match="another process is computing this run"):
        potluck.resume(place)
    now = time.time()
    os.utime(place / claim.NAME, (now - 200, now - 200))
    ended = []

    class Wake(potluck.Callback):
        def on_evaluate(self, event):
            if not ended:
                os.kill(child, signal.SIGCONT)
                ended.append(os.waitpid(child, 0)[1])

    try:
        done = potluck.resume(place, callbacks=[Wake()])
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended[0]) == 3
    said = (tmp_path / "said").read_text()
    assert said.startswith(f"{place}: taken over by process {os.getpid()} on ")
    assert any(notice.startswith("taken over from process ") for notice in done.notices)
    assert not (place / claim.NAME).exists()
    potluck.run(long(150), tmp_path / "alone")
    assert contents(place) == contents(tmp_path / "alone")
    assert len((place / "sessions.jsonl").read_text().splitlines()) == 1  # the other's isn't there


def test_a_run_that_is_taken_over_before_its_first_snapshot_is_not_deleted(tmp_path, monkeypatch):
    """Who finds that it has nothing to keep must not take away what is somebody else's."""
    place = tmp_path / "run"
    renew = claim.Claim.renew

    def taken(self):
        write_claim(place)
        renew(self)

    monkeypatch.setattr(claim.Claim, "renew", taken)
    with pytest.raises(ClaimError):
        runs.run(long(3), place)
    assert (place / "experiment.toml").exists()
    assert not (place / "sessions.jsonl").exists()


def test_patience_follows_from_how_often_snapshots_are_taken():
    assert find_patience(long(1)) == 120.0
    assert find_patience(Experiment(run={"snapshot_every": 60.0})) == 240.0
