"""Searches for settings, run stage by stage: all grids first, then one point of each method after another.

Where a search goes next stands in `search`. Several may go side by side, as those of a study's scenarios do.
Of several parts each computes trials of all grids, and then, of some methods, all that follows: so a part
waits for the others once, and no more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from potluck import algorithms as registry
from potluck.core.errors import ConfigError, ModelError, PotluckError, require
from potluck.experiment import folder, json_files
from potluck.experiment.launch.batch import RunBatch, RunRequest
from potluck.experiment.launch.part import Part
from potluck.experiment.prepare import resolve_run
from potluck.experiment.runs import Run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import dump_given
from potluck.experiment.schema.tune_table import Tune
from potluck.experiment.search import (
    Move,
    Point,
    Space,
    Trial,
    count_grid,
    count_points,
    next_move,
    spread,
)
from potluck.experiment.tuned_keys import find_space, list_lacking, name_trial, set_values
from potluck.experiment.tuning import Tuning
from potluck.layers import drop_fitted

K = TypeVar("K")
Methods = Mapping[str, Experiment]  # by name


def count_trials(methods: Methods, table: Tune) -> int:
    """How many runs a search takes, at most."""
    spaces = [_find_space(experiment, table) for experiment in methods.values()]
    return sum(count_points(space, table.trials, table.refine) for space in spaces) * len(table.seeds)


def count_own_trials(searches: Iterable[Methods], table: Tune, part: Part | None) -> int:
    """How many of these searches' runs are a part's, at most: dealt as `run_stages` does."""
    searches = list(searches)
    if part is None:
        return sum(count_trials(methods, table) for methods in searches)
    spaces = [_find_space(experiment, table) for methods in searches for experiment in methods.values()]
    grids = [count_grid(space, table.trials, table.refine) for space in spaces]
    follow = sum(
        count_points(space, table.trials, table.refine) - grid
        for turn, (space, grid) in enumerate(zip(spaces, grids, strict=True))
        if part.has(turn)
    )
    return part.count(sum(grids) * len(table.seeds)) + follow * len(table.seeds)


def check_trials(methods: Methods, table: Tune, check: Callable[[Experiment], object]) -> None:
    """Refuse a grid of which some value can't be run, before anything is: `check` makes what a run needs."""
    for experiment in methods.values():
        known = not table.shifts or len(experiment.evaluate.shifts) > 0
        fix = "there are none to judge by; give evaluate.shifts, such as [0.0, 0.5, 1.0]"
        require(known, "tune.shifts", True, fix)
        space = _find_space(experiment, table)
        points = spread(space, count_grid(space, table.trials, table.refine))
        others = [{**points[0], key: value} for key, values in space.items() for value in values]
        for point in [*points, *(point for point in others if point not in points)]:
            with _blame_table():
                check(_make_trial(experiment, point, table.seeds[0], table.length))


def search(
    searches: Mapping[K, tuple[Methods, Path | None]], table: Tune, batch: RunBatch
) -> dict[K, Tuning]:
    """What is best for every method of every search; several searches go side by side.

    Stage by stage: first all points of all grids, then one point of each method after another. Where this is
    one of several parts it needs what the others find, and ends until that is there.
    """
    found = begin_searches(searches, table, batch)
    run_stages(found.values(), table, batch)
    check_awaited(batch, sum(count_trials(methods, table) for methods, _ in searches.values()))
    return {key: one.finish() for key, one in found.items()}


def begin_searches(
    searches: Mapping[K, tuple[Methods, Path | None]], table: Tune, batch: RunBatch
) -> "dict[K, Searching]":
    found = {key: Searching(methods, table, out, batch) for key, (methods, out) in searches.items()}
    for one in found.values():  # nothing starts if one can't
        one.check()
    return found


def run_stages(searches: "Iterable[Searching]", table: Tune, batch: RunBatch) -> None:
    """Of several parts, each has trials of all grids, and then, of some methods, all that follows."""
    everyone = [method for one in searches for method in one.methods]
    for turn, method in enumerate(everyone):
        method.turn = turn
    stage, first = [(method, move) for method in everyone for move in method.list_first()], True
    while stage:
        _run_stage(stage, table, batch, first)
        stage = [(method, move) for method in everyone if (move := method.find_next(batch)) is not None]
        first = False
    for method in everyone:
        if method.waits and not batch.is_own(method.turn):
            batch.awaits(method.turn, method.count_left() * len(table.seeds))


def _run_stage(stage: "Sequence[tuple[_Method, Move]]", table: Tune, batch: RunBatch, first: bool) -> None:
    """Run these points with every seed, seed by seed: runs of one share their data."""
    pairs = [(i, method, move, seed) for seed in table.seeds for i, (method, move) in enumerate(stage)]
    asked = [
        (i, method.request(move.point, seed, place if first else method.turn))
        for place, (i, method, move, seed) in enumerate(pairs)
    ]
    batch.compute_ahead(request for _, request in asked)
    results: list[list[float]] = [[] for _ in stage]
    for i, request in asked:
        if batch.is_awaited(request):
            continue
        done = batch.run(*request)
        accuracy = _judge(done, table) if done.failed is None else 0.0  # settings that break it
        if accuracy is None:
            raise PotluckError(f"{request.name}: never evaluated, so it can't be judged; run it longer")
        results[i].append(accuracy)
    for (method, move), own in zip(stage, results, strict=True):
        method.asked += 1
        if len(own) == len(table.seeds):
            method.tried.append(
                Trial(point=move.point, origin=move.origin, key=move.key, results=own, mean=fmean(own))
            )
        else:
            method.waits = True


