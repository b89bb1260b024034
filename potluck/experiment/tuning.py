"""What a search came to: every trial of every method, what was chosen, and what was left open."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from potluck.core import safe_files
from potluck.core.codec import Json
from potluck.experiment import folder, json_files
from potluck.experiment.search import (
    Point,
    Trial,
    Value,
    count_points,
    find_best,
    find_edges,
    is_numeric,
    list_extensions,
)


@dataclass(frozen=True)
class Tuning:
    """Every trial of a search; `choice(name)` has an algorithm's best settings.

    A trial is judged by its last mean accuracy over devices, on their validation rows.
    """

    trials: int  # points that every method may try
    refine: int | None
    seeds: list[int]
    length: float  # of a trial, as a share of a whole run
    grids: dict[str, dict[str, list[Value]]]  # by method and key: what was to be tried
    lacking: dict[str, list[str]]  # by method: keys of the grid that it doesn't have
    results: dict[str, list[Trial]]  # by method, in the order in which they were tried
    refused: dict[str, list[Point]]  # by method: what lay beyond an end and no run can have
    shifts: bool = False  # judged by the mean over shifts that were rehearsed with validation rows

    def best(self, method: str) -> Trial:
        """The trial with the best mean; the first of equally good ones."""
        return find_best(self.results[method])

    def choice(self, method: str) -> Point:
        """The chosen settings, by dotted key: {"train.lr": 0.1, "mu": 0.01}."""
        return self.best(method)["point"]

    def means(self, method: str) -> list[float]:
        """Of every trial, over seeds."""
        return [trial["mean"] for trial in self.results[method]]

    def edges(self, method: str) -> list[str]:
        """Keys of which a value beyond those tried might have been better still."""
        return find_edges(self.grids[method], self.results[method], self.refused[method])

    def extended(self, method: str) -> dict[str, list[Value]]:
        """By key: the values beyond the grid that were tried."""
        return list_extensions(self.results[method])

    def missing(self, method: str) -> int:
        """Trials that a method had and didn't use: it has no further point that differs."""
        return self.trials - len(self.results[method])

    def summary(self) -> dict[str, Json]:
        """The content of tune.json."""
        chosen = {
            method: {
                "settings": self.choice(method),
                "accuracy": self.best(method)["mean"],
                "edge": self.edges(method),
                "extended": self.extended(method),
                "trials": len(tried),
            }
            for method, tried in self.results.items()
        }
        return {**asdict(self), "on": "validation", "choices": chosen}


def load_tuning(out: Path) -> Tuning | None:
    """What was found in a folder; None if a search never got to its end there."""
    path, fix = out / folder.TUNED, "delete it and tune again"
    if not safe_files.has_file(out, folder.TUNED):
        return None
    content = json_files.read_table(out, folder.TUNED, fix)
    own = {key: value for key, value in content.items() if key in Tuning.__annotations__}
    tuning = json_files.make(own, Tuning, path, fix)
    if (why := _find_gap(tuning)) is not None:
        raise json_files.damaged(path, why, fix)
    return tuning


def _find_gap(tuning: Tuning) -> str | None:
    """What of it doesn't hold together."""
    by_method: list[Mapping[str, object]] = [tuning.grids, tuning.lacking, tuning.refused]
    if any(set(table) != set(tuning.results) for table in by_method):
        return "not of the same methods everywhere"
    for method, tried in tuning.results.items():
        grid = tuning.grids[method]
        if not 1 <= len(tried) <= count_points(grid, tuning.trials, tuning.refine):
            return f"{method}: {len(tried)} trials"
        points = [*(trial["point"] for trial in tried), *tuning.refused[method]]
        if any(set(point) != set(grid) for point in points):
            return f"{method}: a point without the grid's keys"
        if any(is_numeric(grid[key]) and not is_numeric([point[key]]) for point in points for key in grid):
            return f"{method}: a point without a number where the grid has numbers"
        if any(len(trial["results"]) != len(tuning.seeds) for trial in tried):
            return f"{method}: not one result for each seed"
    return None
