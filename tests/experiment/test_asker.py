"""Runs elsewhere, without Ray: who asks for them, real children, and machines that go at the wrong moment."""

import errno
import multiprocessing
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from apart import contents

from potluck.core.errors import ConfigError, PotluckError, StorageError
from potluck.engine import snapshot
from potluck.engine.schedule import Progress
from potluck.execute.process import Failure
from potluck.experiment import Experiment, folder, runs
from potluck.experiment.launch import asked_run, asker, far_run, hardware
from potluck.experiment.launch.asker import Asker, Terms
from potluck.experiment.launch.child import Child
from potluck.experiment.launch.folder_changes import Changes
from potluck.experiment.launch.follower import Follower, Missing
from potluck.experiment.launch.words import Broken, Failed, Here, LostError, UserCode
from potluck.experiment.run_events import Callback, Ended, Started
from potluck.experiment.screen import Screen

pytestmark = pytest.mark.slow


class Nearby:
    """Machines that are this one: every order is a plain generator, and `spoil` may change what it says."""

    def __init__(self, spoil=lambda attempt, words: words):
        self.spoil, self.begun, self.dropped, self.bytes, self.lacks = spoil, [], [], 0, 0

    def begin(self, name, call, terms):
        self.begun.append((name, terms))
        words = call(terms, None)
        return words if name == "plans" else self.spoil(len(self.begun), words)

    def wait(self, streams, seconds):
        return streams[:1]

    def hear(self, stream):
        try:
            word = next(stream)
        except StopIteration:
            raise LostError("its stream broke off", "StopIteration") from None
        if isinstance(word, Changes):
            self.bytes += sum(len(content) for _, content in word.files.values())
        return word

    def drop(self, stream):
        self.dropped.append(stream)
        stream.close()

    def tell_lack(self, runs):
        self.lacks += 1
        return f"{runs} wait"


class Heard:
    """A show that keeps what it is told."""

    def __init__(self):
        self.started, self.said, self.over = [], [], []

    def follow_many(self):
        return tempfile.TemporaryDirectory()  # any context

    def on_start(self, name, where=""):
        self.started.append((name, where))

    def on_progress(self, name, progress):
        assert isinstance(progress, Progress)

    def on_end(self, name, accuracy, seconds, runs, left):
        self.over.append(name)

    def say(self, text):
        self.said.append(text)


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    """Where runs are computed before what they write comes here."""
    (tmp_path / "afar").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "afar"))
    yield
    rooms = tmp_path / "afar" / f"potluck-afar-{os.getuid()}"
    assert not rooms.exists() or not list(rooms.iterdir())  # each goes with its run
    assert multiprocessing.active_children() == []


@pytest.fixture
def spawned():
    """Children begin anew, as they do elsewhere."""


@pytest.fixture(autouse=True)
def forked(request, monkeypatch):
    """Children are forked, which takes no time; but for tests of how they begin."""
    if "spawned" not in request.fixturenames:
        monkeypatch.setattr(far_run, "Child", lambda name, call, spawned: Child(name, call))


def small(**changes):
    tables = {
        "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
        "model": {"name": "linear"},
        "algorithm": "scaffold",  # devices keep something: there is a log of memories
        "stop": {"rounds": 40},
        "evaluate": {"rounds": 5},
        "run": {"executor": "loop", "snapshot_every": 0.001},
    }
    return Experiment(**{**tables, **changes})


