"""Runs and comparisons from wherever they lie, put together as one comparison."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from potluck.core.errors import ConfigError
from potluck.experiment import Comparison, Experiment, Run, load
from potluck.experiment import folder as folders
from potluck.experiment.comparison import load_comparison


def gather(places: Sequence[Path]) -> Comparison:
    """What these folders hold: a run, a comparison, or runs somewhere below (a study's, say).

    Runs that differ in nothing but their seed belong together; what would share a name is told apart by
    the name of its experiment or by its folders.
    """
    if len(places) == 1 and folders.is_comparison(places[0]):
        found = load_comparison(places[0])
        if not found.runs:
            raise ConfigError(f"{places[0]}: no run has begun; `potluck resume {places[0]}` begins")
        return found
    runs = [run for place in places for run in _load_runs(place)]
    runs = list({run.path: run for run in runs}.values())  # named twice, shown once
    called = name_runs(runs)
    named = [
        replace(run, summary={**run.summary, "algorithm": name})
        for run, name in zip(runs, called, strict=True)
    ]
    first = runs[0].experiment
    titles = list(dict.fromkeys(run.experiment.name for run in runs))[:3]
    if len(places) == 1 and not folders.is_run(places[0]):
        titles = [folders.to_path_part(places[0].resolve().name)]
    seeds = sorted({run.summary["seed"] for run in runs})
    path = places[0] if len(places) == 1 else None
    return Comparison(first.with_values(name="-".join(titles), seeds=seeds), named, path)


def is_one_federation(comparison: Comparison) -> bool:
    """Whether all runs are of one crowd, so that what they came to can be set side by side."""
    return len({write_federation(run.experiment) for run in comparison.runs}) <= 1


def _load_runs(place: Path) -> list[Run]:
    if folders.is_run(place):
        return [load(place.resolve())]
    if not place.is_dir():
        raise ConfigError(f"{place}: no such folder; `potluck list` shows the runs that there are")
    below = sorted(path.parent for path in place.rglob(folders.PLAN) if folders.is_run(path.parent))
    below = [path for path in below if folders.TUNING not in path.relative_to(place).parts[:-1]]  # no trials
    if not below:
        raise ConfigError(
            f"{place}: holds no run (a run's folder has {folders.EXPERIMENT} and {folders.PLAN}); "
            "`potluck list` shows the runs that there are"
        )
    return [load(path.resolve()) for path in below]


def name_runs(runs: list[Run]) -> list[str]:
    """What each run is called: its algorithm, with more where that would mix different settings."""
    keys = [_write_setting(run.experiment) for run in runs]
    finers: tuple[Callable[[Path], Path], ...] = (lambda path: path.parent, lambda path: path)
    for finer in finers:
        twice = _find_repeated(runs, keys)  # copies of a run are of one setting, but no further seeds
        keys = [
            f"{key} {finer(_find_folder(run))}" if key in twice else key
            for run, key in zip(runs, keys, strict=True)
        ]
    first = dict(reversed(list(zip(keys, runs, strict=True))))
    parts: dict[str, list[str]] = {key: [] for key in first}
    mores: tuple[Callable[[Run], str], ...] = (
        lambda run: run.experiment.name,
        lambda run: _find_folder(run).parent.name,
        lambda run: _find_folder(run).name,
        lambda run: str(run.path),
    )
    for more in mores:
        called: dict[str, list[str]] = {}
        for key in first:
            called.setdefault(_join_name(first[key], parts[key]), []).append(key)
        for same in called.values():
            if len({more(first[key]) for key in same}) > 1:
                for key in same:
                    parts[key] = [more(first[key]), *parts[key]]
    return [_join_name(first[key], parts[key]) for key in keys]


def _find_folder(run: Run) -> Path:
    return run.path or Path()


def _join_name(run: Run, parts: list[str]) -> str:
    e = run.experiment
    mode = e.algorithms.get(e.algorithm, {}).get("mode")
    name = e.algorithm if mode in (None, "potluck") else f"{e.algorithm} {mode}"  # the default goes without
    name = "+".join([*e.layers, name])
    return ": ".join([", ".join(parts), name] if parts else [name])


def _find_repeated(runs: list[Run], keys: list[str]) -> set[str]:
    """Settings that have a seed twice."""
    pairs = [(key, run.summary["seed"]) for key, run in zip(keys, runs, strict=True)]
    return {key for (key, _), times in Counter(pairs).items() if times > 1}


def _write_setting(e: Experiment) -> str:
    return e.with_values(seed=0, name="x").to_toml()


def write_federation(e: Experiment) -> str:
    """What a comparison holds fixed: the data, the devices, the end."""
    alone = e.with_values(algorithm="fedavg", algorithms={}, layers=[], layer={})
    return alone.with_values(seed=0, name="x", robust=None, train={}, run={}).to_toml()
