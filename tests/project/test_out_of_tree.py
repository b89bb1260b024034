"""Algorithms, models, sources and partitions of a user's own: from an installed package, and by --code."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from potluck.cli import main
from potluck.experiment import code
from potluck.models.registry import MODELS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "larder"
version = "1.0"

[tool.setuptools]
packages = ["larder"]

[project.entry-points."potluck.algorithms"]
doubled = "larder.doubled"
halved = "larder.doubled:halved"

[project.entry-points."potluck.models"]
wide-line = "larder.models:wide_line"

[project.entry-points."potluck.data"]
larder = "larder.rows:register"
"""

ALGORITHM = '''"""Doubled (nobody 2026, Twice the loss).

Everybody minimises twice the loss, and the server takes half of the step.
"""

from dataclasses import replace
from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Average, Objective, Train, cross_entropy, part, require, value


@value
class Twice(Objective):
    """A multiple of cross-entropy."""

    times: float = 2.0

    def loss(self, net, params, batch, held):
        data = self.times * cross_entropy(net, params, batch)
        return data, {"loss": data.detach()}


@part("select")
@value
class Lowest:
    """Those with the lowest numbers."""

    def start(self):
        return None

    def pick(self, picks, count, ctx):
        return sorted(ctx.sample(2 * count))[:count], None

    def jobs(self, local, nodes, picks):
        return [local] * len(nodes)

    def learn(self, picks, got, ctx):
        return None


def doubled(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 3,
    times: Annotated[float, "what the loss is multiplied by"] = 2.0,
) -> FedAvg:
    """FedAvg of devices that minimise a multiple of their loss."""
    require(times > 0, "times", times, "must be above 0, such as 2")
    return FedAvg(clients, replace(local, objective=Twice(times)), Lowest(), Average(1 / times))


def halved(local: Train = Train(), clients: int = 3) -> FedAvg:
    """The same with half of the loss."""
    return doubled(local, clients, 0.5)
'''

MODEL = """
from torch import nn


def wide_line(shape, classes, width=1.0):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], round(8 * width)), nn.ReLU(),
                         nn.Linear(round(8 * width), classes))
"""

ROWS = '''
import numpy as np

import potluck
from potluck.data import assemble, from_rows


def corners(root, rows=120):
    """Rows in the corners of a cube, a class each."""
    rng = np.random.default_rng(3)
    y = np.arange(rows) % 4
    x = rng.normal(size=(rows, 3)) + 2 * np.array([[0, 0, 0], [1, 0, 1], [0, 1, 1], [1, 1, 0]])[y]
    return assemble("corners", x.astype(np.float32), y)


def in_turn(pool, clients, key, cut):
    """Rows by their places, in turn."""
    return from_rows([pool.free[i::clients] for i in range(clients)], pool, key, cut)


def register():
    potluck.register_source("corners", corners)
    potluck.register_partition("in-turn", in_turn)
'''

EXPERIMENT = """
name = "larder"
algorithm = "doubled"
stop = { rounds = 4 }
data = { source = "corners", rows = 200, partition = "in-turn", clients = 8 }
model = { name = "wide-line", width = 2.0 }
run = { executor = "workers", workers = 2, snapshot_every = 0.01 }

[algorithms.doubled]
clients = 4

[algorithms.fedavg]
select = { kind = "Lowest" }
"""


STUDY = """
from potluck.experiment.study import Arm, Scale, Study

SMALL = {
    "data": {"source": "corners", "partition": "in-turn", "clients": 8},
    "model": {"name": "wide-line"},
    "stop": {"rounds": 2},
}
ARMS = [Arm("doubled", "doubled"), Arm("lowest", "fedavg", {"select": {"kind": "Lowest"}})]
SCALE = Scale(SMALL, seeds=(1,))
STUDY = Study(title="Twice", question="Does it matter?", arms=ARMS, quick=SCALE, paper=SCALE)
"""


