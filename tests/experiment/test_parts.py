"""A command's runs in parts, computed by several processes into one folder: as if by one."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from apart import SMALL, STUDY, alive, contents, until
from campaign._potluck import call, fork

from potluck.core.errors import ConfigError
from potluck.experiment import Experiment, folder
from potluck.experiment.launch.part import Part, read_part
from potluck.experiment.launch.spread import read_spread
from potluck.experiment.tune import fill_tune
from potluck.experiment.tune_stages import count_own_trials, count_trials

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="forks of what has trained, beside a GPU"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "two.py").write_text(STUDY.replace("ROUNDS", "4"))
    small = Experiment(**{**SMALL, "run": {"executor": "loop"}, "compare": ["fedavg", "fedprox"]})
    (tmp_path / "small.toml").write_text(small.to_toml())
    return tmp_path


def find_sessions(folder):
    """How often each run was begun or gone on with."""
    return {
        str(path.parent.relative_to(folder)): len(path.read_text().splitlines())
        for path in folder.rglob("sessions.jsonl")
    }


def find_table(text):
    return [line for line in text.splitlines() if line[:1] in "|│" and line]


def list_runs(folder):
    return {str(path.parent.relative_to(folder)) for path in folder.rglob("summary.json")}


# --------------------------------------------------------------------------------------------- which is whose


def test_runs_are_dealt_by_their_places():
    parts = [Part(number, 3) for number in (1, 2, 3)]
    assert [[turn for turn in range(8) if part.has(turn)] for part in parts] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert [part.count(8) for part in parts] == [3, 3, 2]
    assert [str(part) for part in parts] == ["1/3", "2/3", "3/3"]
    assert read_part("1/1") == Part(1, 1)


@pytest.mark.parametrize(
    ("refine", "of", "own"),
    [
        (1, 1, [6]),
        (1, 3, [3, 2, 1]),  # of the grids' 4 trials 2, 1, 1, and one more for each part that has a method
        (1, 5, [2, 2, 1, 1, 0]),
        (0, 4, [1, 1, 1, 1]),  # two values each, so no third trial
    ],
)
def test_trials_are_counted_as_they_are_dealt(refine, of, own):
    lone = Experiment(**{**SMALL, "tune": {**SMALL["tune"], "trials": 3, "refine": refine}})
    methods = {name: lone.with_values(algorithm=name) for name in ("fedavg", "fedprox")}
    table = fill_tune(lone, list(methods)).model_copy(update={"seeds": [1]})
    parts = [Part(number, of) for number in range(1, of + 1)]
    together = [count_own_trials([methods], table, part) for part in parts]
    by_search = [count_own_trials([{n: m} for n, m in methods.items()], table, part) for part in parts]
    assert together == by_search == own
    assert sum(own) == count_trials(methods, table)


@pytest.mark.parametrize("part", ["0/4", "5/4", "a/b", "4", "1/0", "-1/2", "1/2/3", "", "1 / 2", "٢/٣"])
def test_wrong_parts_are_refused(here, part):
    for command in (["study", "two"], ["tune", "small.toml"], ["compare", "small.toml"]):
        code, out, err = call(*command, f"--part={part}", "--out", "a")
        assert (code, out) == (2, "")
        assert err == f"potluck: part = {part!r}: write I/N, the I-th of N parts, such as 2/8\n"
    assert not (here / "a").exists()


def test_parts_need_one_folder_and_replace_nothing(here):
    for command in (["study", "two"], ["tune", "small.toml"], ["compare", "small.toml"]):
        code, _, err = call(*command, "--part", "1/2")
        assert (code, err) == (
            2,
            "potluck: --part 1/2: all parts write into one folder; name it with --out\n",
        )
        code, _, err = call(*command, "--part", "1/2", "--out", "a", "--force")
        assert (code, err) == (2, "potluck: --part 1/2: parts go on with what is there; leave --force out\n")
    assert not (here / "runs").exists()
    with pytest.raises(ConfigError, match="part = '1/2': all parts write into one folder"):
        read_spread(1, None, part="1/2")
    with pytest.raises(ConfigError, match="part = '1/2': is for machines that nobody else gives runs"):
        read_spread(1, here, "ray", part="1/2")


# ------------------------------------------------------------------------------------ one after another


def test_parts_of_a_study_say_what_they_wait_for(here):
    """Its 8 trials are dealt 3, 3, 2; whoever comes last finds all of them, and may begin with its runs."""
    wanted = call("study", "two", "--out", "one", "--no-page")
    assert wanted.code == 0

    def compute(part):
        said = call("study", "two", "--out", "a", "--part", part)
        assert said.out == ""
        return said.code, said.err.splitlines()[-1].removeprefix("potluck: ")

    again = "run those, then this again"
    assert compute("1/3") == (3, f"part 1/3: 5 of 8 trials are missing (parts 2, 3): {again}")
    assert compute("1/3") == (3, f"part 1/3: 5 of 8 trials are missing (parts 2, 3): {again}")
    assert compute("2/3") == (3, f"part 2/3: 2 of 8 trials are missing (part 3): {again}")
    done = "after all parts, the same without --part tells of them"
    assert compute("3/3") == (0, f"part 3/3 is done (4 runs computed now); {done}")
    assert {run for run in list_runs(here / "a") if "/tune/" not in run} == {"even/plain-2", "skewed/q-1"}
    assert compute("2/3") == (0, f"part 2/3 is done (3 runs computed now); {done}")
    assert compute("2/3") == (0, f"part 2/3 is done (0 runs computed now); {done}")
    assert compute("1/3") == (0, f"part 1/3 is done (3 runs computed now); {done}")
    assert not list((here / "a").rglob("tune.json"))
    assert not (here / "a" / "study.json").exists()
    told = call("study", "two", "--out", "a", "--no-page")
    assert find_table(told.out) == find_table(wanted.out) != []
    assert contents(here / "a") == contents(here / "one")
    assert set(find_sessions(here / "a").values()) == {1}
    assert not list(here.rglob(".computing"))


def test_parts_of_a_tuning_go_on_with_methods_of_their_own(here):
    """Of 6 trials 4 are of the grid, dealt in turn; what follows around the best is one part's a method."""
    (here / "small.toml").write_text(
        (here / "small.toml")
        .read_text()
        .replace("trials = 2", "trials = 3")
        .replace("refine = 0", "refine = 1")
    )
    call("tune", "small.toml", "--out", "one")
    assert len(list_runs(here / "one")) == 6
    code, _, err = call("tune", "small.toml", "--out", "a", "--part", "1/2")
    assert (code, err.splitlines()[-1]) == (
        3,
        "potluck: part 1/2: 3 of 6 trials are missing (part 2): run those, then this again",
    )
    assert call("tune", "small.toml", "--out", "a", "--part", "2/2").code == 0
    assert len(list_runs(here / "a")) == 5
    assert call("tune", "small.toml", "--out", "a", "--part", "1/2").code == 0
    assert list_runs(here / "a") == list_runs(here / "one")
    assert call("tune", "small.toml", "--out", "a").err == ""
    assert contents(here / "a") == contents(here / "one")


