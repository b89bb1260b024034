"""Runs side by side: the same results, only what is missing, and no process left behind."""

import contextlib
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from apart import SMALL, STUDY, alive, children, contents, started, until

import potluck
from potluck.cli import main
from potluck.core.errors import ConfigError, DataError
from potluck.engine.schedule import Progress
from potluck.execute.plan import ExecutionPlan
from potluck.execute.tune.autotune import PlanChoice
from potluck.experiment import Experiment, runs, study_runner, tune
from potluck.experiment.comparison import resume_comparison
from potluck.experiment.launch import child as processes
from potluck.experiment.launch import execution_plan, hardware, side_by_side
from potluck.experiment.launch.follower import Follower, Missing

# Tests train in this process too, and where torch sees a GPU it can't train in forks of one that has.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="forks of what has trained, beside a GPU"),
]


class Told:
    """A show that keeps what it is told."""

    def __init__(self):
        self.started, self.over, self.said, self.far = [], [], [], {}

    def __call__(self, name):
        raise AssertionError(f"{name} was run in this process")

    def say(self, text):
        self.said.append(text)

    def announce(self, number, total, left):
        raise AssertionError("one after another")

    def follow_many(self):
        return contextlib.nullcontext()

    def on_progress(self, name, progress):
        assert name in self.started
        assert progress.done >= self.far.get(name, 0.0)
        self.far[name] = progress.done

    def on_start(self, name, where):
        self.started.append(name)
        self.far[name] = 0.0  # trials of several scenarios share their names

    def on_end(self, name, accuracy, seconds, runs, left):
        assert 0 <= accuracy <= 1
        assert seconds >= 0
        assert left >= 0
        assert self.far[name] == 1.0
        self.over.append((name, runs))


def small(**changes):
    return Experiment(**{**SMALL, **changes})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "two.py").write_text(STUDY.replace("ROUNDS", "4"))
    return tmp_path


# ---------------------------------------------------------------------------------------------- same results


