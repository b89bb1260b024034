"""Comparisons: several algorithms, several seeds, one crowd."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from potluck import metrics
from potluck.core.errors import SnapshotError
from potluck.data import Pool
from potluck.experiment import code, folder, packages
from potluck.experiment.launch import side_by_side
from potluck.experiment.launch.batch import RunBatch, Show
from potluck.experiment.launch.side_by_side import Missing
from potluck.experiment.methods import Method, list_methods
from potluck.experiment.prepare import Setting, name_pool, prepare
from potluck.experiment.runs import Run, load, resume, run
from potluck.experiment.schema import config_errors
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import dump_given
from potluck.experiment.summary import tell_tested
from potluck.experiment.tune import check_trials, count_trials, fill_tune, search
from potluck.experiment.tuned_keys import set_values
from potluck.experiment.tuning import Tuning, load_tuning
from potluck.federation import Federation
from potluck.metrics import Estimate

Shown = Literal[
    "accuracy_mean", "accuracy_worst10", "accuracy_best10", "global_accuracy", "rounds", "device_seconds"
]


@dataclass(frozen=True)
class Row:
    """What one algorithm came to, over its seeds."""

    algorithm: str
    accuracy: Estimate
    difference: Estimate | None  # in accuracy, against the first algorithm, over two seeds or more
    worst: Estimate
    best: Estimate
    everywhere: Estimate  # accuracy on the global test set
    tested: str  # which models that is of
    seconds_to_target: Estimate  # virtual
    speed_up: float | None  # against the first algorithm
    rounds: Estimate
    bytes: Estimate
    device_seconds: Estimate


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs that differ only in algorithm and seed; `rows` has a line of results for each algorithm."""

    experiment: Experiment
    runs: list[Run]
    path: Path | None = None
    tuning: Tuning | None = None  # where their settings come from

    @property
    def algorithms(self) -> list[str]:
        return list(dict.fromkeys(run.summary["algorithm"] for run in self.runs))

    @property
    def failed(self) -> dict[str, str]:
        """Runs that couldn't go on, and why; their rows are of how far they came."""
        return {run.name: run.failed for run in self.runs if run.failed is not None}

    def of(self, algorithm: str) -> list[Run]:  # by its label
        return [run for run in self.runs if run.summary["algorithm"] == algorithm]

    def time(self, run: Run) -> float | None:
        """Virtual seconds until one of the runs was first seen at the target; None if it never was."""
        return metrics.time_to(metrics.series(run.lines, "accuracy_mean", run.summary["view"]), self.target)

    @cached_property
    def target(self) -> float | None:
        """The accuracy that algorithms race to: the experiment's, or what the first one ends with."""
        wanted = self.experiment.stop.target or self.experiment.evaluate.target
        return (
            wanted or Estimate.of([run.summary["accuracy_mean"] for run in self.of(self.algorithms[0])]).mean
        )

    @property
    def tested(self) -> dict[str, str]:
        """Which models the global test is of, by algorithm."""
        return {row.algorithm: row.tested for row in self.rows}

    @cached_property
    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for name in self.algorithms:
            taken = [self.time(run) for run in self.of(name)]
            base = rows[0].seconds_to_target.mean if rows else Estimate.of(taken).mean
            own = Estimate.of(taken).mean
            rows.append(
                Row(
                    algorithm=name,
                    accuracy=self._estimate(name, "accuracy_mean"),
                    difference=self._difference(name) if rows else None,
                    worst=self._estimate(name, "accuracy_worst10"),
                    best=self._estimate(name, "accuracy_best10"),
                    everywhere=self._estimate(name, "global_accuracy"),
                    tested=tell_tested(run.summary for run in self.of(name)),
                    seconds_to_target=Estimate.of(taken),
                    speed_up=base / own if base is not None and own else None,
                    rounds=self._estimate(name, "rounds"),
                    bytes=Estimate.of(
                        [r.summary["bytes_up"] + r.summary["bytes_down"] for r in self.of(name)]
                    ),
                    device_seconds=self._estimate(name, "device_seconds"),
                )
            )
        return rows

    def _estimate(self, algorithm: str, key: Shown) -> Estimate:
        return Estimate.of([run.summary[key] for run in self.of(algorithm)])

    def _difference(self, algorithm: str) -> Estimate | None:
        base, own = (
            {run.summary["seed"]: run.summary["accuracy_mean"] for run in self.of(name)}
            for name in (self.algorithms[0], algorithm)
        )
        common = [seed for seed in base if seed in own]  # a comparison that is under way may lack some
        if len(common) < 2:
            return None
        return metrics.paired_difference([own[seed] for seed in common], [base[seed] for seed in common])


