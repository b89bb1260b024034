import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from potluck.cli import main, tables
from potluck.engine.schedule import Progress
from potluck.experiment.screen import Screen, _Remaining

ROOT = str(Path(__file__).resolve().parents[2])
SMALL = """
name = "small"
compare = ["fedavg", "fedasync"]
[data]
source = "synthetic"
rows = 400
dimension = 8
classes = 4
clients = 8
[model]
name = "linear"
[stop]
rounds = 4
[run]
executor = "loop"
[algorithms.fedavg]
clients = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory with an experiment in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def potluck(here, capsys):
    """Runs a command in this process: exit code, stdout, stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return call


def test_run_show_list(potluck, here):
    code, out, err = potluck("run", "small.toml")
    assert code == 0
    assert "fedavg on synthetic, seed 1" in out
    assert re.search(r"fedavg-1: +\d+%  round \d+, .* of virtual time, accuracy [\d.]+ %", err)
    assert (here / "runs" / "small-fedavg-1" / "summary.json").exists()

    code, out, _ = potluck("show", "runs/small-fedavg-1")
    assert code == 0
    assert "virtual time" in out
    code, out, _ = potluck("show", "runs/small-fedavg-1", "--json")
    assert json.loads(out)["rounds"] == 4
    code, out, _ = potluck("list")
    assert re.search(r"runs/small-fedavg-1 +fedavg +1 +finished +[\d.]+ %", out)
    code, out, _ = potluck("list", "runs", "--json")
    assert [line["state"] for line in json.loads(out)] == ["finished"]
    code, out, err = potluck("resume", "runs/small-fedavg-1")
    assert code == 0
    assert "finished already" in err


def test_json_is_all_there_is_on_stdout(potluck):
    code, out, _ = potluck("run", "small.toml", "--json", "--seed", 7, "--algorithm", "FedProx")
    assert code == 0
    summary = json.loads(out)
    assert (summary["seed"], summary["algorithm"]) == (7, "fedprox")
    keys = (
        "accuracy_mean accuracy_worst10 accuracy_best10 accuracy_variance global_accuracy virtual_seconds "
        "time_to_target rounds bytes_up bytes_down device_seconds wall_seconds participants lost "
        "view name finished"
    )
    assert set(keys.split()) <= summary.keys()


def test_quiet_says_nothing(potluck):
    assert potluck("run", "small.toml", "--quiet") == (0, "", "")
    assert potluck("compare", "small.toml", "--quiet", "--out", "c") == (0, "", "")


def test_settings_reach_the_run(potluck, here):
    code, _, _ = potluck(
        "run", "small.toml", "--set", "stop.rounds=2", "--set", "train.lr=0.5", "--out", "x", "-q"
    )
    assert code == 0
    assert "lr = 0.5" in (here / "x" / "experiment.toml").read_text()
    assert json.loads((here / "x" / "summary.json").read_text())["rounds"] == 2


def test_a_run_can_be_repeated_from_its_folder(potluck, here):
    potluck("run", "small.toml", "--out", "a", "-q")
    assert potluck("run", "a/experiment.toml", "--out", "b", "-q")[0] == 0
    assert (here / "a" / "records.jsonl").read_bytes() == (here / "b" / "records.jsonl").read_bytes()


def test_compare(potluck, here):
    code, out, _ = potluck("compare", "small.toml", "--seeds", "1,2", "--set", "evaluate.target=0.3")
    assert code == 0
    assert "mean of 2 seeds" in out
    assert "time to 30 %" in out
    assert "report: runs/small/report.html" in out
    assert sorted(p.name for p in (here / "runs" / "small").iterdir() if p.is_dir()) == [
        "fedasync-1",
        "fedasync-2",
        "fedavg-1",
        "fedavg-2",
    ]
    code, out, _ = potluck("show", "runs/small", "--json")
    told = json.loads(out)
    assert [row["algorithm"] for row in told["algorithms"]] == ["fedavg", "fedasync"]
    assert told["algorithms"][0]["speed_up"] == 1.0
    assert potluck("compare", "small.toml", "--algorithms", "fedprox", "--force", "-q")[0] == 0
    assert not (here / "runs" / "small" / "fedavg-1").exists()


