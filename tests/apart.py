"""Runs in other processes: what they compute, and whether anybody is left."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])


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