def test_a_trial_that_broke_off_is_not_waited_for(here):
    """FedAdam can't take in the huge numbers of nine devices; each part takes that for a result."""
    breaking = {
        "fleet": {"attack": {"kind": "malformed", "what": "huge", "share": 0.9}},
        "run": {"executor": "loop"},
        "stop": {"rounds": 6},
        "compare": ["fedadam", "fedavg"],
        "data": {"source": "synthetic", "rows": 300, "clients": 10},
    }
    (here / "small.toml").write_text(Experiment(**{**SMALL, **breaking}).to_toml())
    command = ["tune", "small.toml", "--set", "tune.refine=1", "--set", "tune.trials=3"]
    call(*command, "--out", "one")
    codes = [call(*command, "--out", "a", "--part", f"{part}/2").code for part in (1, 2, 1)]
    assert codes == [3, 0, 0]
    twice = [run for run, times in find_sessions(here / "a").items() if times > 1]
    assert twice == ["fedadam-lr0.0001-1"]  # its own: it is tried again, as ever
    call(*command, "--out", "a")
    assert contents(here / "a") == contents(here / "one")
    tuned = json.loads((here / "a" / "tune.json").read_text())["results"]
    assert [trial["mean"] for trial in tuned["fedadam"]] == [0.0, 0.0, 0.0]


