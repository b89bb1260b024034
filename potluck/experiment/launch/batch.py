"""Many runs, one after another or side by side: what is finished is loaded, what was begun is resumed.

So whoever asks for the same runs again, after a crash or for another page, waits only for what is missing.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol

from potluck.core.errors import ConfigError
from potluck.engine.schedule import Progress
from potluck.experiment import build, folder, runs, toml
from potluck.experiment.launch import side
from potluck.experiment.launch.side import Done, Missing
from potluck.experiment.runs import Run, Watch
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.tables import every
from potluck.federation import Federation

WORLDS = 2  # that are kept at a time: they may be large, and runs come seed by seed
NO_MATTER = (
    *("name", "algorithm", "algorithms", "compare", "seeds"),
    *("train", "robust", "stop", "evaluate", "tune"),
)


class Show(Protocol):
    """Follows runs for people."""

    def __call__(self, name: str) -> AbstractContextManager[Watch | None]: ...
    def say(self, text: str) -> None: ...
    def stand(self, number: int, total: int, left: float | None) -> None: ...  # before a run; left: seconds

    # Of runs side by side, within `beside`; runs and seconds that are left.
    def beside(self) -> AbstractContextManager[None]: ...
    def begun(self, name: str) -> None: ...
    def heard(self, name: str, progress: Progress) -> None: ...
    def ended(
        self, name: str, accuracy: float | None, seconds: float, runs: int, left: float | None
    ) -> None: ...


class Asked(NamedTuple):
    """A run that a batch is asked for."""

    name: str
    experiment: Experiment
    place: Path | None
    work: float = 1.0  # how long it takes, a whole one being 1


class Batch:
    """A number of runs, `jobs` at a time (0: one a core, where that helps).

    `force` replaces those that a folder holds with other settings.
    """

    def __init__(
        self, total: int, work: float, show: Show | None = None, *, force: bool = False, jobs: int = 1
    ) -> None:
        self.total, self.show, self.force, self.jobs = total, show, force, jobs
        self.number = 0  # of the run that is under way
        self.computed = 0  # since this start
        self.seconds = self.work = 0.0  # of all that are done
        self.left = work  # in whole runs
        self._worlds: dict[str, Federation] = {}
        self._said: set[str] = set()

    def check(self, experiment: Experiment, place: Path | None) -> None:
        """Build everything that can be wrong with a run, before the first one starts."""
        if _state(place, full := build.settled(experiment)[0], self.force) != "finished":
            build.prepare(experiment, federation=self._world(full))

    def ahead(self, asked: Iterable[Asked]) -> None:
        """Compute what is missing of the runs that are asked for next, if that is to be done side by side."""
        if self.jobs == 1:
            return
        missing, runs, work = list[Missing](), self.total - self.number, self.left
        for name, experiment, place, share in asked:
            state = _state(place, build.settled(experiment)[0], self.force)
            if place is not None and state != "finished":
                missing.append(Missing(name, experiment, place, share, state))
            else:
                runs, work = runs - 1, work - share
        if self.at_a_time(missing) > 1:
            self.compute(missing, runs, work)

    def at_a_time(self, missing: Sequence[Missing]) -> int:
        """How many of these to compute at a time, as far as their settings tell."""
        return self._explained(len(missing), *side.at_a_time(self.jobs, missing))

    def _explained(self, missing: int, jobs: int, why: str) -> int:
        """So many at a time; says once why not more, if that was left open."""
        if why and jobs == 1 < missing and self.show is not None and why not in self._said:
            self._said.add(why)
            self.show.say(f"potluck: one run at a time, since {why}; --jobs N: N at a time")
        return jobs

    def compute(self, missing: Sequence[Missing], runs: int, work: float) -> None:
        """Compute these side by side; so many runs, and so much work, are left with them."""
        show, seconds, done, jobs = self.show, self.seconds, self.work, self.jobs

        def ended(run: Missing, came: Done) -> None:
            nonlocal runs, work, seconds, done
            runs, work = runs - 1, work - run.work
            seconds, done = seconds + came.seconds, done + run.work
            self.computed += 1
            if show is not None:
                left = seconds / done * work / max(1, min(jobs, runs))
                show.ended(run.name, came.accuracy, came.seconds, runs, left)
                for remark in came.said:
                    show.say(f"potluck: {run.name}: {remark}")

        def begun(run: Missing) -> None:
            if show is not None:
                show.begun(run.name)

        def heard(run: Missing, progress: Progress) -> None:
            if show is not None:
                show.heard(run.name, progress)

        def federation(experiment: Experiment) -> Federation:
            return self._world(build.settled(experiment)[0])

        choices = side.decided(missing, federation)
        jobs = jobs or self._explained(len(missing), *side.with_workers(choices))
        with show.beside() if show else nullcontext():
            side.compute(missing, choices, jobs, federation, begun, heard, ended)

    def run(self, name: str, experiment: Experiment, place: Path | None, work: float = 1.0) -> Run:
        """A run as its folder has it, or computed; `work` is how long it takes, a whole one being 1."""
        full, _ = build.settled(experiment)
        state = _state(place, full, self.force)
        self.number += 1
        if state == "finished" and place is not None:
            done = runs.load(place)
        else:
            done = self._compute(name, experiment, place, state, self._world(full))
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
            self.show.stand(self.number, self.total, None if pace is None else pace * self.left)
        with self.show(name) if self.show else nullcontext() as watch:
            if state == "begun" and place is not None:
                done = runs.resume(place, watch, federation=federation)
            else:
                done = runs.run(experiment, place, watch, federation=federation, force=state == "other")
        if self.show is not None:
            for remark in done.said:
                self.show.say(f"potluck: {name}: {remark}")
        return done

    def _world(self, full: Experiment) -> Federation:
        """Data, devices and models, which runs share that differ in the rest only."""
        told = {key: value for key, value in every(full).items() if key not in NO_MATTER}
        key = toml.write({**told, "shifts": full.evaluate.shifts})  # test rows are laid out for them
        if key not in self._worlds:
            while len(self._worlds) >= WORLDS:
                self._worlds.pop(next(iter(self._worlds)))
            with build.located(full):
                self._worlds[key] = build.build_federation(full)
        return self._worlds[key]


def _state(place: Path | None, full: Experiment, force: bool) -> str:
    """What there is of a run: nothing, begun, finished, or other (another run, which may be replaced)."""
    if place is None or not folder.is_run(place):
        return "nothing"
    if (place / folder.EXPERIMENT).read_text() == full.to_toml():
        return "finished" if folder.finished(place) else "begun"
    if not force:
        raise ConfigError(
            f"{place}: holds a run with other settings; name another folder, or replace it with --force"
        )
    return "other"
