"""Comparisons: several algorithms, several seeds, one crowd."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from potluck.core.errors import ConfigError, SnapshotError, require
from potluck.data import Pool
from potluck.experiment import code, folder, packages
from potluck.experiment.arguments import check_callbacks, read_out
from potluck.experiment.compared import Comparison
from potluck.experiment.launch.batch import RunBatch, RunRequest
from potluck.experiment.launch.follower import Missing, Show, read_show
from potluck.experiment.launch.spread import Spread, read_spread
from potluck.experiment.methods import Method, list_methods
from potluck.experiment.prepare import Setting, name_pool, prepare
from potluck.experiment.run_events import Callback
from potluck.experiment.runs import Run, load, resume, run
from potluck.experiment.schema import config_errors
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.log_table import Tool
from potluck.experiment.schema.settings import dump_given
from potluck.experiment.sinks import check_log
from potluck.experiment.tune import fill_tune, start_batch
from potluck.experiment.tune_stages import check_trials, search
from potluck.experiment.tuned_keys import set_values
from potluck.experiment.tuning import Tuning, load_tuning
from potluck.federation import Federation


def compare(
    experiment: Experiment,
    algorithms: Sequence[str | Mapping[str, Any]] | None = None,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    progress: Show | bool | None = None,
    *,
    force: bool = False,
    tuned: bool = False,
    jobs: int | None = None,
    on: str | None = None,
    pool: Pool | None = None,
    callbacks: Sequence[Callback] = (),
) -> Comparison:
    """Run every algorithm with every seed, and return the runs.

    `experiment`: what all of them have in common.
    `algorithms`: names of algorithms, labels of the experiment's list `compare`, or tables as in that list;
    by default that list. `seeds`: by default the experiment's.
    `out`: a folder for the runs; without one they stay in memory. If it holds this very comparison, that goes
    on. `force`: replace it, if Potluck made it.
    `progress`: True shows how far runs are; a function is told so.
    `tuned`: first search each algorithm's settings on validation rows, in as many trials each, by [tune].
    `jobs`: how many runs to compute at a time, in processes of their own; 0: one a core, where that helps.
    `on`: other machines that compute them, such as 'ray:HOST:6379' (see docs/own/machines.md).
    `pool`: your own data, as for `run`; `resume_comparison` goes on with such a comparison.
    `callbacks` follow all runs but trials, in this process.
    """
    path = read_out(experiment, out, callbacks)
    spread = read_spread(jobs, path, on)
    full, federations, files = _plan(experiment, algorithms, seeds, path, force, tuned, pool)
    if path is not None and (force or not _holds(path, full)):
        folder.create(path, files, force, full)
    return _go_on(full, path, federations, read_show(progress), spread, pool, callbacks)


def compare_part(
    experiment: Experiment,
    algorithms: Sequence[str | Mapping[str, Any]] | None,
    seeds: Sequence[int] | None,
    out: Path,
    progress: Show,
    *,
    part: str,
    tuned: bool = False,
    jobs: int = 1,
) -> RunBatch:
    """Compute one part of a comparison's trials and runs; others compute the rest."""
    spread = read_spread(jobs, out, part=part)
    full, _, files = _plan(experiment, algorithms, seeds, out, False, tuned, None)
    _do_unless_held(out, full, lambda: folder.create(out, files, False, full))
    tuning = _tune(full, out, progress, spread, None)
    asked = [
        RunRequest(
            f"{method.label}-{seed}", _one(full, seed, method, tuning), _place(out, seed, method), turn=i
        )
        for i, (seed, method) in enumerate(_each_by_seed(full))
    ]
    own = sum(spread.part is None or spread.part.has(request.turn) for request in asked)
    batch = RunBatch(own, own, progress, spread=spread)
    batch.compute_part(asked)
    return batch


