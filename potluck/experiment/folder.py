"""A run's folder: what was asked for, how it is computed, what came of it.

A comparison's, a tuning's or a study's holds the folders of its runs.

experiment.toml     complete: `potluck run experiment.toml` repeats the run
code.json           name and sha256 of the file that --code loaded, if any: resuming wants the same
plan.json           executor and sizes, pinned, since resuming must compute alike
records.jsonl       what was measured, append-only
keep.log            what devices remember between tasks
snapshots/          where to go on after an end that nobody planned
sessions.jsonl      seconds of real time, one line for each start
devices.json        who they were: speed, links, rows at first and at the end, the last tasks; written once
summary.json        what the run came to: written last, so a folder that has one is finished
models/             what was trained, one safetensors file for each view
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import safetensors
import safetensors.torch
from torch import nn

from potluck.core.errors import ConfigError, SnapshotError
from potluck.core.job import ModelSpec
from potluck.core.records import Record
from potluck.core.trees import Params
from potluck.experiment import code
from potluck.experiment.device_summary import DeviceSummary
from potluck.experiment.run_lock import lock_run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import as_recorded
from potluck.experiment.summary import Summary
from potluck.models import Models

EXPERIMENT, PLAN, RECORDS, SUMMARY = "experiment.toml", "plan.json", "records.jsonl", "summary.json"
SESSIONS, SNAPSHOTS, MODELS, REPORT = "sessions.jsonl", "snapshots", "models", "report.html"
DEVICES = "devices.json"
TUNING, TUNED = "tune", "tune.json"  # of a comparison: its trials, and what came of them
_OWN = {
    EXPERIMENT,
    code.RECORD,
    PLAN,
    RECORDS,
    DEVICES,
    SUMMARY,
    SESSIONS,
    SNAPSHOTS,
    MODELS,
    REPORT,
    TUNED,
    "keep.log",
}


def claim(folder: Path, force: bool) -> None:
    """See to it that a folder can be made; `force` allows to replace what Potluck made, and nothing else."""
    at = f"out = {str(folder)!r}"
    if not folder.exists() and not folder.is_symlink():
        return
    if not force:
        fix = f"go on with `potluck resume {folder}`" if (folder / EXPERIMENT).exists() else "name another"
        raise ConfigError(f"{at}: exists already; {fix}, or replace a run with --force")
    if not folder.is_dir() or folder.is_symlink():
        raise ConfigError(f"{at}: not a plain folder, so it isn't replaced; name another")
    if any(folder.iterdir()) and not (folder / EXPERIMENT).is_file():
        raise ConfigError(f"{at}: holds no {EXPERIMENT}, so it isn't a run and isn't deleted; name another")
    foreign = _foreign(folder)
    if foreign is not None:
        raise ConfigError(
            f"{at}: holds {foreign.name!r}, which Potluck didn't make; move it, or name another"
        )
    with lock_run(folder):
        pass  # nobody computes it


def create(folder: Path, files: dict[str, str], force: bool) -> None:
    """A new folder with these files, whole or not at all; replaces what `claim` allows."""
    claim(folder, force)
    place = folder.resolve()  # for its name: that of "." is empty
    partial = place.with_name(f".{place.name}.partial")
    try:
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        for name, text in files.items():
            (partial / name).write_text(text)
        if (folder / EXPERIMENT).is_file():
            shutil.rmtree(folder)
        os.rename(partial, folder)
    except OSError as error:
        raise ConfigError(f"out = {str(folder)!r}: can't be written ({error.strerror})") from None


def make(folder: Path) -> None:
    """A folder of runs, which may be there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out = {str(folder)!r}: can't be written ({error.strerror})") from None


def _foreign(folder: Path) -> Path | None:
    """The first thing in a run or a comparison that belongs to neither."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and (is_run(entry) or entry.name == TUNING):
            if inner := _foreign(entry):
                return inner
        elif entry.name not in _OWN and not re.fullmatch(r"\..*\.partial", entry.name):
            return entry
    return None


def to_path_part(name: str) -> str:
    """A name as a part of a path."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "unnamed"


def is_run(folder: Path) -> bool:
    return (folder / EXPERIMENT).is_file() and (folder / PLAN).is_file()


def is_comparison(folder: Path) -> bool:
    return (folder / EXPERIMENT).is_file() and not (folder / PLAN).is_file()


