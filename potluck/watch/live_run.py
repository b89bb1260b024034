"""A run as its folder shows it at this moment: how far, how well, and whether anybody computes it."""

import json
import time
from collections import deque
from pathlib import Path

from potluck.core.codec import Json
from potluck.core.errors import PotluckError, SnapshotError
from potluck.core.notes import Kind
from potluck.engine.schedule import StopAt
from potluck.experiment import Run, folder
from potluck.experiment.json_files import find_fault
from potluck.experiment.launch.hardware import identify_machine
from potluck.experiment.pulse import SELDOM, Beat
from potluck.experiment.run_lock import is_locked
from potluck.experiment.summary import Summary, summarise_run
from potluck.report.note_figures import read_notes
from potluck.simulate.run_state import RECORDS
from potluck.watch.heard import Heard
from potluck.watch.tail import Tail

WRONG = (PotluckError, OSError, ValueError, LookupError, TypeError, AttributeError)  # with what others wrote
BEATS = 4000  # signs of life that are kept; of more, every other one
SILENT = 6 * SELDOM  # seconds without one, after which a run elsewhere is called silent
PAUSE = 10.0  # seconds until a damaged one is read again
FRESH = 5.0  # seconds in which a new folder may have no lock yet


class LiveRun:
    """Reads what is new at every look.

    Its state is starting, running, silent (it may be computed elsewhere), stopped, finished or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state, self.why = "starting", ""
        self.experiment = folder.experiment(path)
        self.summary: Summary | None = None
        self.records, self.pulse = Tail(path, RECORDS), Tail(path, folder.PULSE)
        self.kinds = self._find_kinds()
        self.heard = Heard(self.kinds)
        self.beats: deque[Beat] = deque()
        self.entered: tuple[float, float] | None = None  # when it was first seen to go on, and how far it was
        self.again = 0.0  # when a damaged one is read again
        self.doubted = False  # nobody had its lock at the last look
        self.changes = 0
        self._run: tuple[int, Run] | None = None

    def look(self) -> bool:
        """Read what is new; whether anything is."""
        before = self._sign()
        if self.state == "damaged" and time.monotonic() < self.again:
            return False
        try:
            self._read_records()
            self._read_pulse()
            self._judge()
        except WRONG as error:
            self.spoil(error)
        changed = self._sign() != before
        self.changes += changed
        return changed

    def spoil(self, error: Exception) -> None:
        """It can't be read, or what it says makes no sense: shown so, and read anew after a while."""
        self.state, self.why = "damaged", " ".join(str(error).split())
        self.again, self.summary = time.monotonic() + PAUSE, None
        self.heard, self.beats = Heard(self.kinds), deque()
        self.records.forget()
        self.pulse.forget()
        self.changes += 1

    def to_run(self) -> Run:
        """As reports and verdicts know it; of its records those that they need."""
        if self._run is None or self._run[0] != self.changes:
            lines = self.heard.kept
            summary = self.summary or summarise_run(self.experiment, lines, 0.0, None)
            self._run = (self.changes, Run(self.experiment, summary, self.path, _lines=lines))
        return self._run[1]

    @property
    def done(self) -> float:
        """The share of the way to its end."""
        if self.state == "finished":
            return 1.0
        s = self.experiment.stop
        stop = StopAt(s.rounds, s.seconds, s.device_seconds, s.target)
        heard = self.heard
        seconds = heard.counters.get("device_seconds", 0.0)
        share = stop.share(heard.round, heard.time, seconds)
        return max(share, self.beats[-1]["done"] if self.beats else 0.0)

    @property
    def left(self) -> float | None:
        """Seconds of real time until its end, by the pace since it was first seen; None: not known yet."""
        if self.state != "running" or self.entered is None:
            return None
        began, first = self.entered
        spent, done = time.monotonic() - began, self.done
        return None if spent < 3 or done - first < 0.005 else spent * (1 - done) / (done - first)

    # ---------------------------------------------------------------------------------------- what is read

    def _read_records(self) -> None:
        piece = self.records.read()
        if piece.again:
            self.heard = Heard(self.kinds)
        try:
            for line in piece.lines:
                self.heard.hear(line)
        except SnapshotError as error:
            if self.records.at and not piece.again and self.heard.kept:  # it may have been cut and gone on
                self.heard = Heard(self.kinds)
                self.records.forget()
                self._read_records()
                return
            raise SnapshotError(f"{self.path / RECORDS}: damaged ({error}); run it again") from None
        if piece.more:
            self.changes += 1

    def _read_pulse(self) -> None:
        piece = self.pulse.read()
        if piece.again:
            self.beats.clear()
        for line in piece.lines:
            beat: Json = json.loads(line)
            if find_fault(beat, Beat) is not None:
                continue  # it is for looking at, no more
            told: Beat = beat  # type: ignore[assignment]  # it was checked
            while self.beats and self.beats[-1]["time"] > told["time"]:  # it was resumed from before
                self.beats.pop()
            self.beats.append(told)
        if len(self.beats) > BEATS:
            self.beats = deque([*self.beats][::-2][::-1])

    def _judge(self) -> None:
        """What it does, and how that is known."""
        if folder.is_finished(self.path):
            if self.summary is None:
                self.summary = folder.read_summary(self.path)
            self.state, self.why = "finished", ""
            return
        self.summary, locked = None, is_locked(self.path)
        if locked:
            self._go_on("")
            self.doubted = False
            return
        last = self.beats[-1] if self.beats else None
        if last is not None and last["where"] != identify_machine():
            ago = time.time() - last["at"]
            if ago < SILENT:
                self._go_on("on another machine")
            else:
                self.state, self.why = "silent", "it is computed on another machine, or was"
            return
        if locked is None:
            self.state, self.why = "silent", "here it can't be told whether a process computes it"
            return
        age = time.time() - (self.path / folder.EXPERIMENT).stat().st_mtime
        if self.doubted and age > FRESH:  # twice in a row
            self.state, self.why, self.entered = "stopped", "no process computes it any more", None
        self.doubted = True

    def _go_on(self, why: str) -> None:
        self.state, self.why = "running" if self.heard.points or self.beats else "starting", why
        if self.entered is None and self.state == "running":
            self.entered = (time.monotonic(), self.done)

    def _sign(self) -> tuple[object, ...]:
        """Differs when anything has changed that is shown."""
        return (self.state, self.why, self.records.at, self.pulse.at, self.changes)

    def _find_kinds(self) -> dict[str, Kind]:
        nothing = summarise_run(self.experiment, [], 0.0, None)
        return {f.note: f.kind for f in read_notes(Run(self.experiment, nothing, self.path)).figures}