def test_a_comparison_is_resumed_where_it_was(potluck, here):
    potluck("compare", "small.toml", "-q")
    done = (here / "runs" / "small" / "fedavg-1" / "summary.json").read_text()
    half = here / "runs" / "small" / "fedasync-1"
    (half / "summary.json").unlink()
    (here / "runs" / "small" / "report.html").unlink()
    assert potluck("show", "runs/small")[0] == 0
    assert potluck("resume", "runs/small")[0] == 0
    assert (half / "summary.json").exists()
    assert (here / "runs" / "small" / "report.html").exists()
    assert (here / "runs" / "small" / "fedavg-1" / "summary.json").read_text() == done


def test_algorithms(potluck):
    code, out, _ = potluck("algorithms")
    assert code == 0
    assert "fedavg" in out
    assert "McMahan" in out
    code, out, _ = potluck("algorithms", "FedAvg")
    assert "[algorithms.fedavg]" in out
    assert re.search(r"overcommit +float +1.0 +invite clients x overcommit", out)
    code, out, _ = potluck("algorithms", "fedavg", "--json")
    assert json.loads(out)["parameters"][0]["name"] == "clients"


def test_tables_of_settings_are_listed_key_by_key(potluck):
    _, out, _ = potluck("algorithms", "fedrac")
    assert re.search(r"clustering +table +which devices are alike", out)
    assert re.search(r"clustering.smallest +int +5 +clusters with fewer", out)
    _, out, _ = potluck("algorithms", "fedrac", "--json")
    told = {p["name"]: p for p in json.loads(out)["parameters"]}
    assert told["landscape.start"]["default"] == "0.0064"
    assert told["distillation.a"]["meaning"] == "how much labels count beside what the teacher says"


def test_a_terminal_sees_one_live_line():
    screen, text = Screen(quiet=False), io.StringIO()
    screen.console = Console(file=text, force_terminal=True, width=80, color_system=None)
    with screen("fedavg-1") as watch:
        for done in (0.1, 0.5, 1.0):
            watch(Progress(int(done * 10), done * 100, done, done))
    assert re.search(r"fedavg-1 .*━━━ round 10, 1 min 40 s virtual, 100.0 %, took ", text.getvalue())


def test_a_terminal_sees_a_live_line_for_each_run_side_by_side():
    screen, text = Screen(quiet=False), io.StringIO()
    screen.console = Console(file=text, force_terminal=True, width=80, color_system=None)
    with screen.follow_many():
        for name in ("fedavg-1", "fedbuff-1"):
            screen.on_start(name)
        screen.on_progress("fedbuff-1", Progress(5, 100.0, 0.5, 0.5))
        both = text.getvalue().rpartition("fedavg-1")[2]
        assert re.search(r" getting ready *\s+fedbuff-1 .*━ +round 5, 1 min 40 s virtual, 50.0 %,", both)
        screen.on_end("fedavg-1", 0.9, 3.0, 1, 4.0)
        last = text.getvalue().rpartition("fedavg-1: accuracy 90.0 %, took 3.0 s; 1 run left, about 4.0 s\n")
        assert last[1]
        screen.on_progress("fedbuff-1", Progress(10, 200.0, 0.5, 1.0))
        screen.on_end("fedbuff-1", 0.5, 4.0, 0, None)
    assert "fedavg-1" not in text.getvalue().rpartition("round 10,")[2]
    assert "started" not in text.getvalue()


