"""Signs of life: who is at work while a run is computed, for those who watch it.

A line a second at most, and fewer while little changes, in a file of its own. It is no part of what a run
comes to: nothing is computed from it, and it depends on how fast this machine is. With each line the records
that have been written so far can be read by others, too.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypedDict

import numpy as np

from potluck.core import safe_files
from potluck.core.errors import ClaimError, StorageError
from potluck.engine.accounts import Accounts
from potluck.engine.records import Records
from potluck.engine.schedule import Progress
from potluck.experiment.folder import PULSE
from potluck.experiment.launch.hardware import identify_machine
from potluck.simulate import Simulation

OFTEN, SELDOM = 1.0, 10.0  # seconds between two lines: at least, and at most where little changes
STEP = 1 / 500  # of the way to the end: less is little
COST = 0.01  # of the time, at most, goes into counting devices


class Crowd(NamedTuple):
    """How many devices there are, can be reached, and have something to do."""

    devices: int
    online: int
    working: int
    tiers: dict[str, int]  # the first aggregator of each


class Beat(TypedDict):
    """A line of pulse.jsonl."""

    at: float  # seconds since 1970
    where: str  # the machine
    round: int
    time: float  # virtual seconds
    done: float  # share of the way to the end
    devices: int
    online: int
    working: int
    tiers: dict[str, int]
    tasks: int
    lost: dict[str, int]  # tasks, by reason
    up: float  # bytes
    down: float


Watch = Callable[[Progress], None]


class Pulse:
    """Is told how far a run is, writes that down and tells the next."""

    def __init__(
        self,
        folder: Path,
        logs: Records,
        accounts: Accounts,
        count: Callable[[], Crowd],
        progress: Watch | None,
    ) -> None:
        self.folder, self.logs, self.accounts, self.count, self.then = folder, logs, accounts, count, progress
        self.where = identify_machine()
        self.due, self.spoke, self.done = 0.0, -SELDOM, 0.0
        self.file: BinaryIO | None = None
        self.last: Progress | None = None  # that hasn't been written

    def __call__(self, progress: Progress) -> None:
        if self.then is not None:
            self.then(progress)
        self.last, now = progress, time.monotonic()
        if now < self.due:
            return
        self.logs.publish()
        if now - self.spoke >= SELDOM or progress.done - self.done >= STEP:
            self._write(progress)
            self.spoke, self.done, self.last = now, progress.done, None
        self.due = now + max(OFTEN, (time.monotonic() - now) / COST)

    def close(self) -> None:
        """With how far the run came, if the last line doesn't say that."""
        if self.last is not None:
            with contextlib.suppress(StorageError):  # a full disk has been told of
                self._write(self.last)
        if self.file is not None:
            self.file.close()

    def _write(self, progress: Progress) -> None:
        crowd, a = self.count(), self.accounts
        beat: Beat = {
            "at": round(time.time(), 3),
            "where": self.where,
            "round": progress.round,
            "time": progress.time,
            "done": progress.done,
            "devices": crowd.devices,
            "online": crowd.online,
            "working": crowd.working,
            "tiers": crowd.tiers,
            "tasks": a.tasks,
            "lost": a.lost,
            "up": sum(a.up.values()),
            "down": sum(a.down.values()),
        }
        line = json.dumps(beat, separators=(",", ":")).encode() + b"\n"
        with safe_files.naming(self.folder / PULSE, "written", StorageError):
            if self.file is None:
                self.file = safe_files.open_file(self.folder, PULSE, "ab")
            self.file.write(line)
            self.file.flush()


@contextmanager
def keep_pulse(folder: Path | None, sim: Simulation, progress: Watch | None) -> Iterator[Watch | None]:
    """What to tell of a simulation's progress, so that its folder shows it; without one, who else is told."""
    if folder is None:
        yield progress
        return
    pulse = Pulse(folder, sim.logs, sim.accounts, lambda: count_crowd(sim), progress)
    try:
        yield pulse
    except ClaimError:
        pulse.last = None  # the file is somebody else's now
        raise
    finally:
        pulse.close()


def count_crowd(sim: Simulation) -> Crowd:
    """As it is now; devices that have left in mid-task are at work until their task is lost."""
    devices = sim.federation.devices
    working = sum(node < devices for node in sim.devices.queues.first)
    t = sim.topology
    tiers = dict(zip(("cloud", *t.tiers), t.firsts, strict=True))
    return Crowd(devices, int(sim.online(np.arange(devices)).sum()), working, tiers)