def _plan(
    experiment: Experiment,
    algorithms: Sequence[str | Mapping[str, Any]] | None,
    seeds: Sequence[int] | None,
    path: Path | None,
    force: bool,
    tuned: bool,
    pool: Pool | None,
) -> tuple[Experiment, dict[int, Federation], dict[str, str]]:
    """A comparison to the last default, its crowds by seed, and the files of its folder; all is checked."""
    methods = list_methods(experiment, algorithms or ())
    require(seeds is None or isinstance(seeds, Sequence), "seeds", seeds, "write a list, such as [1, 2, 3]")
    asked = {*experiment.layers, *(n for method in methods for n in method.around.get("layers", []))}
    full = experiment.with_values(
        layer={name: own for name, own in experiment.layer.items() if name in asked},
        compare=[method.to_entry() for method in methods],
        seeds=list(seeds or experiment.seeds or [experiment.seed]),
    )
    config_errors.check_distinct("seeds", full.seeds)
    own = full.with_values(compare=experiment.compare)
    table = fill_tune(own, [method.algorithm for method in methods]) if tuned else None
    full = full.with_values(tune=None if table is None else dump_given(table))
    if pool is not None:
        full = name_pool(full, pool)
    check_log(full.log, path)
    if path is not None and force:
        folder.claim(path, force)
    elif path is not None:
        _do_unless_held(path, full, partial(folder.claim, path, False, full))
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
    files = {folder.EXPERIMENT: full.to_toml(), **code.record(), **packages.record(settings)}
    return full, federations, files


def _holds(path: Path, full: Experiment) -> bool:
    """Whether a folder holds this very comparison, which then goes on."""
    if not path.is_dir() or not folder.is_comparison(path) or not folder.is_same(path, full):
        return False
    code.check_same(path)
    packages.check_same(path)
    return True


def _do_unless_held(path: Path, full: Experiment, prepare_folder: Callable[[], None]) -> None:
    """See to a comparison's folder, unless it is there; another part may be faster meanwhile."""
    if _holds(path, full):
        return
    try:
        prepare_folder()
    except ConfigError:
        if not _holds(path, full):
            raise


def resume_comparison(
    out: str | Path,
    progress: Show | bool | None = None,
    jobs: int | None = None,
    *,
    on: str | None = None,
    pool: Pool | None = None,
    callbacks: Sequence[Callback] = (),
    log: Sequence[Tool] | None = None,
) -> Comparison:
    """Finish a comparison: load what is finished, resume what was begun, run the rest.

    `out`: its folder. `progress`, `jobs`, `on` and `callbacks`: as for `compare`.
    `pool`: the data that it was started with, if any.
    `log`: tools that follow what is left from now on, in place of those of [log].
    """
    path = Path(out)
    check_callbacks(callbacks)
    spread = read_spread(jobs, path, on)
    experiment = _read(path)
    if pool is not None and name_pool(experiment, pool).data.path != experiment.data.path:
        raise SnapshotError(
            f"{path}: compares algorithms on {experiment.data.path}, and this pool is another; give that one"
        )
    code.check_same(path)
    packages.check_same(path)
    if log is not None:
        experiment = _change_log(experiment.with_values(log={"to": list(log)}), path)
    check_log(experiment.log, path)
    return _go_on(experiment, path, {}, read_show(progress), spread, pool, callbacks)


def load_comparison(out: str | Path) -> Comparison:
    """The runs of a comparison's folder that were begun, finished or not."""
    path = Path(out)
    experiment = _read(path)
    found = [(method, _place(path, seed, method)) for seed, method in _each(experiment)]
    runs = [_label(load(place), method) for method, place in found if place and folder.is_run(place)]
    return Comparison(experiment, runs, path, load_tuning(folder.find_below(path, folder.TUNING)))


def is_complete(path: Path) -> bool:
    """Whether all runs of a comparison's folder are finished."""
    places = (_place(path, seed, method) for seed, method in _each(_read(path)))
    return all(place is not None and folder.is_finished(place) for place in places)


def _read(path: Path) -> Experiment:
    """What a comparison's folder was made from."""
    folder.check_links(path)
    experiment = folder.experiment(path)
    if not experiment.compare or not experiment.seeds:
        where = path / folder.EXPERIMENT
        raise SnapshotError(f"{where}: names no runs to compare (compare, seeds); put the old file back")
    return experiment


