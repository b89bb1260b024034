"""Many runs, one after another or side by side: what is finished is loaded, what was begun is resumed.

So whoever asks for the same runs again, after a crash or for another page, waits only for what is missing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from potluck.core.errors import ConfigError, RunError
from potluck.data import Pool
from potluck.experiment import code, folder, packages, runs
from potluck.experiment.launch import side_by_side
from potluck.experiment.launch.cards import list_cards, uses_card
from potluck.experiment.launch.federations import Federations
from potluck.experiment.launch.follower import Follower, Missing, Show
from potluck.experiment.launch.spread import Spread
from potluck.experiment.prepare import prepare, resolve_run
from potluck.experiment.run_events import Callback
from potluck.experiment.runs import Run
from potluck.experiment.schema.experiment import Experiment
from potluck.federation import Federation


class RunRequest(NamedTuple):
    """A run that a batch is asked for."""

    name: str
    experiment: Experiment
    place: Path | None
    work: float = 1.0  # how long it takes, a whole one being 1
    turn: int = 0  # its place in the list of all, by which parts are dealt


class RunBatch:
    """A number of runs, spread over cores or machines.

    `force` replaces those that a folder holds with other settings; `pool` holds their data, if no file does.
    `callbacks` hear of those that are computed in other processes.
    """

    def __init__(
        self,
        total: int,
        work: float,
        show: Show | None = None,
        *,
        force: bool = False,
        spread: Spread = Spread(),
        pool: Pool | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.callbacks = callbacks
        self.total, self.show, self.force, self.spread, self.pool = total, show, force, spread, pool
        self.number = 0  # of the run that is under way
        self.computed = 0  # since this start
        self.seconds = self.work = 0.0  # of all that are done
        self.left = work  # in whole runs
        self.failed: dict[Path, str] = {}  # runs that couldn't go on, and why
        self.awaited = Counter[int]()  # runs that other parts haven't computed yet, by part
        self._federations = Federations(pool)
        self._explained_already: set[str] = set()
        self._cards: list[str] | None = None  # of this machine, once they were looked for

    def check(self, experiment: Experiment, place: Path | None) -> None:
        """Build everything that can be wrong with a run, before the first one starts."""
        if _state(place, full := resolve_run(experiment), self.force) != "finished":
            prepare(experiment, federation=self._federations.find(full))

    def is_there(self, experiment: Experiment, place: Path | None) -> bool:
        """Whether a folder holds this very run, begun or finished; another one is refused, as ever."""
        return _state(place, resolve_run(experiment), self.force) in ("begun", "finished")

    def drop(self, runs: int, work: float) -> None:
        """So many runs fewer than was said at first, and so much less work."""
        self.total -= runs
        self.left -= work

    def compute_ahead(self, asked: Iterable[RunRequest]) -> None:
        """Compute what is missing of the runs that are asked for next, unless each is computed as it is."""
        if self.spread.one_by_one:
            return
        missing, runs, work = list[Missing](), self.total - self.number, self.left
        for name, experiment, place, share, turn in asked:
            if not self.is_own(turn):
                continue
            state = _state(place, resolve_run(experiment), self.force)
            if place is not None and state != "finished":
                missing.append(Missing(name, experiment, place, share, state))
            else:
                runs, work = runs - 1, work - share
        self.compute(missing, runs, work)

    def compute_part(self, asked: Iterable[RunRequest]) -> None:
        """Compute those of these runs that are this part's; which couldn't go on is told at the end."""
        own = [request for request in asked if self.is_own(request.turn)]
        self.compute_ahead(own)
        done = {request.name: self.run(*request) for request in own}
        if failed := [f"{name}: {run.failed}" for name, run in done.items() if run.failed is not None]:
            raise RunError("; ".join(failed))

    def is_own(self, turn: int) -> bool:
        """Whether a run is this part's to compute, by its place in the list of all."""
        return self.spread.part is None or self.spread.part.has(turn)

    def is_awaited(self, request: RunRequest) -> bool:
        """Whether another part has yet to compute a run; it has if the run couldn't go on there."""
        part, place = self.spread.part, request.place
        if part is None or part.has(request.turn) or place is None:
            return False
        if _state(place, resolve_run(request.experiment), self.force) == "finished":
            return False
        if folder.has_failed(place):
            self.failed[place] = f"it couldn't go on in part {part.find(request.turn)}"
            return False
        self.awaits(request.turn, 1)
        return True

    def awaits(self, turn: int, runs: int) -> None:
        """Count runs that another part has yet to compute."""
        if self.spread.part is not None and runs:
            self.awaited[self.spread.part.find(turn)] += runs

    def compute(self, missing: Sequence[Missing], runs: int, work: float) -> None:
        """Decide where runs are computed: on other machines, or side by side in processes of this one.

        Else nothing is done here, and each is computed in this process when it is asked for. So many runs,
        and so much work, are left with them.
        """
        follower = Follower(self.show, self.callbacks, runs, work, self.seconds, self.work)
        if missing and self.spread.where is not None:
            self.spread.where.compute(missing, self.spread.jobs, self.pool, follower)
        elif missing and self._are_apart(missing):
            self._compute_beside(missing, follower)
        self.computed += follower.computed
        self.failed |= follower.failed

    def _are_apart(self, missing: Sequence[Missing]) -> bool:
        """Whether these have processes of their own. A single run needs none, unless it uses a GPU: whoever
        has done that can't start any more processes that do."""
        alone = len(missing) == 1 and self.total <= 1 and missing[0].experiment.run.device == "cpu"
        return not (self.spread.one_by_one or alone) and self._limit_jobs(missing) > 1

    def _limit_jobs(self, missing: Sequence[Missing]) -> int:
        """How many of these to compute at a time, as far as their settings tell."""
        cards = 0 if self.spread.jobs else len(self._list_cards(missing))
        return self._explain(len(missing), *side_by_side.limit_jobs(self.spread.jobs, missing, cards))

    def _explain(self, missing: int, jobs: int, why: str) -> int:
        """So many at a time; says once why not more, if that was left open."""
        if why and jobs == 1 < missing and self.show is not None and why not in self._explained_already:
            self._explained_already.add(why)
            self.show.say(f"potluck: one run at a time, since {why}; --jobs N: N at a time")
        return jobs

    def _compute_beside(self, missing: Sequence[Missing], follower: Follower) -> None:
        def build_federation(experiment: Experiment) -> Federation:
            return self._federations.find(resolve_run(experiment))

        cards = self._list_cards(missing)
        jobs = self.spread.jobs or len(cards)
        sharing = math.ceil(min(jobs, len(missing)) / len(cards)) if cards else 1
        choices = side_by_side.choose_plans(missing, build_federation, cards, sharing)
        jobs = jobs or self._explain(len(missing), *side_by_side.limit_jobs_beside_workers(choices))
        side_by_side.compute(missing, choices, jobs, build_federation, follower, cards)

    def _list_cards(self, missing: Sequence[Missing]) -> list[str]:
        """The names of this machine's GPUs, if any of these runs uses one in a process of its own."""
        if not any(map(uses_card, missing)) or (self.spread.jobs == 0 and torch.cuda.is_initialized()):
            return []
        if self._cards is None:
            self._cards = list_cards()
            if len(kinds := sorted(set(self._cards))) > 1 and self.show is not None:
                told = f"this machine has GPUs of {len(kinds)} kinds ({', '.join(kinds)})"
                self.show.say(f"potluck: {told}: a run's last digits depend on which of them computes it")
        return self._cards

    def run(
        self, name: str, experiment: Experiment, place: Path | None, work: float = 1.0, turn: int = 0
    ) -> Run:
        """A run as its folder has it, or computed; `work` is how long it takes, a whole one being 1.

        One that can't go on is given as far as it came, with `failed`.
        """
        full = resolve_run(experiment)
        state = _state(place, full, self.force)
        self.number += self.is_own(turn)
        if state == "finished" and place is not None:
            done = runs.load(place)
        elif place in self.failed:
            done = replace(runs.load(place), failed=self.failed[place])
        else:
            done = self._compute(name, experiment, place, state, self._federations.find(full))
        if self.is_own(turn):
            self.seconds += done.summary["wall_seconds"]
            self.work += work
            self.left -= work
        return done

    def _compute(
        self, name: str, experiment: Experiment, place: Path | None, state: str, federation: Federation
    ) -> Run:
        self.computed += 1
        if self.show is not None:
            pace = self.seconds / self.work if self.work else None
            self.show.announce(self.number, self.total, None if pace is None else pace * self.left)
        with self.show(name) if self.show else nullcontext() as watch:
            if state == "begun" and place is not None:
                done = runs.resume(place, watch, federation=federation, lenient=True)
            else:
                force = state == "other"
                done = runs.run(experiment, place, watch, federation=federation, force=force, lenient=True)
        if self.show is not None:
            for notice in done.notices:
                self.show.say(f"potluck: {name}: {notice}")
        return done


def _state(place: Path | None, full: Experiment, force: bool) -> str:
    """What there is of a run: nothing, begun, finished, or other (another run, which may be replaced)."""
    if place is None or not folder.is_run(place):
        return "nothing"
    if folder.is_same(place, full):
        if force and (code.read_record(place) != code.find_loaded() or packages.find_changes(place)):
            return "other"
        code.check_same(place)
        packages.check_same(place)
        return "finished" if folder.is_finished(place) else "begun"
    if not force:
        raise ConfigError(
            f"{place}: holds a run with other settings; name another folder, or replace it with --force"
        )
    return "other"
