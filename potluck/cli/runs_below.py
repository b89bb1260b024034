"""The runs below a folder: one that can't be read is told of, and hides no other."""

from pathlib import Path
from typing import TypedDict

from potluck.core.errors import PotluckError
from potluck.experiment import load
from potluck.experiment.folder import EXPERIMENT, is_run
from potluck.experiment.remarks import Remark


class RunLine(TypedDict):
    """A run in a list of runs."""

    folder: str
    state: str
    name: str | None
    algorithm: str | None
    seed: int | None
    accuracy_mean: float | None
    remarks: list[Remark]
    problem: str | None  # why it can't be read


def list_below(folder: Path) -> list[RunLine]:
    """Every run below a folder, by its path."""
    places = sorted(path.parent for path in folder.rglob(EXPERIMENT))
    return [line for place in places if (line := _describe(place)) is not None]


def _describe(place: Path) -> RunLine | None:
    try:
        if not is_run(place):
            return None
        run = load(place)
    except (PotluckError, OSError) as error:
        return {
            "folder": str(place),
            "state": "damaged",
            "name": None,
            "algorithm": None,
            "seed": None,
            "accuracy_mean": None,
            "remarks": [],
            "problem": str(error),
        }
    return {
        "folder": str(run.path),
        "state": "finished" if run.finished else "unfinished",
        "name": run.summary["name"],
        "algorithm": run.summary["algorithm"],
        "seed": run.summary["seed"],
        "accuracy_mean": run.summary["accuracy_mean"],
        "remarks": run.summary["remarks"],
        "problem": None,
    }