# Forks itself for every command, so that only one process has to import torch and all else first.
WARM = """
import atexit, gc, json, os, runpy, sys, traceback
import pandas, plotly.graph_objects, scipy.optimize, sklearn.cluster, torch
import potluck.cli.commands, potluck.experiment.study_runner, potluck.report.page, potluck.advice.pilot

gc.freeze()
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(asked["cwd"])
        sys.path[:0] = asked["path"]
        sys.argv = ["potluck", *asked["command"]]
        code = 0
        try:
            runpy.run_module("potluck", run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)  # to take all modules down again would take longer than most commands
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def environment(*path):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTHON"))}
    return env | {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))), "OMP_NUM_THREADS": "1"}


def call(*command, cwd, path=(), code=0):
    """A command in a process of its own, which finds these folders before all others."""
    command = [sys.executable, "-m", *map(str, command)]
    done = subprocess.run(command, env=environment(*path), cwd=cwd, capture_output=True, text=True)
    return check(done.returncode, done.stdout, done.stderr, code)


def check(found, out, err, code):
    assert found == code, out + err
    assert code == 1 or "Traceback" not in err
    return out if code == 0 else err


class Potluck:
    """Commands of potluck, each in a fork of one process that knows nobody's code."""

    def __init__(self, process, folder):
        self.process, self.out, self.err = process, folder / "out", folder / "err"

    def __call__(self, *command, cwd, path=(), code=0):
        self.begin(*command, cwd=cwd, path=path)
        return check(self.end(), self.out.read_text(), self.err.read_text(), code)

    def begin(self, *command, cwd, path=()):
        """Start a command; gives its process's number."""
        asked = {"command": command, "cwd": cwd, "path": list(path), "out": self.out, "err": self.err}
        print(json.dumps(asked, default=str), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self):
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def potluck(tmp_path_factory):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WARM], env=environment(), **pipes) as process:
        yield Potluck(process, tmp_path_factory.mktemp("said"))
        process.stdin.close()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which somebody else's package was installed, without the network."""
    tree, place = tmp_path_factory.mktemp("larder"), tmp_path_factory.mktemp("site")
    (tree / "larder").mkdir()
    for name, text in {
        "pyproject.toml": PYPROJECT,
        "larder/__init__.py": "",
        "larder/doubled.py": ALGORITHM,
        "larder/models.py": MODEL,
        "larder/rows.py": ROWS,
    }.items():
        (tree / name).write_text(text)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    call("pip", "install", *options, "--target", place, tree, cwd=tree)
    return place


@pytest.fixture
def mine(tmp_path):
    """The same in one file."""
    register = (
        'potluck.register_algorithm("doubled", doubled)\n'
        'potluck.register_model("wide-line", wide_line)\n'
        "register()\n"
    )
    file = tmp_path / "mine.py"
    file.write_text("\n".join((ALGORITHM, MODEL, ROWS, register)))
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    return file


def records(folder):
    return (folder / "records.jsonl").read_bytes()


def test_a_package_is_found_by_its_entry_points(potluck, installed, tmp_path):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    at = {"path": [installed], "cwd": tmp_path}
    ran = json.loads(call("potluck", "run", "e.toml", "--out", "a", "--json", **at))
    assert (ran["algorithm"], ran["rounds"]) == ("doubled", 4)
    assert ran["accuracy_mean"] > 0.3  # by chance 0.25
    assert not (tmp_path / "a" / "code.json").exists()
    potluck("run", "e.toml", "--out", "b", "--set", "run.executor=loop", **at)
    assert records(tmp_path / "a") == records(tmp_path / "b")  # workers knew it all

    options = ("--algorithms", "doubled,halved,fedavg", "--jobs", "2", "--out", "both", "--json")
    compared = json.loads(potluck("compare", "e.toml", *options, **at))
    assert [row["algorithm"] for row in compared["algorithms"]] == ["doubled", "halved", "fedavg"]
    assert records(tmp_path / "both" / "doubled-1") == records(tmp_path / "a")

    described = potluck("algorithms", "doubled", **at)
    assert "Doubled (nobody 2026, Twice the loss)." in described
    assert "what the loss is multiplied by" in described
    assert "200 of shape [3], 4 classes" in potluck("data", "e.toml", **at)
    # Without the package its folders can be read still.
    assert "doubled" in potluck("show", "a", cwd=tmp_path)
    assert "doubled" in potluck("list", ".", cwd=tmp_path)
    potluck("report", "a", "--out", "page.html", cwd=tmp_path)


