"""Comparisons: several algorithms, several seeds, one crowd."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from potluck import algorithms as registry
from potluck import metrics
from potluck.errors import ConfigError
from potluck.experiment import build, folder
from potluck.experiment.config import Experiment
from potluck.experiment.runs import Run, Watch, load, resume, run
from potluck.metrics import Spread
from potluck.runtime import World

Show = Callable[[str], AbstractContextManager[Watch | None]]  # a run's name -> what follows its progress


@dataclass(frozen=True)
class Row:
    """What one algorithm came to, over its seeds."""

    algorithm: str
    accuracy: Spread
    worst: Spread
    best: Spread
    everywhere: Spread  # accuracy on the global test set
    seconds_to_target: Spread  # virtual
    speed_up: float | None  # against the first algorithm
    rounds: Spread
    bytes: Spread
    device_seconds: Spread


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs that differ in algorithm and seed only."""

    experiment: Experiment
    runs: list[Run]
    path: Path | None = None

    @property
    def algorithms(self) -> list[str]:
        return list(dict.fromkeys(run.summary["algorithm"] for run in self.runs))

    def of(self, algorithm: str) -> list[Run]:
        return [run for run in self.runs if run.summary["algorithm"] == algorithm]

    @cached_property
    def target(self) -> float | None:
        """The accuracy that algorithms race to: the experiment's, or what the first one ends with."""
        wanted = self.experiment.stop.target or self.experiment.evaluate.target
        return wanted or Spread.of([run.summary["accuracy_mean"] for run in self.of(self.algorithms[0])]).mean

    @cached_property
    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for name in self.algorithms:
            taken = [self._time(run) for run in self.of(name)]
            base = rows[0].seconds_to_target.mean if rows else Spread.of(taken).mean
            own = Spread.of(taken).mean
            rows.append(
                Row(
                    algorithm=name,
                    accuracy=self._spread(name, "accuracy_mean"),
                    worst=self._spread(name, "accuracy_worst10"),
                    best=self._spread(name, "accuracy_best10"),
                    everywhere=self._spread(name, "global_accuracy"),
                    seconds_to_target=Spread.of(taken),
                    speed_up=base / own if base is not None and own else None,
                    rounds=self._spread(name, "rounds"),
                    bytes=Spread.of([r.summary["bytes_up"] + r.summary["bytes_down"] for r in self.of(name)]),
                    device_seconds=self._spread(name, "device_seconds"),
                )
            )
        return rows

    def _spread(self, algorithm: str, key: str) -> Spread:
        return Spread.of([run.summary[key] for run in self.of(algorithm)])

    def _time(self, run: Run) -> float | None:
        return metrics.time_to(metrics.series(run.lines, "accuracy_mean", run.summary["view"]), self.target)


def compare(
    experiment: Experiment,
    algorithms: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    show: Show | None = None,
    *,
    force: bool = False,
) -> Comparison:
    """Run every algorithm with every seed, one after another; without `out`, in memory."""
    names = [registry.canonical(name, "compare") for name in algorithms or experiment.compare]
    with build.located(experiment):
        names = names or [registry.canonical(experiment.algorithm)]
    full = experiment.updated(compare=names, seeds=list(seeds or experiment.seeds or [experiment.seed]))
    _check_distinct("compare", full.compare)
    _check_distinct("seeds", full.seeds)
    path = None if out is None else Path(out)
    if path is not None:
        folder.claim(path, force)
    worlds: dict[int, World] = {}
    for seed, name in _each(full):  # all of them first: nothing starts if one can't
        worlds[seed] = build.prepare(_one(full, seed, name), world=worlds.get(seed)).world
    if path is not None:
        folder.create(path, {folder.EXPERIMENT: full.to_toml()}, force)
    return _go_on(full, path, worlds, show)


def resume_comparison(out: str | Path, show: Show | None = None) -> Comparison:
    """Finish a comparison: load what is finished, resume what was begun, run the rest."""
    path = Path(out)
    return _go_on(folder.experiment(path), path, {}, show)


def load_comparison(out: str | Path) -> Comparison:
    """The runs of a comparison's folder that were begun, finished or not."""
    path = Path(out)
    experiment = folder.experiment(path)
    found = [_place(path, seed, name) for seed, name in _each(experiment)]
    return Comparison(experiment, [load(place) for place in found if place and folder.is_run(place)], path)


def _go_on(
    experiment: Experiment, path: Path | None, worlds: dict[int, World], show: Show | None
) -> Comparison:
    runs: list[Run] = []
    for seed, name in _each(experiment):
        place = _place(path, seed, name)
        if place is not None and folder.is_run(place) and folder.finished(place):
            runs.append(load(place))
            continue
        with show(f"{name}-{seed}") if show else nullcontext() as watch:
            if place is not None and folder.is_run(place):
                runs.append(resume(place, watch, world=worlds.get(seed)))
            else:
                one = _one(experiment, seed, name)
                runs.append(run(one, place, watch, world=worlds.get(seed)))
    return Comparison(experiment, runs, path)


def _each(experiment: Experiment) -> list[tuple[int, str]]:
    return [(seed, name) for name in experiment.compare for seed in experiment.seeds]


def _one(experiment: Experiment, seed: int, name: str) -> Experiment:
    return experiment.updated(algorithm=name, seed=seed, compare=[], seeds=[])


def _place(path: Path | None, seed: int, name: str) -> Path | None:
    return None if path is None else path / f"{name}-{seed}"


def _check_distinct(key: str, values: Sequence[Any]) -> None:
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ConfigError(f"{key} = {list(values)}: {value!r} is named twice")