def ask(machines, missing, show=None, callbacks=(), **terms):
    follower = Follower(show, callbacks, len(missing), len(missing))
    Asker(machines, Terms(1, 0.0, UserCode(), **terms), follower).compute(missing)
    return follower


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    """So that quick runs, too, are seen at several snapshots."""
    monkeypatch.setattr(far_run, "LOOK", 0.005)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The run as it is computed here."""
    place = tmp_path_factory.mktemp("here") / "run"
    runs.run(small(), place)
    return place


def break_after(wanted, attempts=1, how=None):
    """A machine that goes once it has said so many words that are wanted, in its first attempts."""

    def spoil(attempt, words):
        if attempt > attempts:
            yield from words
            return
        left = 3
        for word in words:
            yield word
            if wanted(word):
                left -= 1
                if not left:
                    words.close()
                    if how is not None:
                        yield how
                    return

    return spoil


def is_late(name):
    return name.startswith("snapshots/")


def is_snapshot(word):
    return isinstance(word, Changes) and word.has_snapshot


def test_a_run_elsewhere_is_that_of_this_machine(tmp_path, here, spawned):
    show, machines = Heard(), Nearby()
    ask(machines, [Missing("run-1", small(), tmp_path / "run")], show)
    assert contents(tmp_path / "run") == contents(here)
    assert show.started == [("run-1", os.uname().nodename)]
    assert show.over == ["run-1"]
    assert runs.load(tmp_path / "run").finished
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {path.name for path in here.iterdir()}


def test_nothing_travels_twice(tmp_path):
    """But the snapshots: one after another is sent, and three of them stay."""
    sent = []

    def note(attempt, words):
        for word in words:
            if isinstance(word, Changes):
                sent.append(word.files)
            yield word

    ask(Nearby(note), [Missing("run-1", small(), tmp_path / "run")])
    logs = [(name, start, len(content)) for files in sent for name, (start, content) in files.items()]
    for log in ("records.jsonl", "keep.log"):
        pieces = [(start, length) for name, start, length in logs if name == log]
        assert sum(length for _, length in pieces) == (tmp_path / "run" / log).stat().st_size
        assert [start for start, _ in pieces] == [sum(n for _, n in pieces[:i]) for i in range(len(pieces))]
    snapshots = [name for name, _, _ in logs if name.startswith("snapshots/")]
    assert len(snapshots) == len(set(snapshots)) > 3
    assert sum(name.startswith("models/") for name, _, _ in logs) == 1


def test_a_machine_that_goes_after_a_snapshot_costs_what_came_after_it(tmp_path, here):
    show, machines = Heard(), Nearby(break_after(is_snapshot))
    ask(machines, [Missing("run-1", small(), tmp_path / "run")], show)
    assert contents(tmp_path / "run") == contents(here)
    (told,) = [line for line in show.said if "attempt" in line]
    assert told.startswith("potluck: run-1: its stream broke off; on ")
    at = int(told.partition("attempt 2, from round ")[2])
    assert at > 0
    there = machines.begun[1][1].there
    assert sum(name.startswith("snapshots/") for name in there.files) == 1


def test_a_machine_that_goes_before_a_snapshot_costs_its_attempt(tmp_path, here):
    show = Heard()
    machines = Nearby(break_after(lambda word: True))  # host, how it begins, its first files
    ask(machines, [Missing("run-1", small(run={"executor": "loop"}), tmp_path / "run")], show)
    assert [line for line in show.said if "attempt 2" in line]
    assert runs.load(tmp_path / "run").finished
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == (here / "records.jsonl").read_bytes()


def test_who_asked_may_go_and_ask_again(tmp_path, here):
    """Whatever was written by then: the folder is a run's, and its newest snapshot is good."""

    class GoneError(Exception):
        pass

    def go(attempt, words):
        left = 4
        for word in words:
            yield word
            left -= is_snapshot(word)
            if not left:
                raise GoneError

    place, show = tmp_path / "run", Heard()
    with pytest.raises(GoneError):
        ask(Nearby(go), [Missing("run-1", small(), place)])
    assert folder.is_run(place)
    assert not folder.is_finished(place)
    ask(Nearby(), [Missing("run-1", small(), place, state="begun")], show)
    assert contents(place) == contents(here)
    assert [line for line in show.said if line.startswith("potluck: run-1: goes on from round ")]


@pytest.mark.parametrize("name", ["records.jsonl", "records.sums", "snapshots/"])
def test_a_write_that_breaks_off_leaves_the_older_snapshot(tmp_path, here, name, monkeypatch):
    """The power goes, or the disk is full, while this file is written."""
    place, write, add = tmp_path / "run", asked_run.write_changes, []

    def break_off(at, changes):
        turn = sorted(changes.files, key=lambda each: (each != "records.jsonl", is_late(each), each))
        until = next((each for each in turn if each.startswith(name)), None)
        if snapshot.list_all(at) and until is not None:
            write(at, Changes({each: changes.files[each] for each in turn[: turn.index(until)]}))
            (at / f".{Path(until).name}.partial").write_bytes(b"half")
            add.append(name)
            raise StorageError(f"{at / name}: can't be written (No space left on device); make room")
        write(at, changes)

    monkeypatch.setattr(asked_run, "write_changes", break_off)
    with pytest.raises(StorageError, match=str(place)):
        ask(Nearby(), [Missing("run-1", small(), place)])
    monkeypatch.setattr(asked_run, "write_changes", write)
    assert add
    ask(Nearby(), [Missing("run-1", small(), place, state="begun")])
    assert contents(place) == contents(here)