def test_resume_wants_the_same_packages(potluck, installed, tmp_path):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    at = {"path": [installed], "cwd": tmp_path}
    options = ("--algorithms", "fedavg,doubled", "--set", "run.executor=loop", "--out", "both")
    potluck("compare", "e.toml", *options, **at)
    for place in ("both", "both/fedavg-1", "both/doubled-1"):
        assert json.loads((tmp_path / place / "packages.json").read_text()) == {"larder": "1.0"}
    whole = records(tmp_path / "both" / "doubled-1")
    (tmp_path / "both" / "doubled-1" / "summary.json").unlink()  # as if it had been killed
    newer = tmp_path / "newer"
    shutil.copytree(installed, newer)
    (newer / "larder-1.0.dist-info").rename(newer / "larder-1.1.dist-info")
    about = newer / "larder-1.1.dist-info" / "METADATA"
    about.write_text(about.read_text().replace("Version: 1.0", "Version: 1.1"))
    for place in ("both", "both/doubled-1"):
        said = potluck("resume", place, cwd=tmp_path, code=2)
        wanted = f"potluck: {place}: was begun with larder 1.0, and"
        assert said == f"{wanted} none is installed; install larder==1.0\n"
        said = potluck("resume", place, path=[newer], cwd=tmp_path, code=2)
        assert said == f"{wanted} 1.1 is installed; install larder==1.0\n"
    potluck("resume", "both", **at)
    assert records(tmp_path / "both" / "doubled-1") == whole
    potluck("run", ROOT / "examples" / "demo.toml", "--set", "stop.seconds=1", "--out", "plain", **at)
    assert not (tmp_path / "plain" / "packages.json").exists()  # nothing of it was used


def test_names_that_are_taken_or_wrong_are_told(potluck, installed, tmp_path):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    at = {"path": [installed], "cwd": tmp_path, "code": 2}
    said = potluck("run", "e.toml", "--set", "algorithms.doubled.times=-1", **at)
    assert "algorithms.doubled.times = -1.0: must be above 0, such as 2" in said
    broken = tmp_path / "site"
    (broken / "broken-1.0.dist-info").mkdir(parents=True)
    (broken / "broken-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n"
    )
    entries = broken / "broken-1.0.dist-info" / "entry_points.txt"
    entries.write_text("[potluck.algorithms]\nfedavg = broken.rule\nlost = broken.rule\n")
    at["path"] = [broken]
    said = potluck("algorithms", "fedavg", **at)
    assert (
        "algorithm = 'fedavg': offered more than once, by entry point fedavg = 'broken.rule' of broken"
        in said
    )
    assert "can't be loaded (ModuleNotFoundError" in potluck("algorithms", "lost", **at)
    entries.write_text("[potluck.data]\nrows = json:dumps\n")
    said = potluck("data", ROOT / "examples" / "demo.toml", **{**at, "code": 1})
    assert "entry point rows = 'json:dumps' of broken (potluck.data): can't be loaded" in said
    entries.write_text("[potluck.models]\nmlp = larder.models:wide_line\n")
    at["path"] = [broken, installed]
    said = potluck("run", ROOT / "examples" / "demo.toml", "--out", "x", **at)
    assert "of broken (potluck.models): model 'mlp': the name is taken by potluck.models" in said


def test_code_is_loaded_and_recorded(potluck, mine, tmp_path):
    at = {"cwd": tmp_path}
    ran = json.loads(call("potluck", "run", "e.toml", "--code", mine, "--out", "a", "--json", **at))
    assert (ran["algorithm"], ran["rounds"]) == ("doubled", 4)
    digest = hashlib.sha256(mine.read_bytes()).hexdigest()
    assert json.loads((tmp_path / "a" / "code.json").read_text()) == {"file": "mine.py", "sha256": digest}
    options = ("--code", "mine.py", "--algorithms", "doubled,fedavg", "--jobs", "2", "--out", "both")
    potluck("compare", "e.toml", *options, **at)
    assert records(tmp_path / "both" / "doubled-1") == records(tmp_path / "a")
    for place in ("both", "both/doubled-1", "both/fedavg-1"):
        assert json.loads((tmp_path / place / "code.json").read_text())["sha256"] == digest
    assert "Twice the loss" in potluck("algorithms", "doubled", "--code", "mine.py", **at)
    assert "200 of shape [3], 4 classes" in potluck("data", "e.toml", "--code", "mine.py", **at)
    assert potluck("advise", "e.toml", "--code", "mine.py", **at)
    assert "doubled" in potluck("show", "both", **at)  # without the code


def interrupt(potluck, *command, cwd, place):
    """A command is stopped once its run has a snapshot to go on from; gives what it says."""
    pid = potluck.begin(*command, cwd=cwd)
    until = time.monotonic() + 60
    while len(list(place.glob("snapshots/*.snapshot"))) < 2:
        assert time.monotonic() < until, potluck.err.read_text()
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    assert potluck.end() != 0, "it came to its end before"
    return potluck.err.read_text()


