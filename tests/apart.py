"""Runs in other processes: what they compute, and whether anybody is left."""

import os
import subprocess
import sys
import time
from pathlib import Path

from support import try_rates

ROOT = str(Path(__file__).resolve().parents[1])
SMALL = {
    "name": "small",
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    "model": {"name": "linear"},
    "stop": {"rounds": 3},
    "tune": try_rates(0.3, 0.0001),
}
STUDY = """
from potluck.models import register as register_model
from potluck.experiment.study import Arm, Scale, Study
from torch import nn

register_model("of_this_study", lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(8, classes)))
BASE = {
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    "model": {"name": "of_this_study"}, "stop": {"rounds": ROUNDS}, "evaluate": {"rounds": 100},
    "run": {"executor": "loop", "snapshot_every": 0.2},
}
TUNE = {"trials": 2, "refine": 0, "seeds": [1], "length": 0.5, "grid": {"train": {"lr": [0.1, 0.3]}}}
STUDY = Study(
    title="Two", question="Which?",
    arms=[Arm("plain", "fedavg", {"clients": 3}), Arm("q", "qfedavg", {"clients": 3})],
    scenarios={"even": {}, "skewed": {"data": {"partition": "dirichlet", "alpha": 0.5}}},
    quick=Scale(BASE, seeds=(1, 2), tune=TUNE, tune_each=True),
    paper=Scale(BASE, seeds=(1, 2), scenarios=["even"]),
)
"""


def contents(folder):
    """What runs computed, to the byte; a model's file begins with notes whose order is nobody's business."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    names = ("experiment.toml", "records.jsonl", "tune.json")
    same = {name: content for name, content in found.items() if name.endswith(names)}
    models = {name: content for name, content in found.items() if name.endswith(".safetensors")}
    return same | {name: m[8 + int.from_bytes(m[:8], "little") :] for name, m in models.items()}


def children(of):
    """Processes that have this one as their parent."""
    told = subprocess.run(["ps", "-o", "pid=", "--ppid", str(of)], capture_output=True, text=True).stdout
    return [int(pid) for pid in told.split()]


def alive(pids):
    states = (Path(f"/proc/{pid}/stat") for pid in pids)
    return [
        path for path in states if path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"
    ]


def until(true, seconds=60):
    for _ in range(50 * seconds):
        if found := true():
            return found
        time.sleep(0.02)
    raise AssertionError("never came true")


def started(*arguments):
    command = [sys.executable, "-m", "potluck", *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