def test_parts_of_a_comparison(here):
    command = ["compare", "small.toml", "--seeds", "1,2", "--tune"]
    wanted = call(*command, "--out", "one")
    codes = [call(*command, "--out", "a", "--part", f"{part}/2").code for part in (1, 2, 1)]
    assert codes == [3, 0, 0]
    assert not (here / "a" / "report.html").exists()
    told = call(*command, "--out", "a")
    assert told.code == 0
    assert find_table(told.out) == find_table(wanted.out) != []
    assert contents(here / "a") == contents(here / "one")
    assert set(find_sessions(here / "a").values()) == {1}
    assert (here / "a" / "report.html").exists()
    for other, told in (
        (["--seeds", "1,3"], "seeds = [1, 2] there, [1, 3] here"),
        (["--part", "1/2", "--set", "stop.rounds=2"], "stop.rounds = 3 there, 2 here"),
    ):
        code, _, err = call(*command, *other, "--out", "a")
        assert code == 2
        assert f"out = 'a': was made with other settings ({told}); name another folder" in err


# ------------------------------------------------------------------------------------------------- at once


@pytest.mark.parametrize("step", ["claim", "create"])
def test_another_part_may_begin_a_comparison_between_any_two_looks(here, monkeypatch, step):
    command = ["compare", "small.toml", "--seeds", "1,2", "--out", "a"]
    do = getattr(folder, step)

    def do_later(*arguments, **settings):
        with monkeypatch.context() as other:
            other.setattr(folder, step, do)
            assert call(*command, "--part", "2/2").code == 0
        monkeypatch.setattr(folder, step, do)
        do(*arguments, **settings)

    monkeypatch.setattr(folder, step, do_later)
    code, _, err = call(*command, "--part", "1/2")
    assert code == 0, err
    assert len(list_runs(here / "a")) == 4


def start_parts(count, *command):
    return {part: fork(f"said-{part}", *command, "--part", f"{part}/{count}") for part in range(1, count + 1)}


def wait_for(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_parts_may_be_started_together_and_one_be_killed(here):
    """The killed one goes on from its snapshot when it is started again, at once."""
    call("study", "two", "--scale", "paper", "--out", "one", "--no-page", "--set", "stop.rounds=60")
    command = ["study", "two", "--scale", "paper", "--out", "a", "--set", "stop.rounds=60", "--jobs", "1"]
    parts = start_parts(3, *command)
    begun = here / "a" / "even" / "plain-1"
    until(lambda: list(begun.glob("snapshots/*.snapshot")))
    os.kill(parts[1], signal.SIGKILL)
    assert [wait_for(process) for process in parts.values()] == [-signal.SIGKILL, 0, 0]
    assert not (begun / "summary.json").exists()
    mark = (begun / "experiment.toml").stat().st_ino
    code, _, err = call(*command, "--part", "1/3")
    assert code == 0, err
    assert (begun / "experiment.toml").stat().st_ino == mark
    assert call(*command, "--no-page").code == 0
    assert contents(here / "a") == contents(here / "one")
    assert set(find_sessions(here / "a").values()) == {1}  # the killed one wrote none
    assert not alive(parts.values())


def test_the_same_part_twice_is_refused(here):
    command = ["study", "two", "--scale", "paper", "--out", "a", "--set", "stop.rounds=200"]
    first = fork("said", *command, "--part", "1/4")
    try:
        until(lambda: (here / "a" / "even" / "plain-1" / ".computing").exists())
        code, _, err = call(*command, "--part", "1/4")
        assert code == 2
        assert f"another process is computing this run (process {first} on " in err
    finally:
        os.kill(first, signal.SIGKILL)
        wait_for(first)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_a_batch_system_ends_can_go_on_elsewhere_at_once(here, jobs):
    command = ["study", "two", "--scale", "paper", "--out", "a", "--set", "stop.rounds=200", "--jobs", jobs]
    process = fork("said", *command, "--part", "1/2")
    until(lambda: list((here / "a" / "even" / "plain-1").glob("snapshots/*.snapshot")))
    os.kill(process, signal.SIGTERM)
    assert wait_for(process) == 130
    assert Path("said").read_text().endswith("potluck: interrupted; go on with: the same command\n")
    assert not list(here.rglob(".computing"))
    assert find_sessions(here / "a")["even/plain-1"] == 1


def test_a_comparison_is_begun_by_whoever_is_first(here):
    parts = start_parts(3, "compare", "small.toml", "--seeds", "1,2", "--out", "a")
    assert [wait_for(process) for process in parts.values()] == [0, 0, 0], [
        Path(f"said-{part}").read_text() for part in parts
    ]
    call("compare", "small.toml", "--seeds", "1,2", "--out", "one")
    call("compare", "small.toml", "--seeds", "1,2", "--out", "a")
    assert contents(here / "a") == contents(here / "one")
    assert not list(here.glob(".*.partial"))