@pytest.mark.parametrize("name", ["records.jsonl", "snapshots"])
def test_a_disk_that_is_full_is_named_and_what_was_whole_stays_whole(tmp_path, here, name, monkeypatch):
    place, sync, machines = tmp_path / "run", os.fsync, Nearby()

    def refuse(file):
        path = os.readlink(f"/proc/self/fd/{file}")
        if path.startswith(f"{place}/") and name in path and len(snapshot.list_all(place)) >= 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        wanted = rf"{re.escape(str(place))}/{name}\S*: can't be written \(No space left on device\)"
        with pytest.raises(StorageError, match=wanted):
            ask(machines, [Missing("run-1", small(), place)])
    assert len(machines.begun) == len(machines.dropped) == 1  # and nobody goes on with it
    assert len(snapshot.list_all(place)) >= 2
    ask(Nearby(), [Missing("run-1", small(), place, state="begun")])
    assert contents(place) == contents(here)


def test_a_child_that_is_killed_is_asked_for_again(tmp_path, here):
    def kill(attempt, words):
        for word in words:
            yield word
            if attempt == 1 and is_snapshot(word):
                for child in multiprocessing.active_children():
                    child.kill()

    show = Heard()
    ask(Nearby(kill), [Missing("run-1", small(), tmp_path / "run")], show)
    assert [line for line in show.said if "its process was ended by SIGKILL; on " in line]
    assert contents(tmp_path / "run") == contents(here)


def test_three_attempts_without_a_newer_snapshot_are_the_run_s_own_fault(tmp_path):
    machines = Nearby(say(Here("HOST2", hardware.describe_kind(), versions())))
    with pytest.raises(
        PotluckError, match=r"run-1: broken off 3 times at round 0, last by StopIteration on "
    ):
        ask(machines, [Missing("run-1", small(), tmp_path / "run")])
    assert len(machines.begun) == 3
    assert not (tmp_path / "run").exists()


def test_a_machine_that_goes_before_its_first_word_costs_its_attempt(tmp_path, capsys):
    """The run starts on the screen when a machine has taken it, whichever attempt that is."""
    machines, run = Nearby(lambda attempt, own: own if attempt > 1 else say()(attempt, own)), tmp_path / "run"
    follower = ask(machines, [Missing("run-1", small(stop={"rounds": 2}), run)], Screen(quiet=False))
    told = capsys.readouterr().err
    assert told.count(f"run-1: on {os.uname().nodename}") == 1
    assert "run-1: its stream broke off; on " in told
    assert "attempt 2" in told
    assert follower.under_way == 0


def test_a_run_that_gets_on_may_be_broken_off_without_limit(tmp_path, here):
    machines = Nearby(break_after(is_snapshot, attempts=5))
    ask(machines, [Missing("run-1", small(), tmp_path / "run")])
    assert 3 < len(machines.begun) <= 6
    assert contents(tmp_path / "run") == contents(here)


def versions():
    return far_run.list_versions()


def say(*words):
    """A machine that says just this."""
    return lambda attempt, own: (word for word in words)


def test_other_versions_are_refused_by_both_names(tmp_path):
    old = {**versions(), "torch": "2.6.0"}
    machines = Nearby(say(Here("HOST2", "x", old)))
    wanted = re.escape(f"HOST2: has torch 2.6.0, and this machine {versions()['torch']}; install the same")
    with pytest.raises(PotluckError, match=wanted):
        ask(machines, [Missing("run-1", small(), tmp_path / "run")])
    bare = {name: version for name, version in versions().items() if name != "Potluck"}
    machines = Nearby(say(Here("HOST2", "x", bare)))
    with pytest.raises(PotluckError, match=r"HOST2: has Potluck not at all, and this machine "):
        ask(machines, [Missing("run-1", small(), tmp_path / "run")])


def test_another_kind_of_machine_is_a_remark(tmp_path, here):
    def move(attempt, words):
        for word in words:
            yield word._replace(kind="Other 9000 (abc)") if attempt == 2 and isinstance(word, Here) else word

    show = Heard()
    broken = break_after(is_snapshot)
    ask(
        Nearby(lambda n, words: move(n, broken(n, words))),
        [Missing("run-1", small(), tmp_path / "run")],
        show,
    )
    (told,) = [line for line in show.said if "another kind" in line]
    assert told.startswith("potluck: run-1: goes on on another kind of machine (Other 9000 (abc); before: ")
    assert told.endswith("so last digits may differ")