@pytest.mark.parametrize("many", [False, True])
def test_resume_wants_the_same_code(potluck, mine, tmp_path, many):
    long = ("--set", "stop.rounds=200", "--set", "run.executor=loop", "--code", mine)
    command = ("compare", "e.toml", "--seeds", "1,2") if many else ("run", "e.toml")
    place = tmp_path / "a" / "doubled-1" if many else tmp_path / "a"
    said = interrupt(potluck, *command, *long, "--out", "a", cwd=tmp_path, place=place)
    assert f"go on with: potluck resume a --code {mine}" in said
    old = hashlib.sha256(mine.read_bytes()).hexdigest()
    at = {"cwd": tmp_path, "code": 2}
    said = potluck("resume", "a", **at)
    assert f"--code is missing: a was begun with --code mine.py of sha256 {old}; name that file" in said
    other = tmp_path / "other.py"
    other.write_text(mine.read_text() + "\n# otherwise\n")
    new = hashlib.sha256(other.read_bytes()).hexdigest()
    said = potluck("resume", "a", "--code", other, **at)
    assert f"other.py: is of sha256 {new}, but a was begun with --code mine.py of sha256 {old}; name" in said
    assert "can't be read (No such file" in potluck("resume", "a", "--code", "none.py", **at)
    potluck("resume", "a", "--code", mine, cwd=tmp_path)
    straight = tmp_path / "b" / "doubled-1" if many else tmp_path / "b"
    potluck(*command, *long, "--set", "run.snapshot_every=60", "--out", "b", cwd=tmp_path)
    assert records(place) == records(straight)


def test_trials_and_studies_want_the_same_code(potluck, mine, tmp_path):
    tune = ("tune", "e.toml", "--set", "tune.grid.train.lr=[0.1]", "--out", "tune", "--code")
    potluck(*tune, mine, cwd=tmp_path)
    said = potluck(*tune[:-1], cwd=tmp_path, code=2)
    assert "'corners': no such source; " in said
    assert "; one of your own needs --code FILE, or its package" in said
    (tmp_path / "plain.toml").write_text("stop = { rounds = 1 }\n")  # uses none of it
    plain = ("tune", "plain.toml", *tune[2:4], "--out", "plain")
    potluck(*plain, "--code", mine, cwd=tmp_path)
    said = potluck(*plain, cwd=tmp_path, code=2)
    assert "--code is missing: plain/fedavg-lr0.1-11 was begun with --code mine.py of sha256" in said
    assert "a tuning; the same `potluck tune` again" in potluck("resume", "plain", cwd=tmp_path, code=2)
    (tmp_path / "plain" / "tune.json").unlink()
    said = potluck("resume", "plain", cwd=tmp_path, code=2)
    assert "plain: runs of a tuning or a study, which the same command again goes on with; or of a " in said
    other = tmp_path / "other.py"
    other.write_text(mine.read_text() + "\n# otherwise\n")
    assert "was begun with --code mine.py" in potluck(*tune, other, cwd=tmp_path, code=2)
    potluck(*tune, other, "--force", cwd=tmp_path)
    assert (
        json.loads((tmp_path / "tune" / "doubled-lr0.1-11" / "code.json").read_text())["file"] == "other.py"
    )
    (tmp_path / "one.py").write_text(STUDY)
    study = ("study", "one.py", "--no-page", "--out", "study", "--jobs", "2", "--code")
    assert "doubled" in potluck(*study, mine, cwd=tmp_path)
    assert "was begun with --code mine.py" in potluck(*study, other, cwd=tmp_path, code=2)


def test_what_was_begun_without_code_goes_on_without(potluck, mine, tmp_path):
    (tmp_path / "plain.toml").write_text('data = { source = "digits" }\nstop = { rounds = 1 }\n')
    small = ("--algorithms", "fedavg", "--set", "model.name=linear")
    potluck("compare", "plain.toml", *small, "--out", "plain", cwd=tmp_path)
    said = potluck("resume", "plain", "--code", mine, cwd=tmp_path, code=2)
    assert f"--code {mine}: plain was begun without; leave it out" in said


