"""Runs on the machines of a Ray cluster: the bytes are those of this machine, whatever is killed."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from apart import ROOT, contents, until
from apart import started as begin

import potluck
from potluck.core.errors import ConfigError
from potluck.experiment import Experiment
from potluck.experiment.comparison import resume_comparison

pytestmark = pytest.mark.ray

FILE = """
name = "small"
compare = ["fedavg", "scaffold", "few"]
data = { source = "synthetic", rows = 400, dimension = 8, classes = 4, clients = 8 }
model = { name = "slow" }
algorithms.fedavg.clients = 2
algorithms.scaffold.clients = 2
stop = { rounds = 50 }
evaluate = { rounds = 10 }
run = { executor = "loop", snapshot_every = 0.3 }
"""


COMMANDS = []  # that tests have started


def started(*arguments):
    COMMANDS.append(begin(*arguments))
    return COMMANDS[-1]


@pytest.fixture(autouse=True)
def nobody_asks_any_more():
    yield
    while COMMANDS:
        command = COMMANDS.pop()
        command.kill()
        command.communicate()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "small.toml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def here(machines, file, tmp_path_factory):
    """The comparison as this machine computes it."""
    out = tmp_path_factory.mktemp("here") / "out"
    own = os.path.join(os.path.dirname(__file__), "own_code.py")
    end(started("compare", str(file), "--code", own, "--out", str(out), "--jobs", "3", "--quiet"), 0)
    return contents(out)


def end(process, code):
    """What a command has said, once it has ended so."""
    out, said = process.communicate(timeout=600)
    assert process.returncode == code, out + said
    return said


def compare(machines, file, out, code, *more):
    own = ("--code", str(code), "--out", str(out), "--on", f"ray:{machines.address}")
    return started("compare", str(file), *own, *more)


def list_snapshots(out, run):
    return sorted((out / run / "snapshots").glob("*.snapshot"))


def has_one(out, run, serial=0):
    """Wait for a snapshot, or for a later one."""
    return until(lambda: [at for at in list_snapshots(out, run) if int(at.stem) >= serial], seconds=240)


def test_a_node_is_killed_after_a_snapshot(machines, file, code, here, tmp_path):
    """Every run is whole, to the byte; the one that it had goes on from its snapshot."""
    out = tmp_path / "out"
    asked = compare(machines, file, out, code)
    has_one(out, "scaffold-1", serial=3)  # the first ones may come within the first round
    machines.kill(machines.find("scaffold-1"))
    said = end(asked, 0)
    assert contents(out) == here
    (told,) = re.findall(r"^potluck: scaffold-1: .*; on \S+, attempt 2, from round (\d+)$", said, re.M)
    assert 0 < int(told) < 50
    assert len(said.splitlines()) < 20, said  # none of Ray's


def test_a_node_is_killed_before_a_snapshot(machines, file, code, tmp_path):
    out = tmp_path / "out"
    asked = compare(machines, file, out, code, "--algorithms", "fedavg", "--set", "run.snapshot_every=600")
    until(lambda: (out / "fedavg-1" / "plan.json").exists(), seconds=240)
    machines.kill(machines.find("fedavg-1"))
    said = end(asked, 0)
    assert re.search(r"fedavg-1: .*, attempt 2, from (the start|round 0)$", said, re.M), said


def test_who_asked_is_killed_and_asks_again(machines, file, code, here, tmp_path):
    """What had a snapshot goes on from it, and nothing is left of those that computed."""
    out = tmp_path / "out"
    asked = compare(machines, file, out, code)
    has_one(out, "fedavg-1")
    has_one(out, "scaffold-1")
    asked.send_signal(signal.SIGKILL)
    asked.communicate()
    begun = {path.parent.parent.name for path in out.glob("*/snapshots/*")}
    done = {path.parent.name for path in out.glob("*/summary.json")}
    on = ("--on", f"ray:{machines.address}")
    said = end(started("resume", str(out), "--code", str(code), *on), 0)
    assert contents(out) == here
    for run in begun - done:
        assert re.search(rf"^potluck: {run}: goes on from round ", said, re.M), said
        assert len((out / run / "sessions.jsonl").read_text().splitlines()) == 1  # the last, which ended well
    assert len(list(machines.rooms.iterdir())) <= 2  # of a node each, until the next run begins there


def test_stopping_is_at_once_and_says_how_to_go_on(machines, file, code, tmp_path):
    out = tmp_path / "out"
    asked = compare(machines, file, out, code)
    has_one(out, "fedavg-1")
    assert machines.list_spawned()  # of which nothing is left after any test
    asked.send_signal(signal.SIGINT)
    began = time.monotonic()
    said = end(asked, 130)
    assert time.monotonic() - began < 15
    wanted = f"go on with: potluck resume {out} --on ray:{machines.address} --code {code}"
    assert wanted in said


STUDY = """
from beside import BASE
from potluck.experiment.study import Arm, Scale, Study

