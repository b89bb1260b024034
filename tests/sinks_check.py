"""Runs that MLflow and Weights & Biases follow, offline, read back with their own readers; `make sinks`.

Two algorithms side by side, then a run that is killed by kill -9 and resumed: every evaluation must be there
once, with the numbers of the records, and the run's bytes must be those of one that nobody follows.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mlflow
from wandb.proto.wandb_internal_pb2 import Record

import potluck
from potluck.experiment.run_events import Reader

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "WANDB_ERROR_REPORTING": "false"}
TABLES = {
    "name": "followed",
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    "model": {"name": "linear"},
    "evaluate": {"rounds": 10},
    "run": {"executor": "loop", "snapshot_every": 0.05},
}
TOOLS = ["mlflow", "wandb"]
BLOCK = 32768  # bytes
PATIENCE = 600.0  # seconds; on a machine that does much else


def make(rounds, **more):
    return potluck.Experiment(**TABLES, stop={"rounds": rounds}, **more)


def read_mlflow(run):
    """Points of a run in the store: (round, mean accuracy), as often as they are there."""
    name = (run / "log" / "mlflow.id").read_text().strip()
    found = mlflow.MlflowClient().get_run(name)
    points = mlflow.MlflowClient().get_metric_history(name, "accuracy_mean")
    return found, sorted((point.step, point.value) for point in points)


def scan(file):
    """The messages of a .wandb file: a log in the form of LevelDB's, behind seven bytes of its own."""
    content, at, message = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if BLOCK - at % BLOCK < 7:  # what is left of a block has no room for a header
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        message += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield message
            message = b""


def read_wandb(run):
    """The same of its offline folders, by what `wandb sync` would send."""
    points, settings, exits = [], {}, []
    for file in sorted(run.glob("log/wandb/offline-run-*/*.wandb")):
        for data in scan(file):
            record = Record.FromString(data)
            if record.HasField("run"):
                settings |= {item.key: item.value_json for item in record.run.config.update}
            if record.HasField("history"):
                told = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
                points.append((told["round"], told["accuracy_mean"]))
            if record.HasField("exit"):
                exits.append(record.exit.exit_code)
    return settings, sorted(points), exits


def expect(run):
    """What every tool should have of a run, by its records."""
    evaluations = Reader(run.name).read_all(potluck.load(run).lines)
    return sorted((each.round, each.accuracy) for each in evaluations)


def check(run):
    wanted = expect(run)
    stored, points = read_mlflow(run)
    assert points == wanted, (points, wanted)
    assert stored.info.status == "FINISHED", stored.info.status
    assert stored.data.params["data.clients"] == "8", stored.data.params
    settings, points, exits = read_wandb(run)
    assert points == wanted, (points, wanted)
    assert json.loads(settings["data"])["clients"] == 8, settings
    assert exits[-1] == 0, exits
    print(f"{run.name}: {len(wanted)} evaluations in MLflow's store and in wandb's folder, each once")


def check_side_by_side(folder):
    place = folder / "both"
    potluck.compare(make(20, log={"to": TOOLS}), ["fedavg", "fedprox"], [1], place, jobs=2)
    for name in ("fedavg-1", "fedprox-1"):
        check(place / name)
    assert len(mlflow.MlflowClient().search_runs(["1"])) == 2, "a run each"


def check_kill(folder):
    place, plain, file = folder / "killed", folder / "plain", folder / "killed.toml"
    rounds = 600
    file.write_text(make(rounds, log={"to": TOOLS}).to_toml())
    command = [sys.executable, "-m", "potluck", "run", str(file), "--out", str(place), "--quiet"]
    child = subprocess.Popen(command)
    until = time.monotonic() + PATIENCE
    try:
        while not (place / "records.jsonl").exists() or len(expect(place)) < 8:
            assert child.poll() is None, "it ended before it was killed; give it more rounds"
            assert time.monotonic() < until, f"it didn't get anywhere in {PATIENCE:.0f} s"
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    assert not (place / "summary.json").exists()
    potluck.resume(place)
    check(place)
    potluck.run(make(rounds), plain)
    for name in ("records.jsonl", "models/global.safetensors"):
        assert (place / name).read_bytes() == (plain / name).read_bytes(), name
    print("the bytes of the run that was followed, killed and resumed are those of one that wasn't")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="potluck-sinks-") as made:
        store = f"sqlite:///{Path(made) / 'mlflow.db'}"
        os.environ |= {**QUIET, "MLFLOW_TRACKING_URI": store, "WANDB_MODE": "offline"}
        check_side_by_side(Path(made))
        check_kill(Path(made))