def compare(
    experiment: Experiment,
    algorithms: Sequence[str | Mapping[str, Any]] | None = None,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    show: Show | None = None,
    *,
    force: bool = False,
    tuned: bool = False,
    jobs: int = 1,
    pool: Pool | None = None,
) -> Comparison:
    """Run every algorithm with every seed, and return the runs.

    `experiment`: what all of them have in common.
    `algorithms`: names of algorithms, labels of the experiment's list `compare`, or tables as in that list;
    by default that list. `seeds`: by default the experiment's.
    `out`: a folder for the runs; without one they stay in memory. `force`: replace it, if Potluck made it.
    `show`: a function that is told of the progress of all runs.
    `tuned`: first search each algorithm's settings on validation rows, in as many trials each, by [tune].
    `jobs`: how many runs to compute at a time, in processes of their own; 0: one a core, where that helps.
    `pool`: your own data, as for `run`; `resume_comparison` goes on with such a comparison.
    """
    methods = list_methods(experiment, algorithms or ())
    full = experiment.with_values(
        compare=[method.to_entry() for method in methods],
        seeds=list(seeds or experiment.seeds or [experiment.seed]),
    )
    config_errors.check_distinct("seeds", full.seeds)
    own = full.with_values(compare=experiment.compare)
    table = fill_tune(own, [method.algorithm for method in methods]) if tuned else None
    full = full.with_values(tune=None if table is None else dump_given(table))
    if pool is not None:
        full = name_pool(full, pool)
    path = None if out is None else Path(out)
    side_by_side.check_jobs(jobs, path)
    if path is not None:
        folder.claim(path, force)
    federations: dict[int, Federation] = {}
    settings: list[Setting] = []
    for seed, method in _each(full):  # all of them first: nothing starts if one can't
        with method.blame():
            one = _one(full, seed, method)
            settings.append(prepare(one, federation=federations.get(seed), pool=pool))
        federations[seed] = settings[-1].federation
    if table is not None:
        first = federations[full.seeds[0]]
        check_trials(_methods(full), table, lambda trial: prepare(trial, federation=first, pool=pool))
    if path is not None:
        files = {folder.EXPERIMENT: full.to_toml(), **code.record(), **packages.record(settings)}
        folder.create(path, files, force)
    return _go_on(full, path, federations, show, jobs, pool)


def resume_comparison(
    out: str | Path, show: Show | None = None, jobs: int = 1, *, pool: Pool | None = None
) -> Comparison:
    """Finish a comparison: load what is finished, resume what was begun, run the rest.

    `out`: its folder. `show`, `jobs`: as for `compare`. `pool`: the data that it was started with, if any.
    """
    path = Path(out)
    side_by_side.check_jobs(jobs, path)
    experiment = _read(path)
    if pool is not None and name_pool(experiment, pool).data.path != experiment.data.path:
        raise SnapshotError(
            f"{path}: compares algorithms on {experiment.data.path}, and this pool is another; give that one"
        )
    code.check_same(path)
    packages.check_same(path)
    return _go_on(experiment, path, {}, show, jobs, pool)


def load_comparison(out: str | Path) -> Comparison:
    """The runs of a comparison's folder that were begun, finished or not."""
    path = Path(out)
    experiment = _read(path)
    found = [(method, _place(path, seed, method)) for seed, method in _each(experiment)]
    runs = [_label(load(place), method) for method, place in found if place and folder.is_run(place)]
    return Comparison(experiment, runs, path, load_tuning(folder.find_below(path, folder.TUNING)))


