"""What is heard of runs that are computed in other processes, and who is told of it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol

from potluck.engine.schedule import Progress
from potluck.experiment.run_events import Callback, Event
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.screen import Screen
from potluck.experiment.telling import Watch, call_back
from potluck.federation import Federation


class Missing(NamedTuple):
    """A run that is to be computed."""

    name: str
    experiment: Experiment
    place: Path
    work: float = 1.0  # how long it takes, a whole one being 1
    state: str = "nothing"  # what is there of it: nothing, begun, or other (which is replaced)
    federation: Federation | None = None  # built already


class Done(NamedTuple):
    """What is told of a run that has ended; the rest is in its folder."""

    accuracy: float | None
    seconds: float  # of real time, all its sessions
    notices: list[str]
    failed: str | None = None  # why it couldn't go on


class Show(Protocol):
    """Follows runs for people."""

    def __call__(self, name: str) -> AbstractContextManager[Watch | None]: ...
    def say(self, text: str) -> None: ...
    def announce(
        self, number: int, total: int, left: float | None
    ) -> None: ...  # before a run; left: seconds

    # Of runs side by side, within `follow_many`; where: "" if it goes without saying; runs and seconds left.
    def follow_many(self) -> AbstractContextManager[None]: ...
    def on_start(self, name: str, where: str = "") -> None: ...
    def on_progress(self, name: str, progress: Progress) -> None: ...
    def on_end(
        self, name: str, accuracy: float | None, seconds: float, runs: int, left: float | None
    ) -> None: ...


def read_show(progress: Show | bool | None) -> Show | None:
    """Who follows runs; True: what the command line shows."""
    return Screen(quiet=False) if progress is True else progress or None


class Follower:
    """Hears of runs under way elsewhere, and tells who shows them and who wants to be called back.

    `runs` and `work` are what is left with them, `seconds` and `done` what was spent on how much work so far.
    """

    def __init__(
        self,
        show: Show | None = None,
        callbacks: Sequence[Callback] = (),
        runs: int = 0,
        work: float = 0.0,
        seconds: float = 0.0,
        done: float = 0.0,
    ) -> None:
        self.show, self.callbacks = show, callbacks
        self.runs, self.work, self.seconds, self.done = runs, work, seconds, done
        self.under_way = 0
        self.computed = 0
        self.failed: dict[Path, str] = {}  # runs that couldn't go on, and why

    @property
    def wants_events(self) -> bool:
        """Whether anybody hears what happens within runs; progress is always heard."""
        return bool(self.callbacks)

    def showing(self) -> AbstractContextManager[None]:
        """All that is heard is heard within this."""
        return nullcontext() if self.show is None else self.show.follow_many()

    def start(self, run: Missing, where: str = "") -> None:
        """A run has begun; `where`: such as `GPU 3`, if that doesn't go without saying."""
        self.under_way += 1
        if self.show is not None:
            self.show.on_start(run.name, where)

    def progress(self, run: Missing, progress: Progress) -> None:
        if self.show is not None:
            self.show.on_progress(run.name, progress)

    def event(self, event: Event) -> None:
        for callback in self.callbacks:
            call_back(callback, event)

    def say(self, text: str) -> None:
        """A line for people, about a run or a machine."""
        if self.show is not None:
            self.show.say(f"potluck: {text}")

    def end(self, run: Missing, came: Done) -> None:
        """A run has ended, good or not."""
        self.runs, self.work = self.runs - 1, self.work - run.work
        self.seconds, self.done = self.seconds + came.seconds, self.done + run.work
        self.computed += 1
        if came.failed is not None:
            self.failed[run.place] = came.failed
        if self.show is not None:
            left = self.seconds / self.done * self.work / max(1, min(self.under_way, self.runs))
            self.show.on_end(run.name, came.accuracy, came.seconds, self.runs, left)
        self.under_way -= 1
        for notice in came.notices:
            self.say(f"{run.name}: {notice}")