def test_elsewhere_runs_side_by_side_tell_where_they_are_now_and_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    screen = Screen(quiet=False)
    with screen.follow_many():
        screen.on_start("fedavg-1")
        for second in (10.0, 29.0, 31.0, 45.0):
            now[0] = second
            screen.on_progress("fedavg-1", Progress(1, second, 0.5, second / 100))
        screen.on_end("fedavg-1", 0.5, 60.0, 0, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fedavg-1: started"
    assert lines[1].startswith("fedavg-1:  31%  round 1, 31 s of virtual time, accuracy 50.0 %, ")
    assert lines[2:] == ["fedavg-1: accuracy 50.0 %, took 1 min"]


def test_time_left_is_judged_by_this_session(monkeypatch):
    clock = iter([0.0, 10.0, 30.0, 50.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    remaining = _Remaining()
    assert remaining(0.5) == "no estimate yet"  # resumed halfway, after 10 s of getting ready
    assert remaining(0.75) == "20 s left"  # a quarter took 20 s
    assert remaining(1.0) == "took 50 s"


def test_narrow_terminals_see_fewer_columns(potluck, monkeypatch):
    potluck("compare", "small.toml", "-q")
    monkeypatch.setattr(tables.console, "width", 60)
    out = potluck("show", "runs/small")[1]
    assert "accuracy" in out
    assert "device time" not in out
    assert max(map(len, out.splitlines())) <= 60


@pytest.mark.parametrize(
    "command", ["", "run", "resume", "compare", "report", "algorithms", "list", "show", "watch"]
)
def test_help_teaches_by_example(potluck, command):
    code, out, _ = potluck(*[command] * bool(command), "--help")
    assert code == 0
    assert re.search(rf"(Example|Begin with): potluck {command or 'compare'} ", out)


def test_version(potluck):
    assert re.fullmatch(r"potluck \d+\.\d+\.\d+\n", potluck("--version")[1])


# ---------------------------------------------------------------------------------------------- bad input

RUN = ["run", "small.toml"]
BAD = [
    (["run", "none.toml"], r"none.toml: no such file"),
    (["run", "."], r"\.: a folder, not an experiment's TOML file; name a file"),
    ([*RUN, "--algorithm", "fedavgg"], r"algorithm = 'fedavgg': no such algorithm; did you mean 'fedavg'\?"),
    ([*RUN, "--set", "data.clinets=3"], r"--set: data.clinets = 3: no such key; did you mean 'clients'\?"),
    ([*RUN, "--set", "data.clients=3.5"], r"data.clients = 3.5: .*integer"),
    ([*RUN, "--set", "data.clients"], r"--set 'data.clients': write key=value"),
    ([*RUN, "--set", "data.clients=399"], r"small.toml: data.clients = 399: .*"),
    (
        [*RUN, "--set", "data.partition=dirichlt"],
        r"data.partition = 'dirichlt': .* did you mean 'dirichlet'\?",
    ),
    (
        [*RUN, "--set", "data.partition=by_user"],
        r"small.toml: by_user: synthetic doesn't say who wrote its rows",
    ),
    ([*RUN, "--set", "data.source=digit"], r"data.source = 'digit': no such source; did you mean 'digits'\?"),
    ([*RUN, "--set", "data.path=x.npz"], r"small.toml: data.path: synthetic has no such option"),
    ([*RUN, "--set", "data.alpha=0"], r"data.alpha = 0: should be greater than 0"),
    ([*RUN, "--set", "model.name=mpl"], r"small.toml: .*'mpl'.*did you mean 'mlp'\?"),
    ([*RUN, "--set", "model.name=lenet5"], r"small.toml: model 'lenet5' needs images"),
    ([*RUN, "--set", "model.depth=2"], r"small.toml: model 'linear' can't change its depth"),
    (
        [*RUN, "--set", "fleet.compute_spread=0.5"],
        r"fleet.compute_spread = 0.5: should be greater than or equal to 1",
    ),
    (
        [*RUN, "--algorithm", "shufflefl"],
        r"small.toml: algorithm = 'shufflefl': needs users .* set fleet.users, or data.users",
    ),
    (
        ["compare", "small.toml", "--algorithms", "fedavg,hierfl"],
        r"small.toml: algorithm = 'hierfl': needs edges .*; set fleet.edges, or take another algorithm",
    ),
    *(
        ([*RUN, "--set", f"algorithms.{name}.clients=0"], rf"small.toml: algorithms.{name}.clients = 0: must")
        for name in ("fedavg", "fedprox", "scaffold", "auxo", "hierfl", "fedasync")
    ),
    ([*RUN, "--set", "fleet.edges=9"], r"small.toml: fleet.edges = 9: at most 8"),
    ([*RUN, "--set", "fleet.up=1e6"], r"small.toml: fleet.up: 'mobile' has no such option"),
    ([*RUN, "--set", "fleet.availability=sometimes"], r"fleet.availability = 'sometimes': .* always, on_off"),
    ([*RUN, "--set", "train.lr=-1"], r"train.lr = -1: should be greater than 0"),
    ([*RUN, "--set", "stop.rounds=0"], r"stop.rounds = 0: should be greater than or equal to 1"),
    (
        [*RUN, "--set", "run.executor=gpu"],
        r"run.executor = 'gpu': should be one of auto, loop, workers, stacked",
    ),
    (
        [*RUN, "--set", "algorithms.fedavg.cleints=3"],
        r"small.toml: algorithms.fedavg.cleints = 3: .*'clients'\?",
    ),
    (
        [*RUN, "--set", "algorithms.fedasync.alpha=big"],
        r"small.toml: algorithms.fedasync.alpha = 'big': .*number",
    ),
    ([*RUN, "--set", "algorithms.fedavgg.clients=3"], r"\[algorithms.fedavgg\]: .* did you mean 'fedavg'\?"),
    (
        [*RUN, "--set", "algorithms.fedavg.train.lrr=3"],
        r"algorithms.fedavg.train.lrr = 3: .* did you mean 'lr'\?",
    ),
    (
        [*RUN, "--set", "algorithm=fedrac", "--set", "algorithms.fedrac.time.kappa=1.5"],
        r"small.toml: algorithms.fedrac.time.kappa = 1.5: must be above 0 and below 1",
    ),
    (
        [*RUN, "--set", "algorithm=auxo", "--set", "algorithms.auxo.inner={kind='fedprox', mu=-1}"],
        r"small.toml: algorithms.auxo.inner.mu = -1.0: must be 0 or more",
    ),
    (
        [*RUN, "--set", "algorithm=fedrac", "--set", "algorithms.fedrac.clustering.k=0"],
        r"small.toml: algorithms.fedrac.clustering.k = 0: must be at least 1",
    ),
    (
        [*RUN, "--set", "algorithms.fedrac.gamma=2"],
        r"algorithms.fedrac.gamma = 2: .*; known: admission, by_class,",
    ),
    ([*RUN, "--set", "run.dtype=int8"], r"run.dtype = 'int8': should be one of float32, float64$"),
    (["report", ".", "--csv", "small.toml"], r"--csv small.toml: a file; name a folder"),
    (["report", ".", "--out", "."], r"--out \.: a folder; name a file, such as report.html"),
    ([*RUN, "--seed", "-1"], r"seed = -1: should be greater than or equal to 0"),
    ([*RUN, "--out", "small.toml"], r"out = 'small.toml': exists already"),
    ([*RUN, "--out", "small.toml/x"], r"out = 'small.toml/x': can't be written"),
    ([*RUN, "--out", ".", "--force"], r"out = '.': holds no experiment.toml, so it isn't a run"),
    (["compare", "small.toml", "--algorithms", "fedavg,none"], r"compare = 'none': no such algorithm"),
    (
        ["compare", "small.toml", "--algorithms", "fedavg,,fedprox"],
        r"--algorithms 'fedavg,,fedprox': write names",
    ),
    (["compare", "small.toml", "--seeds", "1,x"], r"--seeds '1,x': write whole numbers"),
    (["compare", "small.toml", "--seeds", "1,1"], r"seeds = \[1, 1\]: 1 is named twice"),
    (["resume", "none"], r"none: no such folder"),
    (["resume", "."], r"\.: not the folder of a run"),
    (["show", "none"], r"none: no such folder"),
    (["list", "none"], r"none: no such folder"),
    (["algorithms", "fedprx"], r"algorithm = 'fedprx': no such algorithm; did you mean 'fedprox'\?"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=[" ".join(arguments[-2:]) for arguments, _ in BAD]
)
def test_bad_input_is_one_line_and_leaves_nothing(potluck, here, arguments, message):
    code, out, err = potluck(*arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"potluck: .*{message}.*\n", err), err
    assert [path.name for path in here.iterdir()] == ["small.toml"]


FILES = [
    ("name = ", r"bad.toml, line 1, column \d+: not valid TOML: Invalid value"),
    ("a = 1\na = 2", r"bad.toml, line 2, column \d+: not valid TOML: Cannot overwrite a value"),
    ("[data", r"bad.toml, .*: not valid TOML: "),
    (b"name = '\xff'", r"bad.toml: byte 8 is no UTF-8"),
    (b"\xef\xbb\xbfname = 3", r"bad.toml: name = 3: should be"),  # a byte order mark is no error
    ("[log]\nto = 'csv'", r'bad.toml: log.to = \'csv\': should be a list, such as \["csv"\]'),
    ("mode = 'published'", r"bad.toml: mode = 'published': no such key; did you mean 'algorithms.NAME.mode'"),
    ("lr = 0.1", r"bad.toml: lr = 0.1: no such key; did you mean 'train.lr'"),
    ("[data]\nrounds = 3", r"bad.toml: data.rounds = 3: no such key; did you mean 'stop.rounds'"),
    ("[data]\nclinets = 5", r"bad.toml: data.clinets = 5: no such key; did you mean 'clients'\?"),
    ("[stop]\ntarget = 0.9", r"bad.toml: stop: give rounds, seconds or device_seconds"),
    ("algorithm = 'fedavgg'", r"bad.toml: algorithm = 'fedavgg': no such algorithm; did you mean 'fedavg'\?"),
    ("[data]\nsource = 'npz'", r"bad.toml: data.path is missing"),
    ("[data]\nsource = 'npz'\npath = 'mine.npz'", r"bad.toml: npz: no file at .*mine.npz"),
    ("[data]\nsource = 'mnist'\nroot = 'nowhere'", r"bad.toml: mnist: .*nowhere"),
]


@pytest.mark.parametrize(("text", "message"), FILES, ids=[str(text) for text, _ in FILES])
def test_bad_files_are_one_line_and_leave_nothing(potluck, here, text, message):
    (here / "bad.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    for command in ("run", "compare"):
        code, out, err = potluck(command, "bad.toml")
        assert (code, out) == (2, "")
        assert re.fullmatch(rf"potluck: {message}.*\n", err), err
    assert not (here / "runs").exists()


def test_a_picture_that_has_no_place_is_told_by_it(potluck, here):
    (here / "runs").write_text("no folder")
    code, _, err = potluck("data", "small.toml")
    assert code == 2
    assert re.fullmatch(r"potluck: runs: .*; see to it that it can be read and written\n", err)


def test_trials_go_into_no_folder_of_a_run(potluck, here):
    potluck("run", "small.toml", "--out", "a", "-q")
    before = sorted(here.rglob("*"))
    code, _, err = potluck("tune", "small.toml", "--out", "a", "-q", "--set", "tune.trials=1")
    assert (code, err) == (2, "potluck: out = 'a': holds a run or a comparison; name another\n")
    assert sorted(here.rglob("*")) == before


def test_a_run_without_a_usable_update_says_what_to_do(potluck, here):
    potluck("run", "small.toml", "--out", "a", "-q")
    assert "finite" not in potluck("show", "a")[1]
    summary = json.loads((here / "a" / "summary.json").read_text())
    (here / "a" / "summary.json").write_text(json.dumps(summary | {"lost": {"bad": 4}, "tasks": 0}))
    assert "4 bad: no update was made of finite numbers; lower train.lr" in potluck("show", "a")[1]


def test_the_terminal_breaks_the_lines_of_help(potluck, monkeypatch):
    """A docstring's own ends of lines would leave single words on lines of their own."""
    monkeypatch.setenv("COLUMNS", "90")
    told = [line.strip() for line in potluck("report", "--help")[1].splitlines()]
    begin = next(i for i, line in enumerate(told) if line.startswith("The page shows"))
    lines = told[begin : told.index("", begin)]
    assert all(len(f"{line} {after.split()[0]}") > 80 for line, after in pairwise(lines))


def test_help_says_where_settings_come_from(potluck):
    assert "search each one's settings on" in potluck("compare", "--help")[1]


def test_damaged_runs_are_told(potluck, here):
    potluck("run", "small.toml", "--out", "a", "-q")
    (here / "a" / "summary.json").write_text("{")
    assert "summary.json: damaged" in potluck("show", "a")[2]
    (here / "a" / "summary.json").unlink()
    (here / "a" / "experiment.toml").write_text("rounds")
    code, _, err = potluck("resume", "a")
    assert code == 2
    assert err.count("\n") == 1


def test_what_only_shows_when_a_run_starts_names_its_key_too(potluck):
    settings = ("fleet.edges=2", "algorithms.maverick.local_rounds=[1, 2, 3]")
    told = [part for setting in settings for part in ("--set", setting)]
    code, _, err = potluck("run", "small.toml", "--algorithm", "maverick", *told)
    assert code == 2
    assert err.startswith("potluck: small.toml: algorithms.maverick.local_rounds = (1, 2, 3): names 3 edges")


@pytest.mark.parametrize("arguments", [["run"], ["run", "small.toml", "--nonsense"], ["nonsense"]])
def test_wrong_usage_exits_with_2_too(potluck, arguments):
    assert potluck(*arguments)[0] == 2


def test_ctrl_c_says_how_to_go_on(here):
    """In a process of its own, with workers, as on a terminal: the signal goes to all of them."""
    settings = ("stop.rounds=100000", "run.executor=workers", "run.workers=2", "evaluate.rounds=1000")
    command = [sys.executable, "-m", "potluck", "run", "small.toml", "--out", "a"]
    command += [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    try:
        for _ in range(300):
            if list((here / "a" / "snapshots").glob("*.snapshot")):
                break
            time.sleep(0.1)
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err.endswith("potluck: interrupted; go on with: potluck resume a\n")
    assert "Traceback" not in err, err
    assert out == ""


def test_interrupted_while_commands_are_loaded(potluck, monkeypatch):
    class Loading(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "potluck.cli.commands", Loading("commands"))
    assert potluck("list") == (130, "", "potluck: interrupted\n")
