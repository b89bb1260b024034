"""Who follows a run is told of it between two events: people by progress and logging, callbacks by events."""

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from potluck.core.errors import PotluckError, show_short
from potluck.core.records import Record
from potluck.core.units import duration, percent
from potluck.engine.schedule import Progress
from potluck.experiment import folder, run_events, toml
from potluck.experiment.run_events import Callback, Ended, Evaluated, Event, Noted, RoundDone, Started
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.screen import Screen
from potluck.experiment.summary import Summary
from potluck.simulate import Simulation

Watch = Callable[[Progress], None]
PAUSE = 0.1  # seconds between two looks at how far a run is
_LOG = logging.getLogger("potluck.experiment")


@contextmanager
def follow(progress: Watch | bool | None, name: str) -> Iterator[Watch | None]:
    """What is told how far a run is; True: the lines of the command line."""
    if progress is True:
        with Screen(quiet=False)(name) as watch:
            yield watch
    else:
        yield progress or None


class LogLines(Callback):
    """Writes a line of logging an event, under potluck.experiment."""

    def on_start(self, event: Started) -> None:
        where = "" if event.folder is None else f" in {event.folder}"
        _LOG.info("%s: %s%s", event.run, f"goes on at {_tell(event)}" if event.resumed else "begins", where)

    def on_round(self, event: RoundDone) -> None:
        _LOG.debug("%s: %s", event.run, _tell(event))

    def on_evaluate(self, event: Evaluated) -> None:
        _LOG.info("%s: %s: accuracy %s", event.run, _tell(event), percent(event.accuracy))

    def on_note(self, event: Noted) -> None:
        _LOG.debug("%s: %s: %s = %s", event.run, _tell(event), event.name, show_short(event.value))

    def on_end(self, event: Ended) -> None:
        for remark in [] if event.summary is None else event.summary["remarks"]:
            _LOG.warning("%s: %s (%s)", event.run, remark["text"], remark["cause"])
        if event.failed is None:
            _LOG.info("%s: is over", event.run)
        else:
            _LOG.warning("%s: %s", event.run, event.failed)


class Teller:
    """Tells of one run."""

    def __init__(
        self,
        run: str,
        experiment: Experiment,
        sim: Simulation,
        path: Path | None,
        callbacks: Sequence[Callback],
        watch: Watch | None,
    ) -> None:
        self.run, self.experiment, self.sim, self.path, self.watch = run, experiment, sim, path, watch
        self.callbacks = [*callbacks, *([LogLines()] if _LOG.isEnabledFor(logging.INFO) else [])]
        self.reader = run_events.Reader(run)
        self.waiting: list[Event] = []  # what has been recorded since the last look
        self.round, self.looked, self.over = sim.round, time.monotonic(), False
        if self.callbacks:
            sim.logs.listener = self._hear

    def start(self) -> None:
        """Before the first event, or the first after it was resumed."""
        if not self.callbacks:
            return
        sim, e = self.sim, self.experiment
        resumed = sim.begun
        past = folder.read_records(self.path) if resumed and self.path is not None else []
        settings = toml.parse(e.to_toml().encode(), Path(folder.EXPERIMENT))
        history = self.reader.read_all(past)
        self._tell(
            Started(
                self.run,
                e.name,
                e.algorithm,
                e.seed,
                self.path,
                settings,
                resumed,
                sim.round,
                sim.now,
                history,
            )
        )

    def look(self) -> None:
        """After every event of a run."""
        sim, now = self.sim, time.monotonic()
        if self.watch is not None and (sim.finished or now - self.looked >= PAUSE):
            self.looked = now
            self.watch(sim.progress())
        if sim.round != self.round and self.callbacks:
            self.round = sim.round
            p = sim.progress()
            self.waiting.append(RoundDone(self.run, p.round, p.time, p.accuracy, p.done))
        if self.waiting:
            told, self.waiting = self.waiting, []
            for event in sorted(told, key=_find_order):
                self._tell(event)

    def end(self, summary: Summary | None, failed: str | None = None) -> None:
        """Once, however it ended; after a failure, what goes wrong with callbacks as well is no news."""
        if self.over:
            return
        self.over = True
        event, quiet = Ended(self.run, self.path, summary, failed), (Exception, KeyboardInterrupt)
        wrong: list[BaseException] = []
        for callback in self.callbacks:  # all of them, whatever goes wrong with one
            try:
                call_back(callback, event)
            except quiet as error:
                wrong.append(error)
        if wrong and failed is None:
            raise wrong[0]

    def _hear(self, record: Record, noted: bool) -> None:
        if noted:
            r = record
            node, group, view = r.get("node"), r.get("group"), r.get("view")
            at = (r["round"], r["time"])
            self.waiting.append(Noted(self.run, *at, r["metric"], r["value"], node, group, view))
        elif (found := self.reader.read(record)) is not None:
            self.waiting.append(found)

    def _tell(self, event: Event) -> None:
        for callback in self.callbacks:
            call_back(callback, event)


def _find_order(event: Event) -> int:
    """Of what one event of a run led to: what was noted, the round that it ended, how good that is."""
    return 0 if isinstance(event, Noted) else 1 if isinstance(event, RoundDone) else 2


def call_back(callback: Callback, event: Event) -> None:
    """Tell a callback; if it fails, say which it was and where in its file."""
    try:
        run_events.dispatch(callback, event)
    except PotluckError:
        raise
    except Exception as error:  # code of others may fail in any way: it is named, and its traceback shown
        _, _, *frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == frames[0].filename]
        where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        told = f"callback {type(callback).__name__}: {type(error).__name__}: {error}{where}"
        raise PotluckError(told).blame(error) from error


def _tell(event: Started | RoundDone | Evaluated | Noted) -> str:
    return f"round {event.round}, {duration(event.time)} of virtual time"