STUDY = Study(
    title="Two", question="Which?",
    arms=[Arm("plain", "fedavg", {"clients": 2}), Arm("mine", "few_of_study", {"clients": 2})],
    quick=Scale(BASE, seeds=(1,), tune={"trials": 1, "refine": 0, "seeds": [9], "length": 0.2, "grid": GRID}),
    paper=Scale(BASE),
)
"""
BESIDE = """
import time
from torch import nn
import potluck
from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Train


class Slow(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.line = nn.Linear(width, classes)

    def forward(self, x):
        time.sleep(0.001)
        return self.line(x.flatten(1))


def few(local: Train = Train(), clients: int = 2) -> FedAvg:
    return FedAvg(clients, local)


potluck.register_model("slow_of_study", lambda shape, classes: Slow(shape[0], classes))
potluck.register_algorithm("few_of_study", few)
BASE = {
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    "model": {"name": "slow_of_study"}, "stop": {"rounds": 40}, "evaluate": {"rounds": 100},
    "run": {"executor": "loop", "snapshot_every": 0.3},
}
"""


def test_a_study_with_a_model_and_an_algorithm_of_its_own(machines, tmp_path):
    """By the same command again, too, after who asked was killed."""
    folder = tmp_path / "studies"
    folder.mkdir()
    (folder / "two.py").write_text(STUDY.replace("GRID", '{"train": {"lr": [0.1, 0.3]}}'))
    (folder / "beside.py").write_text(BESIDE)
    study = ("study", str(folder / "two.py"), "--no-page", "--out")
    end(started(*study, str(tmp_path / "here"), "--jobs", "2", "--quiet"), 0)
    out, on = tmp_path / "out", ("--on", f"ray:{machines.address}")
    asked = started(*study, str(out), *on)
    has_one(out, "mine-1")
    asked.send_signal(signal.SIGKILL)
    asked.communicate()
    end(started(*study, str(out), *on), 0)
    assert contents(out) == contents(tmp_path / "here")


WRONG = """
import potluck
from torch import nn

class Wrong(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.line, self.calls = nn.Linear(8, classes), 0

    def forward(self, x):
        self.calls += self.training
        if self.calls > 400:
            raise ArithmeticError("this loss is not for you")
        return self.line(x.flatten(1))

potluck.register_model("wrong", lambda shape, classes: Wrong(classes))
potluck.register_algorithm("few", lambda local=None: None)
"""


def test_what_a_run_raises_is_told_as_its_own(machines, file, tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    out = tmp_path / "out"
    more = ("--set", "model.name=wrong", "--set", "stop.rounds=100000", "--algorithms", "fedavg,scaffold")
    said = end(compare(machines, file, out, wrong, *more, "--set", "run.snapshot_every=0.05"), 1)
    assert "this loss is not for you" in said
    assert re.search(r"(fedavg|scaffold)-1 on \S+: ", said)
    assert list_snapshots(out, "fedavg-1") + list_snapshots(out, "scaffold-1") != []


GREEDY = """
import multiprocessing
import time
import potluck
from torch import nn

held = []

class Greedy(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.line = nn.Linear(8, classes)

    def forward(self, x):
        while multiprocessing.parent_process() and len(held) < 40:
            held.append(b"x" * (100 << 20))
            time.sleep(0.02 if len(held) < 40 else 60)
        return self.line(x.flatten(1))

potluck.register_model("greedy", lambda shape, classes: Greedy(classes))
potluck.register_algorithm("few", lambda local=None: None)
"""


def test_a_run_that_takes_all_memory_is_given_up_and_what_killed_it_is_told(machines, file, tmp_path):
    """Ray ends whoever takes more than a machine should give."""
    greedy = tmp_path / "greedy.py"
    greedy.write_text(GREEDY)
    with machines.adding(num_cpus=2, RAY_memory_usage_threshold=f"{find_used_memory() + 0.06:.3f}"):
        only = ("--set", "model.name=greedy", "--algorithms", "fedavg")
        more = (*only, "--on", f"ray:{machines.address}?cpus=2")
        said = end(compare(machines, file, tmp_path / "out", greedy, *more), 2)
    told = (
        r"fedavg-1: broken off 3 times at round 0, last by OutOfMemoryError on .+; give it more with \?cpus="
    )
    assert re.search(told, said), said


def find_used_memory():
    """As a share of all."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    found = {name: int(size) for name, size, *_ in lines}
    return 1 - found["MemAvailable:"] / found["MemTotal:"]


def make(**changes):
    tables = {
        "name": "made",
        "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
        "model": {"name": "linear"},
        "stop": {"rounds": 3},
        "run": {"executor": "loop"},
    }
    return Experiment(**{**tables, **changes})


def test_in_python_a_single_run_goes_there_and_one_job_is_the_default(machines, tmp_path):
    heard = []

    class Ear(potluck.Callback):
        def on_end(self, event):
            heard.append(event.folder)

    on = f"ray:{machines.address}"
    done = potluck.compare(make(), ["fedavg"], out=tmp_path / "out", on=on, callbacks=[Ear()])
    assert heard == [tmp_path / "out" / "fedavg-1"]
    assert done.runs[0].finished
    again = potluck.compare(make(), ["fedavg"], out=tmp_path / "here")
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    assert again.runs[0].finished
    assert resume_comparison(tmp_path / "out", on=on).runs[0].finished


def test_what_a_script_has_registered_travels_with_what_lies_beside_it(machines, tmp_path):
    """A model, an algorithm, a part and a value that snapshots hold: none is in a file for --code."""
    for name in ("own_script.py", "own_layer.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    for out, *on in (["there", f"ray:{machines.address}"], ["here"]):
        command = [sys.executable, tmp_path / "own_script.py", tmp_path / out, *on]
        told = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ROOT})
        assert told.returncode == 0, told.stderr
    assert contents(tmp_path / "there") == contents(tmp_path / "here") != {}
    assert list_snapshots(tmp_path / "there", "counted-1") != []


def test_a_pool_of_ones_own_travels(machines, tmp_path):
    from potluck.data import load

    pool = load("synthetic", rows=300, dimension=8, classes=4)
    one = make(data={"clients": 8}, run={"executor": "auto"})
    there, near = (
        potluck.compare(one, ["fedavg"], [1, 2], out=tmp_path / name, pool=pool, on=on)
        for name, on in (("out", f"ray:{machines.address}"), ("here", None))
    )
    assert [run.finished for run in (*there.runs, *near.runs)] == [True] * 4
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


def test_data_that_a_node_lacks_are_named_with_it(machines, file, tmp_path):
    """They are here, and the nodes look elsewhere."""
    import gzip

    root = tmp_path / "data" / "mnist"
    root.mkdir(parents=True)
    for part, rows in (("train", 40), ("t10k", 20)):
        images = (
            b"\0\0\x08\x03"
            + b"".join(n.to_bytes(4, "big") for n in (rows, 28, 28))
            + bytes(range(196)) * (4 * rows)
        )
        labels = b"\0\0\x08\x01" + rows.to_bytes(4, "big") + bytes(i % 10 for i in range(rows))
        for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
            (root / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    own = tmp_path / "mnist.toml"
    own.write_text('name="m"\ncompare=["fedavg"]\ndata={source="mnist", clients=4}\nstop={rounds=1}\n')
    command = ("compare", str(own), "--out", str(tmp_path / "out"), "--on", f"ray:{machines.address}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POTLUCK_DATA", str(tmp_path / "data"))
        said = end(started(*command), 2)
    assert re.search(r"on \S+: .*potluck data get mnist", said.replace("\n", " ")), said


def test_a_gpu_that_no_machine_has_is_waited_for_and_that_is_said(machines, file, code, tmp_path):
    on = f"ray:{machines.address}?gpus=1"
    asked = started("compare", str(file), "--code", str(code), "--out", str(tmp_path / "out"), "--on", on)
    line = next(line for line in asked.stderr if "wait" in line)
    asked.send_signal(signal.SIGINT)
    asked.communicate(timeout=60)
    assert line.strip() == "potluck: 3 runs wait for 1 GPU each; the cluster has 2 CPUs and no GPU"


def test_a_cluster_of_the_command_s_own_has_what_this_machine_has(machines, file, code, tmp_path):
    command = ("compare", str(file), "--code", str(code), "--algorithms", "fedavg", "--set", "stop.rounds=3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "local")
        refused = started(*command, "--out", str(tmp_path / "no"), "--on", "ray?gpus=1")
        wanted = r"on: gpus=1: the cluster has \d+ CPUs? and no GPU; leave gpus out, with run.device=cpu"
        assert re.search(wanted, end(refused, 2))
        said = end(started(*command, "--out", str(tmp_path / "out"), "--on", "ray"), 0)
    assert "fedavg-1: accuracy" in said
    told = subprocess.run(["ps", "-ww", "-eo", "args="], capture_output=True, text=True).stdout
    assert len(re.findall(r"^\S*/raylet ", told, re.M)) == 3  # the fixture's


@pytest.fixture
def silent():
    """Somebody listens there and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:1", r"nobody answers there \(.*refused\); `ray start --head` starts one"),
        ("nowhere:1", r"nobody answers there \(.+\)"),
        (None, r"nobody answers there \(timed out\)"),
    ],
)
def test_nobody_at_an_address_is_told_in_time(machines, silent, tmp_path, address, told):
    at, began = f"ray:{address or silent}", time.monotonic()
    with pytest.raises(ConfigError, match=f"^on = '{at}': {told}"):
        potluck.compare(make(), ["fedavg"], out=tmp_path / "out", on=at)
    assert time.monotonic() - began < 15