def _change_log(experiment: Experiment, path: Path) -> Experiment:
    """In its folder, and in those of runs that aren't over."""
    for place in (path, *(_place(path, seed, method) for seed, method in _each(experiment))):
        if place == path or (place is not None and folder.is_run(place) and not folder.is_finished(place)):
            folder.change_log(place, experiment.log)
    return experiment


def _go_on(
    experiment: Experiment,
    path: Path | None,
    federations: dict[int, Federation],
    show: Show | None,
    spread: Spread,
    pool: Pool | None,
    callbacks: Sequence[Callback],
) -> Comparison:
    runs: list[Run] = []
    tuning = _tune(experiment, path, show, spread, pool)
    missing = list(_missing(experiment, path, federations, tuning))
    batch = RunBatch(len(missing), len(missing), show, spread=spread, pool=pool, callbacks=callbacks)
    batch.compute(missing, len(missing), len(missing))
    for seed, method in _each(experiment):
        place, federation = _place(path, seed, method), federations.get(seed)
        if place is not None and folder.is_run(place) and folder.is_finished(place):
            runs.append(_label(load(place), method))
            continue
        if place in batch.failed:  # side by side; it would fail again
            runs.append(_label(replace(load(place), failed=batch.failed[place]), method))
            continue
        name = f"{method.label}-{seed}"
        with show(name) if show else nullcontext() as watch:
            if place is not None and folder.is_run(place):
                done = resume(
                    place,
                    watch,
                    federation=federation,
                    pool=pool,
                    callbacks=callbacks,
                    name=name,
                    lenient=True,
                )
            else:
                done = run(
                    _one(experiment, seed, method, tuning),
                    place,
                    watch,
                    federation=federation,
                    pool=pool,
                    callbacks=callbacks,
                    name=name,
                    lenient=True,
                )
        runs.append(_label(done, method))
    return Comparison(experiment, runs, path, tuning)


def _missing(
    experiment: Experiment, path: Path | None, federations: dict[int, Federation], tuning: Tuning | None
) -> Iterator[Missing]:
    """The runs that aren't finished, seed by seed: those of one share their data."""
    for seed, method in _each_by_seed(experiment):
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
    experiment: Experiment, path: Path | None, show: Show | None, spread: Spread, pool: Pool | None
) -> Tuning | None:
    table = experiment.tune
    if table is None:
        return None
    methods = _methods(experiment)
    batch = start_batch(methods, table, show, spread, pool=pool)
    place = None if path is None else folder.find_below(path, folder.TUNING)
    return search({"": (methods, place)}, table, batch)[""]


def _methods(experiment: Experiment) -> dict[str, Experiment]:
    """What is tuned, by its name."""
    seed = experiment.seeds[0]
    return {method.label: _one(experiment, seed, method) for method in list_methods(experiment)}


def _each(experiment: Experiment) -> list[tuple[int, Method]]:
    return [(seed, method) for method in list_methods(experiment) for seed in experiment.seeds]


def _each_by_seed(experiment: Experiment) -> list[tuple[int, Method]]:
    """In the order in which they are computed: those of one seed share their data."""
    return sorted(_each(experiment), key=lambda each: experiment.seeds.index(each[0]))


def _one(experiment: Experiment, seed: int, method: Method, tuning: Tuning | None = None) -> Experiment:
    one = method.lay_over(experiment, seed=seed, compare=[], seeds=[], tune=None)
    return one if tuning is None else set_values(one, tuning.choice(method.label))


def _place(path: Path | None, seed: int, method: Method) -> Path | None:
    name = f"{folder.to_path_part(method.label)}-{seed}"
    return None if path is None else folder.find_below(path, name)


def _label(run: Run, method: Method) -> Run:
    """The run under the name that it is compared by."""
    return replace(run, summary={**run.summary, "algorithm": method.label})
