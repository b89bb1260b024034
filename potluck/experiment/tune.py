"""Settings, chosen alike for every method: as many trials each, judged on validation rows only.

Whoever compares methods at fixed settings compares how well those suit each; whoever tunes one method further
than another, how long each was tuned. So every method has the same number of trials, whatever it has to set:
who has one key searches that one the finer and wider. Where a search goes next stands in `search`, how it is
run in `tune_stages`. The trials and what was chosen are written to tune.json, so that they can be published
beside what was found with them.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from potluck.core.errors import error_context, require
from potluck.data import Pool
from potluck.experiment.arguments import read_out
from potluck.experiment.launch.batch import RunBatch
from potluck.experiment.launch.follower import Show, read_show
from potluck.experiment.launch.spread import Spread, read_spread
from potluck.experiment.methods import list_methods
from potluck.experiment.prepare import name_pool
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.tune_table import Tune
from potluck.experiment.tune_stages import (
    Methods,
    begin_searches,
    check_awaited,
    count_own_trials,
    count_trials,
    run_stages,
    search,
)
from potluck.experiment.tuned_keys import narrow
from potluck.experiment.tuning import Tuning


def tune(
    experiment: Experiment,
    algorithms: Sequence[str | Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    progress: Show | bool | None = None,
    *,
    force: bool = False,
    jobs: int | None = None,
    on: str | None = None,
    pool: Pool | None = None,
) -> Tuning:
    """Search the settings of [tune] for every algorithm, on validation rows; return every trial.

    `experiment`: what all trials have in common; its table `tune` says what to try.
    `algorithms`: names of algorithms, or tables as in the list `compare`; by default that list.
    `out`: a folder for the trials; what it holds already isn't computed again. Without one, in memory.
    `force`: replace that folder, if Potluck made it. `progress`: True shows how far trials are.
    `jobs`: how many trials to compute at a time, in processes of their own; 0: one a core, where that helps.
    `on`: other machines that compute them, such as 'ray:HOST:6379' (see docs/own/machines.md).
    `pool`: your own data, as for `run`.
    """
    place = read_out(experiment, out)
    spread = read_spread(jobs, place, on)
    if pool is not None:
        experiment = name_pool(experiment, pool)
    methods, table = _list_tuned(experiment, algorithms)
    batch = start_batch(methods, table, read_show(progress), spread, force, pool)
    return search({"": (methods, place)}, table, batch)[""]


def tune_part(
    experiment: Experiment,
    algorithms: Sequence[str | Mapping[str, Any]] | None,
    out: Path,
    progress: Show,
    *,
    part: str,
    jobs: int = 1,
) -> RunBatch:
    """Compute one part of a search's trials; others compute the rest."""
    spread = read_spread(jobs, out, part=part)
    methods, table = _list_tuned(experiment, algorithms)
    batch = start_batch(methods, table, progress, spread)
    found = begin_searches({"": (methods, out)}, table, batch)
    run_stages(found.values(), table, batch)
    needed = any(method.waits and batch.is_own(method.turn) for method in found[""].methods)
    check_awaited(batch, count_trials(methods, table), needed)
    return batch


def _list_tuned(
    experiment: Experiment, algorithms: Sequence[str | Mapping[str, Any]] | None
) -> tuple[dict[str, Experiment], Tune]:
    """What is tuned, by its name, and how."""
    listed = list_methods(experiment, algorithms or (), "tune")
    table = fill_tune(experiment, [method.algorithm for method in listed])
    return {method.label: method.lay_over(experiment) for method in listed}, table


def start_batch(
    methods: Methods,
    table: Tune,
    show: Show | None,
    spread: Spread,
    force: bool = False,
    pool: Pool | None = None,
) -> RunBatch:
    """What computes the trials of these methods, or a part of them."""
    own = count_own_trials([methods], table, spread.part)
    return RunBatch(own, own * table.length, show, force=force, spread=spread, pool=pool)


def fill_tune(experiment: Experiment, names: Sequence[str]) -> Tune:
    """[tune], or its defaults, as far as it concerns these algorithms, with seeds.

    Unless told, those are two that no result is of: settings that suit the crowds of the results by chance
    would flatter them.
    """
    table, own = experiment.tune or Tune(), experiment.seeds or [experiment.seed]
    beside = list_methods(experiment) if experiment.compare else []
    with error_context(experiment.source):
        table = narrow(table, names, [method.algorithm for method in beside])
        fix = "nothing would be tried; write lists of values, such as [tune.grid] train.lr = [0.03, 0.1]"
        require(bool(table.grid) or any(table.own.values()), "tune.grid", table.grid, fix)
        most = table.trials - 1
        fix = f"must be below tune.trials = {table.trials}: the first trials are of the grid; at most {most}"
        require(table.refine is None or table.refine <= most, "tune.refine", table.refine, fix)
    others = (seed for seed in count(11) if seed not in own)
    return Tune(**{**dict(table), "seeds": table.seeds or [next(others), next(others)]})