def test_what_is_wrong_with_a_run_is_told_with_its_machine_and_stops_the_rest(tmp_path):
    failure = Failure("DataError", "no such file", "")
    words = [Here("HOST2", hardware.describe_kind(), versions()), Failed(failure)]
    machines = Nearby(lambda attempt, own: say(*words)(attempt, own) if attempt == 1 else own)
    missing = [Missing(f"run-{i}", small(seed=i), tmp_path / str(i)) for i in (1, 2)]
    with pytest.raises(PotluckError, match="run-1 on HOST2: no such file"):
        ask(machines, missing)
    assert len(machines.dropped) == 2
    assert not (tmp_path / "1").exists()


def test_plans_are_measured_by_one_task_of_all(tmp_path):
    open_ = small(run={"executor": "auto", "snapshot_every": 100}, stop={"rounds": 2})
    missing = [Missing(f"run-{i}", open_.with_values(seed=i), tmp_path / str(i)) for i in (1, 2)]
    machines = Nearby()
    ask(machines, missing, jobs=1)
    assert [name for name, _ in machines.begun] == ["plans", "run-1", "run-2"]
    assert [order.choice.plan.executor for name, order in machines.begun[1:]] == ["loop", "loop"]


def test_runs_give_a_sign_of_life_while_plans_are_measured(tmp_path, monkeypatch):
    machines, begun = Nearby(), []
    monkeypatch.setattr(asked_run.AskedRun, "look", lambda each: begun.append(len(machines.begun)))
    open_ = small(run={"executor": "auto"}, stop={"rounds": 1})
    ask(machines, [Missing("run-1", open_, tmp_path / "run")])
    assert machines.begun[0][0] == "plans"
    assert begun[0] == 1  # when nothing but plans was asked for


def test_plans_that_nobody_lives_to_measure_are_given_up(tmp_path):
    class Weak(Nearby):
        def begin(self, name, call, terms):
            self.begun.append(name)
            return (word for word in (Here("HOST2", "x", versions()), Broken("SIGKILL", "it was killed")))

    weak = Weak()
    with pytest.raises(PotluckError, match=r"plans: broken off 3 times, last by SIGKILL on HOST2"):
        ask(weak, [Missing("run-3", small(run={"executor": "auto"}), tmp_path / "3")])
    assert weak.begun == ["plans"] * 3


def test_it_is_said_now_and_then_that_runs_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(asker, "WAITED", 0.0)

    class Slow(Nearby):
        def wait(self, streams, seconds):
            return streams[:1] if self.lacks else []

    show, machines = Heard(), Slow()
    ask(machines, [Missing("run-1", small(stop={"rounds": 1}), tmp_path / "run")], show)
    assert "potluck: 1 wait" in show.said
    assert machines.lacks == 1


def test_callbacks_hear_of_runs_elsewhere(tmp_path):
    class Ear(Callback):
        def __init__(self):
            self.heard, self.found = [], []

        def on_start(self, event):
            self.heard.append(event)
            self.found.append(folder.is_run(event.folder))

        def on_end(self, event):
            self.heard.append(event)
            self.found.append(runs.load(event.folder).finished and any(event.folder.glob("models/*")))

    place = tmp_path / "run"
    ask(Nearby(), [Missing("run-1", small(stop={"rounds": 2}), place)], callbacks=[ear := Ear()])
    first, last = ear.heard
    assert isinstance(first, Started)
    assert isinstance(last, Ended)
    assert first.folder == last.folder == place
    assert ear.found == [True, True]  # what there is of the run by then


def test_folders_that_nobody_holds_are_removed_by_the_next_run(tmp_path):
    left = tmp_path / "afar" / f"potluck-afar-{os.getuid()}" / "left" / "run"
    left.mkdir(parents=True)
    (left / "records.jsonl").write_text("")
    ask(Nearby(), [Missing("run-1", small(stop={"rounds": 1}), tmp_path / "run")])
    assert not left.exists()


def test_a_folder_of_somebody_else_is_refused_at_once(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("")
    machines = Nearby()
    with pytest.raises(ConfigError, match="exists already"):
        ask(machines, [Missing("run-1", small(), tmp_path / "run")])
    assert machines.begun == []


def test_a_run_of_other_settings_is_replaced_if_that_is_wanted(tmp_path, here):
    shutil.copytree(here, tmp_path / "run")
    other = small(seed=2, stop={"rounds": 2})
    ask(Nearby(), [Missing("run-1", other, tmp_path / "run", state="other")])
    assert runs.load(tmp_path / "run").experiment.seed == 2