@pytest.mark.parametrize("executor", ["auto", "loop", "workers", "stacked"])
def test_comparisons_are_the_same_to_the_byte(tmp_path, executor):
    asked = small(run={"executor": executor, "workers": 2})
    one = potluck.compare(asked, ["fedavg", "fedbuff"], [1, 2], tmp_path / "one")
    told = Told()
    two = potluck.compare(asked, ["fedavg", "fedbuff"], [1, 2], tmp_path / "two", told, jobs=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert [run.name for run in one.runs] == [run.name for run in two.runs]
    assert told.started == ["fedavg-1", "fedbuff-1", "fedavg-2", "fedbuff-2"]
    assert sorted(name for name, _ in told.over) == sorted(told.started)
    assert [left for _, left in told.over] == [3, 2, 1, 0]
    pinned = json.loads((tmp_path / "two" / "fedavg-1" / "plan.json").read_text())
    assert pinned["executor"] == {"auto": "loop", "workers": "loop"}.get(executor, executor)
    assert ("beside other runs in a loop" in pinned["reason"]) == (executor == "workers")


def test_tunings_are_the_same_and_only_what_is_missing_is_run(tmp_path):
    tune(small(), ["fedavg", "fedprox"], tmp_path / "one")
    told = Told()
    tune(small(), ["fedavg"], tmp_path / "two", told, jobs=3)
    assert told.started == ["fedavg-lr0.0001-1", "fedavg-lr0.3-1"]
    tune(small(), ["fedavg", "fedprox"], tmp_path / "two", told, jobs=0)
    assert told.started[2:] == ["fedprox-lr0.0001-1", "fedprox-lr0.3-1"]
    assert [left for _, left in told.over] == [1, 0, 1, 0]
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    before = contents(tmp_path / "two")
    tune(small(), ["fedavg", "fedprox"], tmp_path / "two", told, jobs=2)
    assert len(told.started) == 4
    assert contents(tmp_path / "two") == before


def test_studies_are_the_same_with_tuning_and_models_of_their_own(here):
    one, told = study_runner.run_study("two", "quick", "one"), Told()
    two = study_runner.run_study("two", "quick", "two", told, jobs=2)
    assert contents(here / "one") == contents(here / "two")
    assert study_runner.summarise(one)["results"] == study_runner.summarise(two)["results"]
    assert [left for _, left in told.over] == list(range(15, -1, -1))
    assert told.started[7:10] == [
        "q-lr0.3-1",
        "even-plain-1",
        "even-q-1",
    ]  # first all trials, of both scenarios


def test_forced_ones_are_replaced(here):
    study_runner.run_study("two", "paper", "a", jobs=2)
    settings = ["stop.rounds=2"]
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        study_runner.run_study("two", "paper", "a", settings=settings, jobs=2)
    study_runner.run_study("two", "paper", "a", settings=settings, force=True, jobs=2)
    study_runner.run_study("two", "paper", "b", settings=settings)
    assert contents(here / "a") == contents(here / "b")


def test_what_was_measured_is_pinned(tmp_path, monkeypatch):
    """Choices are made one at a time before anything runs; each run has its own."""
    log = tmp_path / "log"
    chosen = {1: ExecutionPlan("stacked", chunk=3), 2: ExecutionPlan("workers", 2)}

    def choose(setting, sharing):
        with open(log, "a") as file:
            file.write(f"{len(list(tmp_path.glob('c/*/plan.json')))} ")
        return PlanChoice(chosen[setting.experiment.seed], "measured", True)

    monkeypatch.setattr(execution_plan, "choose_plan", choose)
    told = Told()
    potluck.compare(small(), ["fedavg"], [1, 2], tmp_path / "c", told, jobs=2)
    assert log.read_text() == "0 0 "
    pinned = [execution_plan.read_plan(tmp_path / "c" / f"fedavg-{seed}") for seed in (1, 2)]
    assert pinned == [chosen[1], ExecutionPlan("loop")]
    assert (
        "potluck: fedavg-1: computed by stacked (chunks of 3), the fastest way here (measured)" in told.said
    )
    straight = runs.run(
        small(algorithm="fedavg"), tmp_path / "one", choose=lambda _: PlanChoice(chosen[1], "")
    )
    assert straight.lines == potluck.load(tmp_path / "c" / "fedavg-1").lines


# ---------------------------------------------------------------------------------------- what goes wrong


def test_an_error_names_its_run_and_keeps_the_rest(here):
    """Seed 3 can't run: its folder's place is taken by a file, which nobody looks at before."""
    path = here / "c"
    potluck.compare(small(), ["fedavg"], [1, 2, 3], path)
    finished = contents(path / "fedavg-1")
    for seed in (2, 3):
        for file in sorted((path / f"fedavg-{seed}").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        (path / f"fedavg-{seed}").rmdir()
    (path / "fedavg-3").write_text("mine")
    with pytest.raises(ConfigError, match=r"^fedavg-3: out = .*fedavg-3'"):
        resume_comparison(path, jobs=2)
    assert contents(path / "fedavg-1") == finished
    assert not multiprocessing.active_children()
    (path / "fedavg-3").unlink()
    assert all(run.finished for run in resume_comparison(path, jobs=2).runs)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (DataError("no rows"), DataError, r"^a: no rows$"),
        (FileNotFoundError(2, "gone", "x"), OSError, r"^a: .*gone: 'x'$"),
        (KeyError("bug"), RuntimeError, r"(?s)^a: KeyError: 'bug'\n\nTraceback.*in fail"),
    ],
)
def test_errors_keep_their_kind(tmp_path, monkeypatch, error, kind, text):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(runs, "run", fail)
    missing = Missing("a", small(run={"executor": "loop"}), tmp_path / "a")
    with pytest.raises(kind, match=text):
        side_by_side.compute([missing], [{}], 2, lambda _: None, Follower())


def test_a_killed_process_is_told_and_the_others_are_stopped(tmp_path, monkeypatch):
    def work(experiment, place, tell, **_):
        if experiment.seed == 1:
            (tmp_path / "pid").write_text(str(os.getpid()))
            time.sleep(600)
        until((tmp_path / "pid").exists)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(runs, "run", work)
    asked = [
        Missing(f"run-{seed}", small(seed=seed, run={"executor": "loop"}), tmp_path) for seed in (1, 2, 3)
    ]
    told = Told()
    with pytest.raises(potluck.core.errors.PotluckError, match=r"^run-2: its process was killed by SIGKILL"):
        side_by_side.compute(asked, [{}] * 3, 2, lambda _: None, Follower(told))
    assert told.started == ["run-1", "run-2"]
    assert not alive([int((tmp_path / "pid").read_text())])


