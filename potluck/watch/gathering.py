"""Runs that belong together: of a comparison, or of one crowd and beside each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from potluck.core.errors import PotluckError
from potluck.experiment import Comparison, Experiment, Run, folder
from potluck.experiment.methods import list_methods
from potluck.report.gather import name_runs, write_federation
from potluck.watch.finding import Found
from potluck.watch.live_run import LiveRun


@dataclass(frozen=True, eq=False)
class Expected:
    """A run that a comparison will have."""

    arm: str
    seed: int
    path: Path


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that are drawn into one picture, by the name that each goes by there."""

    key: str  # tells it from all others
    path: Path  # of the comparison, else of the folder that they lie in
    title: str
    experiment: Experiment
    names: list[str]  # in the order of their colours
    runs: list[LiveRun]
    arms: list[str]  # of each run, its name
    waiting: list[Expected] = field(default_factory=list)  # runs that haven't begun

    def compare(self) -> Comparison:
        """The runs that have begun, as reports and verdicts know them."""
        named = [
            replace(run, summary={**run.summary, "algorithm": arm})
            for arm, run in zip(self.arms, (live.to_run() for live in self.runs), strict=True)
        ]
        seeds = sorted({run.summary["seed"] for run in named} | {place.seed for place in self.waiting})
        return Comparison(self.experiment.with_values(seeds=seeds), named, self.path)


def gather_live(found: Found, runs: Mapping[Path, LiveRun]) -> list[Group]:
    """All groups, comparisons first; a run is in one of them."""
    left, groups = dict(runs), []
    for path in found.comparisons:
        group = _read_comparison(path, left)
        if group is not None:
            groups.append(group)
            for run in group.runs:
                del left[run.path]
    beside: dict[tuple[Path, str], list[LiveRun]] = {}
    for path, run in left.items():
        beside.setdefault((path.parent, write_federation(run.experiment)), []).append(run)
    return [*groups, *(_join(f"{parent} {crowd}", parent, same) for (parent, crowd), same in beside.items())]


def _read_comparison(path: Path, runs: Mapping[Path, LiveRun]) -> Group | None:
    """A comparison and its runs; None where its file can't be read, or names none."""
    try:
        experiment = folder.experiment(path)
        methods = list_methods(experiment)
    except (PotluckError, OSError):
        return None
    if not experiment.seeds:
        return None
    places = [
        Expected(m.label, seed, path / f"{folder.to_path_part(m.label)}-{seed}")
        for m in methods
        for seed in experiment.seeds
    ]
    begun = [place for place in places if place.path in runs]
    return Group(
        str(path),
        path,
        experiment.name,
        experiment,
        [method.label for method in methods],
        [runs[place.path] for place in begun],
        [place.arm for place in begun],
        [place for place in places if place.path not in runs],
    )


def _join(key: str, parent: Path, runs: list[LiveRun]) -> Group:
    """Runs of one crowd that lie beside each other."""
    named: list[Run] = [run.to_run() for run in runs]
    titles = list(dict.fromkeys(run.experiment.name for run in runs))
    title = titles[0] if len(titles) == 1 else parent.resolve().name
    if folder.TUNING in parent.parts[-1:]:
        title = f"tuning of {parent.resolve().parent.name}"
    arms = name_runs(named)
    return Group(key, parent, title, runs[0].experiment, list(dict.fromkeys(arms)), runs, arms)