def test_a_file_is_executed_once_unless_it_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(code, "_loaded", None)
    for name in ("_values", "_modules"):
        monkeypatch.setattr(MODELS, name, dict(getattr(MODELS, name)))
    file, made = tmp_path / "mine.py", []
    text = 'import potluck\npotluck.register_model("counted", lambda shape, classes: None)\n'
    for changed in ("", "", "# changed\n"):
        file.write_text(text + changed)
        code.load_code(file)
        made.append(MODELS["counted"])
    assert made[0] is made[1] is not made[2]


def test_what_is_wrong_with_code_is_told_in_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    bad = tmp_path / "bad.py"
    for text, message in (
        ("import potluck\n\n1 / 0\n", "bad.py, line 3: ZeroDivisionError: division by zero"),
        ("def x(:\n", "bad.py: SyntaxError"),
        ("import sys\n\nsys.exit(3)\n", "bad.py, line 3: SystemExit: 3"),
        ("import potluck\nimport potluck.algorithms.fedavg\n", "--code bad.py: registers nothing; call"),
        (
            "import potluck\nfrom potluck.algorithms.fedavg import FedAvg\n"
            'potluck.register_algorithm("Fed-Avg", FedAvg)\n',
            "bad.py: algorithm 'Fed-Avg': there is 'fedavg' already; register yours by another name",
        ),
        (
            'import potluck\npotluck.register_algorithm("x", 3)\n',
            "register what makes it, a function or a class",
        ),
        (
            'import potluck\npotluck.register_model("mlp", lambda: None)\n',
            "the name is taken by potluck.models",
        ),
        (
            'import potluck\npotluck.register_source("digits", lambda root: 0)\n',
            "the name is taken by potluck.data",
        ),
        (
            'import potluck\npotluck.register_partition("iid", lambda pool: 0)\n',
            "the name is taken by potluck.data",
        ),
    ):
        bad.write_text(text)
        with pytest.raises(SystemExit):
            main(["run", "e.toml", "--code", "bad.py"])
        *trace, said = capsys.readouterr().err.splitlines()
        assert message in said
        assert bool(trace) == ("ZeroDivisionError" in message)  # a mistake that no setting mends
    (tmp_path / "code.toml").write_text("code = 'bad.py'\n" + EXPERIMENT)
    with pytest.raises(SystemExit):
        main(["run", "code.toml"])
    assert "code = 'bad.py': no such key" in capsys.readouterr().err  # a file can't name code


BROKEN = """
import potluck
from potluck.authoring import Train


def none(local: Train = Train()):
    return None


def boom(local: Train = Train(), k: int = 3):
    return k / 0


def torn(root):
    return {}["x"]


def dealt(pool, clients):
    raise ValueError("too little to deal")


potluck.register_algorithm("none", none)
potluck.register_algorithm("boom", boom)
potluck.register_source("torn", torn)
potluck.register_partition("dealt", dealt)
"""


@pytest.mark.parametrize(
    "options, message, shown",
    [
        (
            ("--algorithm", "none"),
            "algorithm = 'none': what makes it gave a NoneType, which is no rule: "
            "it lacks start, lanes, plan, merge, serve",
            False,
        ),
        (
            ("--algorithm", "boom"),
            "algorithms.boom: ZeroDivisionError: division by zero (broken.py, line 11)",
            True,
        ),
        (("--set", "data.source=torn"), "data.source = 'torn': KeyError: 'x' (broken.py, line 15)", True),
        (
            ("--set", "data.partition=dealt"),
            "data.partition = 'dealt': too little to deal (broken.py, line 19)",
            False,
        ),
    ],
)
def test_what_a_users_code_does_wrong_is_told_in_a_line(potluck, tmp_path, options, message, shown):
    """Where no setting mends it, after its traceback."""
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "e.toml").write_text('data = { source = "synthetic", clients = 4 }\nstop = { rounds = 1 }\n')
    said = potluck("run", "e.toml", "--code", "broken.py", *options, cwd=tmp_path, code=1 if shown else 2)
    trace, line, rest = said.partition(f"potluck: e.toml: {message}\n")
    assert line
    assert not rest
    assert trace.startswith("Traceback") == shown == ("broken.py" in trace)


def test_a_part_for_a_role_that_nothing_has_is_told(potluck, tmp_path):
    code = "from potluck.authoring import part, value\n\n\n@part('selct')\n@value\nclass Mine:\n    pass\n"
    (tmp_path / "bad.py").write_text(code)
    said = potluck("algorithms", "--code", "bad.py", cwd=tmp_path, code=2)
    assert said == "potluck: --code bad.py: @part('selct') of Mine: no such role; did you mean 'select'?\n"