def _read(path: Path) -> Experiment:
    """What a comparison's folder was made from."""
    folder.check_links(path)
    experiment = folder.experiment(path)
    if not experiment.compare or not experiment.seeds:
        where = path / folder.EXPERIMENT
        raise SnapshotError(f"{where}: names no runs to compare (compare, seeds); put the old file back")
    return experiment


def _go_on(
    experiment: Experiment,
    path: Path | None,
    federations: dict[int, Federation],
    show: Show | None,
    jobs: int,
    pool: Pool | None,
) -> Comparison:
    runs: list[Run] = []
    tuning = _tune(experiment, path, show, jobs, pool)
    missing = list(_missing(experiment, path, federations, tuning))
    batch = RunBatch(len(missing), len(missing), show, jobs=jobs, pool=pool)
    if len(missing) > 1 and batch.limit_jobs(missing) > 1:
        batch.compute(missing, len(missing), len(missing))
    for seed, method in _each(experiment):
        place, federation = _place(path, seed, method), federations.get(seed)
        if place is not None and folder.is_run(place) and folder.is_finished(place):
            runs.append(_label(load(place), method))
            continue
        if place in batch.failed:  # side by side; it would fail again
            runs.append(_label(replace(load(place), failed=batch.failed[place]), method))
            continue
        with show(f"{method.label}-{seed}") if show else nullcontext() as watch:
            if place is not None and folder.is_run(place):
                done = resume(place, watch, federation=federation, pool=pool, lenient=True)
            else:
                one = _one(experiment, seed, method, tuning)
                done = run(one, place, watch, federation=federation, pool=pool, lenient=True)
        runs.append(_label(done, method))
    return Comparison(experiment, runs, path, tuning)


def _missing(
    experiment: Experiment, path: Path | None, federations: dict[int, Federation], tuning: Tuning | None
) -> Iterator[Missing]:
    """The runs that aren't finished, seed by seed: those of one share their data."""
    for seed, method in sorted(_each(experiment), key=lambda each: experiment.seeds.index(each[0])):
        place = _place(path, seed, method)
        if place is None or folder.is_finished(place):
            continue
        begun = folder.is_run(place)
        one = folder.experiment(place) if begun else _one(experiment, seed, method, tuning)
        yield Missing(
            f"{method.label}-{seed}",
            one,
            place,
            state="begun" if begun else "nothing",
            federation=federations.get(seed),
        )


def _tune(
    experiment: Experiment, path: Path | None, show: Show | None, jobs: int, pool: Pool | None
) -> Tuning | None:
    table = experiment.tune
    if table is None:
        return None
    methods = _methods(experiment)
    total = count_trials(methods, table)
    batch = RunBatch(total, total * table.length, show, jobs=jobs, pool=pool)
    place = None if path is None else folder.find_below(path, folder.TUNING)
    return search({"": (methods, place)}, table, batch)[""]


def _methods(experiment: Experiment) -> dict[str, Experiment]:
    """What is tuned, by its name."""
    seed = experiment.seeds[0]
    return {method.label: _one(experiment, seed, method) for method in list_methods(experiment)}


def _each(experiment: Experiment) -> list[tuple[int, Method]]:
    return [(seed, method) for method in list_methods(experiment) for seed in experiment.seeds]


def _one(experiment: Experiment, seed: int, method: Method, tuning: Tuning | None = None) -> Experiment:
    one = method.lay_over(experiment, seed=seed, compare=[], seeds=[], tune=None)
    return one if tuning is None else set_values(one, tuning.choice(method.label))


def _place(path: Path | None, seed: int, method: Method) -> Path | None:
    name = f"{folder.to_path_part(method.label)}-{seed}"
    return None if path is None else folder.find_below(path, name)


def _label(run: Run, method: Method) -> Run:
    """The run under the name that it is compared by."""
    return replace(run, summary={**run.summary, "algorithm": method.label})