def check_awaited(batch: RunBatch, total: int, needed: bool = True) -> None:
    """Of several parts: end if trials of others are needed and aren't there."""
    if batch.awaited and needed and batch.spread.part is not None:
        raise batch.spread.part.explain_awaited(batch.awaited, total)


def _judge(run: Run, table: Tune) -> float | None:
    """How good a trial was; with shifts, by the first view that is scored at them."""
    if not table.shifts:
        return run.summary["accuracy_mean"]
    told = [line for line in run.lines if line["metric"] == "accuracy_shifted"]
    return fmean(line["value"]["mean"] for line in told if line["view"] == told[0]["view"]) if told else None


@dataclass
class _Method:
    """One method under way."""

    name: str
    experiment: Experiment
    table: Tune
    space: Space
    out: Path | None
    tried: list[Trial] = field(default_factory=list)
    refused: list[Point] = field(default_factory=list)
    ended: bool = False
    waits: bool = False  # for trials of other parts
    asked: int = 0  # points so far
    turn: int = 0  # among all methods, by which parts are dealt

    def list_first(self) -> list[Move]:
        wanted = count_grid(self.space, self.table.trials, self.table.refine)
        return [Move(point, "grid") for point in spread(self.space, wanted)]

    def find_next(self, batch: RunBatch) -> Move | None:
        """The next point that a run can have, if there is one and a trial is left for it."""
        left = self.count_left()
        if self.ended or self.waits or left <= 0:
            return None
        while (move := next_move(self.space, self.tried, self.refused)) is not None:
            if self._can_run(move.point, batch):
                return move
            self.refused.append(move.point)
        self.ended = True
        if batch.is_own(self.turn):
            runs = left * len(self.table.seeds)
            batch.drop(runs, runs * self.table.length)
        return None

    def count_left(self) -> int:
        """Points that it may still ask for."""
        return count_points(self.space, self.table.trials, self.table.refine) - self.asked

    def _can_run(self, point: Point, batch: RunBatch) -> bool:
        request = self.request(point, self.table.seeds[-1])  # whose data were used last
        try:
            resolve_run(request.experiment)
        except ConfigError:
            return False
        if batch.is_there(request.experiment, request.place):  # then it could
            return True
        try:
            batch.check(request.experiment, None)
        except (ConfigError, ModelError):
            return False
        return True

    def request(self, point: Point, seed: int, turn: int = 0) -> RunRequest:
        name, length = name_trial(self.name, self.space, point, seed), self.table.length
        place = None if self.out is None else folder.find_below(self.out, name)
        return RunRequest(name, _make_trial(self.experiment, point, seed, length), place, length, turn)


class Searching:
    """The methods that are tuned together, in one folder."""

    def __init__(self, methods: Methods, table: Tune, out: Path | None, batch: RunBatch) -> None:
        self.table, self.out, self.batch = table, out, batch
        self.methods = [
            _Method(name, experiment, table, _find_space(experiment, table), out)
            for name, experiment in methods.items()
        ]

    def check(self) -> None:
        """Build what can be wrong with a trial; what is there already was right."""
        by_name = {method.name: method.experiment for method in self.methods}
        first = [
            method.request(move.point, self.table.seeds[0])
            for method in self.methods
            for move in method.list_first()
        ]
        with _blame_table():
            there = all(self.batch.is_there(request.experiment, request.place) for request in first)
        if not there:
            check_trials(by_name, self.table, lambda trial: self.batch.check(trial, None))
        if self.out is not None:
            folder.make(self.out)

    def finish(self) -> Tuning:
        table, methods = self.table, self.methods
        tuning = Tuning(
            table.trials,
            table.refine,
            table.seeds,
            table.length,
            {method.name: {key: [*values] for key, values in method.space.items()} for method in methods},
            {m.name: list_lacking(table, registry.canonical(m.experiment.algorithm)) for m in methods},
            {method.name: method.tried for method in methods},
            {method.name: method.refused for method in methods},
            table.shifts,
        )
        if self.out is not None and self.batch.spread.part is None:  # several would write it at a time
            json_files.write_json(self.out, folder.TUNED, tuning.summary())
        return tuning


@contextmanager
def _blame_table() -> Iterator[None]:
    """Say that a setting which is refused comes from [tune]; that of a folder doesn't."""
    try:
        yield
    except ConfigError as error:
        if "algorithms." not in str(error):
            raise
        raise error.retell(f"{error} (by [tune])") from error.__cause__


def _find_space(experiment: Experiment, table: Tune) -> Space:
    return find_space(table, registry.canonical(experiment.algorithm))


def _make_trial(experiment: Experiment, point: Point, seed: int, length: float) -> Experiment:
    """A run to its end, however good it is by then: who stops at a target can't be told apart.

    Of models as they come: a fit over devices would be on the very rows by which settings are chosen.
    """
    stop, evaluate = experiment.stop, dump_given(experiment.evaluate)
    ends: dict[str, Any] = {
        "rounds": None if stop.rounds is None else max(1, round(length * stop.rounds)),
        "seconds": None if stop.seconds is None else length * stop.seconds,
        "device_seconds": None if stop.device_seconds is None else length * stop.device_seconds,
    }
    evaluate = {key: value for key, value in evaluate.items() if key != "target"}
    return set_values(experiment, point).with_values(
        seed=seed,
        seeds=[],
        compare=[],
        tune=None,
        stop={key: value for key, value in ends.items() if value is not None},
        evaluate={**evaluate, "on": "validation"},
        layers=drop_fitted(experiment.layers),
        layer={name: experiment.layer[name] for name in drop_fitted([*experiment.layer])},
        log={},
    )
