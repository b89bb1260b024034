"""Learning rates, chosen alike for every method: the same grid, and judged on validation rows only.

Whoever compares methods at one fixed rate compares how well that rate suits each. The grid, all results and
what was chosen are written to tune.json, so that they can be published beside what was found with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from potluck import algorithms as registry
from potluck.core import safe_files
from potluck.core.codec import Json
from potluck.core.errors import PotluckError, error_context
from potluck.data import Pool
from potluck.experiment import folder, json_files
from potluck.experiment.launch import side_by_side
from potluck.experiment.launch.batch import RunBatch, RunRequest, Show
from potluck.experiment.prepare import name_pool
from potluck.experiment.schema import config_errors
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import Tune, dump_given


@dataclass(frozen=True)
class Tuning:
    """What every rate came to: final mean accuracy over devices, on their validation rows."""

    grid: list[float]  # rising
    seeds: list[int]
    length: float  # of a trial, as a share of a whole run
    results: dict[str, list[list[float]]]  # by method: a list for each rate, a number for each seed

    def means(self, method: str) -> list[float]:
        """Of every rate, over seeds."""
        return [fmean(accuracies) for accuracies in self.results[method]]

    def choice(self, method: str) -> float:
        """The rate with the best mean; the smaller one where two are equally good."""
        means = self.means(method)
        return self.grid[means.index(max(means))]

    def at_edge(self, method: str) -> bool:
        """Whether a rate outside of the grid might have been better still."""
        return len(self.grid) > 1 and self.choice(method) in (self.grid[0], self.grid[-1])

    def summary(self) -> dict[str, Json]:
        """The content of tune.json."""
        chosen = {
            method: {"lr": self.choice(method), "accuracy": max(means), "edge": self.at_edge(method)}
            for method, means in ((method, self.means(method)) for method in self.results)
        }
        return {**asdict(self), "on": "validation", "choices": chosen}


def tune(
    experiment: Experiment,
    algorithms: Sequence[str] | None = None,
    out: str | Path | None = None,
    show: Show | None = None,
    *,
    force: bool = False,
    jobs: int = 1,
    pool: Pool | None = None,
) -> Tuning:
    """Try every rate of [tune] with every algorithm; what a folder holds already isn't done again.

    `jobs`: trials that are computed at a time, in processes of their own; 0: one a core, where that helps.
    `pool`: your own data, as `run` takes them.
    """
    place = None if out is None else Path(out)
    side_by_side.check_jobs(jobs, place)
    names = [registry.canonical(name, "tune") for name in algorithms or experiment.compare]
    with error_context(experiment.source):
        names = names or [registry.canonical(experiment.algorithm)]
    config_errors.check_distinct("tune", names)
    if pool is not None:
        experiment = name_pool(experiment, pool)
    table = fill_tune(experiment)
    total = count_trials(len(names), table)
    batch = RunBatch(total, total * table.length, show, force=force, jobs=jobs, pool=pool)
    methods = {name: experiment.with_values(algorithm=name) for name in names}
    return search(methods, table, place, batch)


def fill_tune(experiment: Experiment) -> Tune:
    """[tune], or its defaults, with seeds: unless told, the first one of the experiment."""
    table = experiment.tune or Tune()
    first = (experiment.seeds or [experiment.seed])[0]
    return Tune(lr=sorted(table.lr), seeds=table.seeds or [first], length=table.length)


def count_trials(methods: int, table: Tune) -> int:
    """How many runs a search takes."""
    return methods * len(table.lr) * len(table.seeds)


def search(methods: Mapping[str, Experiment], table: Tune, out: Path | None, batch: RunBatch) -> Tuning:
    """The same grid for each of these experiments; trials go to folders `METHOD-RATE-SEED`."""
    results: dict[str, list[list[float]]] = {name: [[] for _ in table.lr] for name in methods}
    for name, experiment in methods.items():  # nothing starts if one can't
        rate, seed = table.lr[0], table.seeds[0]
        batch.check(_trial(experiment, rate, seed, table.length), _place(out, name, rate, seed))
    if out is not None:
        folder.make(out)
    asked = list_trials(methods, table, out)
    batch.compute_ahead(trial for _, _, trial in asked)
    for name, rate, trial in asked:
        done = batch.run(*trial)
        accuracy = done.summary["accuracy_mean"] if done.failed is None else 0.0  # a rate that breaks it
        if accuracy is None:
            raise PotluckError(f"{trial.name}: never evaluated, so its rate can't be judged; run it longer")
        results[name][rate].append(accuracy)
    tuning = Tuning(table.lr, table.seeds, table.length, results)
    if out is not None:
        json_files.write_json(out, folder.TUNED, tuning.summary())
    return tuning


def list_trials(
    methods: Mapping[str, Experiment], table: Tune, out: Path | None
) -> list[tuple[str, int, RunRequest]]:
    """What a search runs, seed by seed: of which method, at which rate of the grid."""
    return [
        (
            name,
            i,
            RunRequest(
                f"{name}-{rate:g}-{seed}",
                _trial(experiment, rate, seed, table.length),
                _place(out, name, rate, seed),
                table.length,
            ),
        )
        for seed in table.seeds
        for name, experiment in methods.items()
        for i, rate in enumerate(table.lr)
    ]


def set_rate(experiment: Experiment, rate: float) -> Experiment:
    """The experiment with its algorithm at another learning rate."""
    name = registry.canonical(experiment.algorithm)
    tables = dump_given(experiment).get("algorithms", {})
    own = tables.get(name, {})
    train = {**own.get("train", {}), "lr": rate}
    return experiment.with_values(algorithm=name, algorithms={**tables, name: {**own, "train": train}})


def load_tuning(out: Path) -> Tuning | None:
    """What was found in a folder; None if a search never got to its end there."""
    path, fix = out / folder.TUNED, "delete it and tune again"
    if not safe_files.has_file(out, folder.TUNED):
        return None
    content = json_files.read_table(out, folder.TUNED, fix)
    own = {key: value for key, value in content.items() if key in Tuning.__annotations__}
    tuning = json_files.make(own, Tuning, path, fix)
    if not all(len(tried) == len(tuning.grid) and all(tried) for tried in tuning.results.values()):
        raise json_files.damaged(path, "not one result for each rate", fix)
    return tuning


def _trial(experiment: Experiment, rate: float, seed: int, length: float) -> Experiment:
    """A run to its end, however good it is by then: who stops at a target can't be told apart."""
    stop, evaluate = experiment.stop, dump_given(experiment.evaluate)
    ends = {
        "rounds": None if stop.rounds is None else max(1, round(length * stop.rounds)),
        "seconds": None if stop.seconds is None else length * stop.seconds,
        "device_seconds": None if stop.device_seconds is None else length * stop.device_seconds,
    }
    evaluate = {key: value for key, value in evaluate.items() if key != "target"}
    return set_rate(experiment, rate).with_values(
        seed=seed,
        seeds=[],
        compare=[],
        tune=None,
        stop={key: value for key, value in ends.items() if value is not None},
        evaluate={**evaluate, "on": "validation"},
    )


def _place(out: Path | None, name: str, rate: float, seed: int) -> Path | None:
    return None if out is None else folder.find_below(out, f"{folder.to_path_part(name)}-{rate:g}-{seed}")