def test_workers_that_a_child_ends_say_nothing(tmp_path, monkeypatch, capfd):
    def work(experiment, place, tell, **_):
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        time.sleep(0.2)
        process.terminate()
        process.join()
        raise DataError(f"ended with {process.exitcode}")

    monkeypatch.setattr(runs, "run", work)
    missing = Missing("a", small(run={"executor": "loop"}), tmp_path / "a")
    with pytest.raises(DataError, match=r"^a: ended with 1$"):
        side_by_side.compute([missing], [{}], 2, lambda _: None, Follower())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("tells", [True, False])
def test_an_order_to_end_is_obeyed_between_events(tmp_path, monkeypatch, tells):
    """One that tells how far it is ends there, whatever it was at; only one that doesn't is interrupted."""
    monkeypatch.setattr(processes, "GRACE", 600.0 if tells else 0.2)
    place = tmp_path / "place"

    def call(tell):
        try:
            while True:
                place.write_text("within an event")
                time.sleep(0.3 if tells else 600)
                place.write_text("between events")
                tell(Progress(0, 0.0, None, 0.0))
        except KeyboardInterrupt:
            (tmp_path / "ended").write_text(place.read_text())
            raise

    children = []
    with processes.stop_on_exit(children):
        children.append(processes.Child("a", call, []))
        until(lambda: place.exists() and place.read_text() == "within an event")
    assert (tmp_path / "ended").read_text() == ("between events" if tells else "within an event")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_ones_go_on_where_they_were(here, how):
    """Ctrl-C, as on a terminal to all processes, and kill -9 to the parent alone: nobody is left behind."""
    (here / "studies" / "two.py").write_text(STUDY.replace("ROUNDS", "200"))
    arguments = ["study", "two", "--scale", "paper", "--out", "a", "--no-page", "--jobs", "2"]
    process = started(*arguments)
    try:
        begun = [here / "a" / "even" / "plain-1", here / "a" / "even" / "q-1"]
        until(lambda: all(list(p.glob("snapshots/*.snapshot")) for p in begun) or process.poll())
        pids = children(process.pid)
        assert len(pids) == 2
        (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    until(lambda: not alive(pids))
    assert "Traceback" not in err
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert err.endswith("potluck: interrupted; go on with: the same command\n")
    until(lambda: all((path / "sessions.jsonl").exists() for path in begun))  # an orderly end
    marks = [(path / "experiment.toml").stat().st_ino for path in begun]
    assert not any((path / "summary.json").exists() for path in begun)
    results = study_runner.run_study("two", "paper", "a", Told(), jobs=2)
    assert [(path / "experiment.toml").stat().st_ino for path in begun] == marks  # resumed, not begun again
    again = results.runs["even", "plain"][0]
    assert again.lines == potluck.run(again.experiment).lines


# -------------------------------------------------------------------------------------------- command line


def said(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    shown = capsys.readouterr()
    return ended.value.code or 0, shown.out, shown.err


def test_commands_say_how_far_they_are(here, capsys):
    asked = small(compare=["fedavg", "fedprox"], run={"executor": "loop"})
    (here / "small.toml").write_text(asked.to_toml())
    code, _, err = said(capsys, "compare", "small.toml", "--seeds", "1,2", "--jobs", "2", "--tune")
    assert code == 0
    lines = err.splitlines()
    assert lines.count("fedprox-2: started") == 1
    assert any(line.startswith("fedavg-lr0.3-1: accuracy ") for line in lines)
    assert "; 1 run left, about " in err
    assert "left" not in lines[-1]
    assert said(capsys, "tune", "small.toml", "-j", "auto")[0] == 0
    code, out, err = said(capsys, "study", "two", "--jobs", "2", "--no-page", "--json", "-q")
    assert (code, err) == (0, "")
    assert json.loads(out)["study"] == "two"
    assert said(capsys, "resume", "runs/small", "--jobs", "2", "-q")[0] == 0


def test_one_a_core_is_the_default(here, capsys, monkeypatch):
    asked = small(compare=["fedavg", "fedprox"], run={"executor": "loop"})
    (here / "small.toml").write_text(asked.to_toml())
    for cores in (1, 2):
        monkeypatch.setattr(hardware, "count_cores", lambda cores=cores: cores)
        for command in (["compare", "small.toml", "--force"], ["tune", "small.toml", "--force"]):
            code, _, err = said(capsys, *command, "--out", f"{command[0]}-{cores}")
            assert code == 0
            assert (": started" in err) == (cores == 2)
        code, _, err = said(capsys, "study", "two", "--no-page", "--out", f"study-{cores}")
        assert code == 0
        assert (": started" in err) == (cores == 2)
    for run in ("fedavg-1", "fedprox-1"):
        for file in ("summary.json", "devices.json"):
            (here / "compare-2" / run / file).unlink()
    code, _, err = said(capsys, "resume", "compare-2")
    assert code == 0
    assert err.count(": started") == 2


def test_a_single_run_stays_in_this_process(here, capsys, monkeypatch):
    monkeypatch.setattr(hardware, "count_cores", lambda: 2)
    (here / "small.toml").write_text(small(run={"executor": "loop"}).to_toml())
    monkeypatch.setattr(side_by_side, "compute", None)
    code, _, err = said(capsys, "compare", "small.toml", "--out", "a")
    assert code == 0
    assert "fedavg-1: 100%  round 3" in err
    assert said(capsys, "resume", "a/fedavg-1")[0] == 0
    assert said(capsys, "resume", "a/fedavg-1", "--jobs", "auto")[0] == 0


def asked_for(executor="auto", device="cpu", count=2):
    one = small(run={"executor": executor, "device": device})
    return [Missing(f"a-{seed}", one, Path("a")) for seed in range(count)]


def test_what_uses_all_of_the_machine_runs_alone_unless_told(monkeypatch):
    monkeypatch.setattr(hardware, "count_cores", lambda: 8)
    assert side_by_side.limit_jobs(0, asked_for()) == (8, "")
    assert side_by_side.limit_jobs(0, asked_for(device="cuda")) == (1, "they share the GPU")
    assert side_by_side.limit_jobs(0, asked_for("workers")) == (1, "each has workers of its own")
    assert side_by_side.limit_jobs(3, asked_for("workers", "cuda")) == (3, "")
    assert side_by_side.limit_jobs(0, asked_for(device="cuda"), cards=4)[0] == 4
    monkeypatch.setattr(hardware, "count_cores", lambda: 1)
    assert side_by_side.limit_jobs(0, asked_for("workers")) == (1, "")
    assert side_by_side.limit_jobs(0, asked_for(device="cuda"), cards=4)[0] == 4


def test_workers_that_were_measured_count(monkeypatch):
    """On 8 cores: two runs are left alone with 8 workers each (4 x 2 <= 8), three train in loops."""
    monkeypatch.setattr(hardware, "count_cores", lambda: 8)
    why = "each is fastest with workers of its own"
    workers, loop = PlanChoice(ExecutionPlan("workers", 8), ""), PlanChoice(ExecutionPlan("loop"), "")
    assert side_by_side.limit_jobs_beside_workers([{"": workers}] * 2) == (1, why)
    assert side_by_side.limit_jobs_beside_workers([{"": workers}] * 3) == (8, "")
    assert side_by_side.limit_jobs_beside_workers([{"": loop}, {}]) == (8, "")
    for workers, jobs in (8, 1), (4, 2):
        stacked = {"": PlanChoice(ExecutionPlan("stacked", workers), "")}
        assert side_by_side.limit_jobs_beside_workers([stacked] * 9) == (jobs, why)


def test_why_runs_are_alone_is_told_once(here, capsys, monkeypatch):
    monkeypatch.setattr(hardware, "count_cores", lambda: 2)
    asked = small(run={"executor": "workers", "workers": 2})
    (here / "small.toml").write_text(asked.to_toml())
    code, _, err = said(capsys, "tune", "small.toml")
    assert code == 0
    told = "potluck: one run at a time, since each has workers of its own; --jobs N: N at a time"
    assert err.splitlines().count(told) == 1
    assert ": started" not in err


@pytest.mark.parametrize("jobs", ["-1", "two", "1.5", ""])
def test_wrong_numbers_are_refused(here, capsys, jobs):
    (here / "small.toml").write_text(small().to_toml())
    for command in (["study", "two"], ["tune", "small.toml"], ["compare", "small.toml"]):
        code, _, err = said(capsys, *command, f"--jobs={jobs}")
        assert code == 2
        assert (
            err
            == f"potluck: --jobs {jobs!r}: write how many runs are computed at a time, such as 4, or auto\n"
        )
    assert not (here / "runs").exists()


def test_python_is_told_too(here, capsys):
    for call in (potluck.compare, tune):
        with pytest.raises(ConfigError, match="jobs = 2: runs side by side need a folder"):
            call(small(), jobs=2)
        with pytest.raises(ConfigError, match="jobs = -1: write how many"):
            call(small(), jobs=-1)
    potluck.run(small(), "a")
    assert "--jobs 2: a is no comparison" in said(capsys, "resume", "a", "--jobs", "2")[2]