def check_run(folder: Path) -> None:
    """An error that says what is there instead of a run."""
    if is_run(folder):
        return
    if not folder.exists():
        raise SnapshotError(f"{folder}: no such folder; `potluck list` shows the runs that there are")
    what = "a comparison; name one of the runs in it" if is_comparison(folder) else "not the folder of a run"
    if (folder / TUNED).is_file():
        what = "a tuning; the same `potluck tune` again goes on with it"
    raise SnapshotError(f"{folder}: {what} (a run holds {EXPERIMENT} and {PLAN})")


def is_finished(folder: Path) -> bool:
    return (folder / SUMMARY).is_file()


def experiment(folder: Path) -> Experiment:
    """What a folder was made from; names in it were looked up then, and may be of code that isn't here."""
    with as_recorded():
        return Experiment.from_file(folder / EXPERIMENT)


def read_records(folder: Path) -> list[Record]:
    """All whole lines; a run that is being written, or was killed, may end in half of one."""
    path = folder / RECORDS
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise SnapshotError(f"{path}: damaged ({error}); resume the run, or run it again") from None


def read_summary(folder: Path) -> Summary:
    try:
        summary: Summary = json.loads((folder / SUMMARY).read_text())
    except ValueError as error:
        raise SnapshotError(f"{folder / SUMMARY}: damaged ({error}); delete it and resume the run") from None
    return summary


def write_devices(folder: Path, devices: DeviceSummary) -> None:
    replace(folder / DEVICES, json.dumps(devices, separators=(",", ":")) + "\n")


def read_devices(folder: Path) -> DeviceSummary | None:
    """None if the run has none: it isn't finished, or the file was deleted."""
    path = folder / DEVICES
    try:
        devices: DeviceSummary | None = json.loads(path.read_text()) if path.is_file() else None
    except ValueError as error:
        raise SnapshotError(f"{path}: damaged ({error}); delete it, or run it again") from None
    return devices


def add_session(folder: Path, seconds: float) -> None:
    with open(folder / SESSIONS, "a") as file:
        file.write(json.dumps({"seconds": round(seconds, 3)}) + "\n")


def wall_seconds(folder: Path) -> float:
    """Real time of all sessions that came to an orderly end."""
    path = folder / SESSIONS
    lines = path.read_text().splitlines() if path.exists() else []
    return float(sum(json.loads(line)["seconds"] for line in lines))


def replace(path: Path, text: str) -> None:
    """Another content for a file of a run: whole or not at all, also if the power goes."""
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Content that people may read, too: whole or not at all."""
    replace(path, json.dumps(content, indent=2) + "\n")


def write_models(folder: Path, served: dict[str, tuple[ModelSpec, Params]], models: Models) -> None:
    """One file a view; its metadata say how to build the module again."""
    (folder / MODELS).mkdir(exist_ok=True)
    for i, (view, (spec, params)) in enumerate(served.items()):
        inputs = "" if models.inputs is None else str(models.inputs).removeprefix("torch.")
        about = {
            "view": view,
            "order": str(i),
            "model": json.dumps(asdict(spec)),
            "shape": json.dumps(models.shape),
            "classes": str(models.classes),
            "dtype": str(models.dtype).removeprefix("torch."),
            "inputs": inputs,
        }
        name = re.sub(r"[^\w.-]+", "-", str(view)) or "model"
        path = folder / MODELS / f"{name}.safetensors"
        safetensors.torch.save_file(
            {k: v.detach().cpu().contiguous() for k, v in params.items()}, path, about
        )


def read_models(folder: Path) -> dict[str, nn.Module]:
    """The trained modules by view, in the order in which they were served."""
    import torch

    found: dict[str, tuple[int, nn.Module]] = {}
    for path in sorted((folder / MODELS).glob("*.safetensors")):
        with safetensors.safe_open(path, "pt") as file:
            about = file.metadata()
        dtype = getattr(torch, about["dtype"])
        inputs = getattr(torch, about["inputs"]) if about["inputs"] else None
        models = Models(tuple(json.loads(about["shape"])), int(about["classes"]), dtype, inputs)
        try:
            model = models[ModelSpec(**json.loads(about["model"]))]
        except ConfigError as error:
            raise ConfigError(
                f"{path}: {error}; register your own with potluck.register_model first"
            ) from None
        found[about["view"]] = (int(about["order"]), model.module(safetensors.torch.load_file(path)))
    return {view: module for view, (_, module) in sorted(found.items(), key=lambda item: item[1][0])}
