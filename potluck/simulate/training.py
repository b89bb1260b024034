"""When training is computed: when its reply falls due, or some time ahead by other processes.

Nothing touches a device while an item runs on it, so its rows and its memory are those of the start whenever
it is computed: together with all others of the same shape that have started by then.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potluck.core.job import Job, Result, trains
from potluck.core.messages import Move, Task, Tell
from potluck.engine.flight import Flight
from potluck.engine.flock import Flock
from potluck.engine.local import Home, LazyLocal, find_places
from potluck.engine.queues import Queues
from potluck.execute.plan import Executor, ParallelExecutor
from potluck.execute.reference import Item, Items, find_shape, run_alone


class Begun(NamedTuple):
    """Training that others do."""

    batch: list["Flight | Part"]
    results: Callable[[], Sequence[Result]]  # waits for them


class Part(NamedTuple):
    """Rows of a flock."""

    flock: Flock
    rows: NDArray[np.int64]


class PendingTraining:
    """What has started and isn't computed yet, and what others compute."""

    def __init__(self, executor: Executor, home: Home, queues: Queues, pending: list[list[int]]) -> None:
        self.executor, self.home, self.queues = executor, home, queues
        self.aside = executor if isinstance(executor, ParallelExecutor) else None
        self.begun: dict[int, Begun] = {}  # training that is under way there, by flight
        self._last: tuple[Job | None, Hashable] = (None, None)  # job and its shape
        self.pending: dict[Hashable, dict[int, None]] = {}  # flights that have started, by shape
        for fid in (fid for fids in pending for fid in fids):
            item = queues.look(fid).item
            assert not isinstance(item, Move)
            self.add(fid, item.job)

    def list_pending(self) -> list[list[int]]:
        """Flights that wait, in groups of one shape: what a snapshot stores."""
        return [list(fids) for fids in self.pending.values()]

    def add(self, fid: int, job: Job) -> None:
        """A flight has started; if it trains, it waits until it is due."""
        if (shape := self._find_shape(job)) is not None:
            self.pending.setdefault(shape, {})[fid] = None

    def add_all(self, fids: range, job: Job) -> None:
        """The same of a flock that trains."""
        self.pending.setdefault(self._find_shape(job), {}).update(dict.fromkeys(fids))

    def remove(self, fid: int, job: Job) -> None:
        """Nobody will see what a flight computes."""
        self.begun.pop(fid, None)
        shape = self._find_shape(job)
        waiting = self.pending.get(shape, {})
        waiting.pop(fid, None)
        if not waiting:
            self.pending.pop(shape, None)

    def compute(self, flight: Flight, item: Task | Tell) -> Result:
        """The result of a flight that is due, with those that wait with it."""
        if (known := self._find_result(flight)) is not None:
            return known
        shape = find_shape(item.job)
        if shape is None:
            return run_alone(item.job, LazyLocal(self.home, flight, item))
        if flight.id not in self.begun:
            self.begin(shape, flight)
        self._fetch(self.begun[flight.id])
        known = self._find_result(flight)
        assert known is not None
        return known

    def _find_result(self, flight: Flight) -> Result | None:
        """What came of a flight, if it is known; made of a flock's row, it may have been made before that."""
        if flight.result is None and (flock := self.queues.find_flock(flight.id)) is not None:
            flight.result = flock.sheet.find_result(flight.id - flock.id)
        return flight.result

    def begin(self, shape: Hashable, due: Flight | None = None) -> None:
        """Train all that wait with this one."""
        fids = list(self.pending.pop(shape))
        batch, items = self._gather(fids, due)
        results = self.aside.begin(items, due is None) if self.aside else partial(self.executor.run, items)
        self.begun |= dict.fromkeys(fids, Begun(batch, results))

    def look_ahead(self) -> None:
        """Begin training before it is due, if other processes do it: each of them has a part of what is in
        the air, and this process one whose results have come, which it handles meanwhile.

        By what is in the air alone, never by how fast anybody is: what is stacked with what must not change.
        """
        if self.aside is not None and self.pending:
            air, parts = self.queues.count(), self.aside.count + 1
            waiting = [(shape, len(flights)) for shape, flights in self.pending.items()]
            for shape in [shape for shape, count in waiting if count < air <= parts * count]:
                if self.begun or self._has_results():
                    self.begin(shape)

    def settle(self) -> None:
        """Wait for all training that is under way."""
        while self.begun:
            self._fetch(next(iter(self.begun.values())))

    def _has_results(self) -> bool:
        """Whether anything was computed that hasn't ended yet."""
        if any(flock.sheet.results is not None for flock in self.queues.flocks.values()):
            return True
        return any(flight.result is not None for flight in self.queues.flights.values())

    def _find_shape(self, job: Job) -> Hashable:
        if job is not self._last[0]:
            self._last = job, find_shape(job)
        return self._last[1]

    def _gather(self, fids: list[int], due: Flight | None) -> tuple[list[Flight | Part], Sequence[Item]]:
        """What flights are by now, and what they compute: in columns, if all are of one flock."""
        if not self.queues.flocks:
            flights = self.queues.flights
            alone = [due if due is not None and due.id == fid else flights[fid] for fid in fids]
            return [*alone], [self._make_item(flight) for flight in alone]
        batch: list[Flight | Part] = []
        at = 0
        while at < len(fids):
            first, flock = at, self.queues.find_flock(fids[at])
            at += 1
            if flock is None:
                fid = fids[first]
                batch.append(due if due is not None and due.id == fid else self.queues.flights[fid])
                continue
            while at < len(fids) and flock.id <= fids[at] < flock.id + len(flock):
                at += 1
            batch.append(Part(flock, np.array(fids[first:at]) - flock.id))
        parts = [self._list_items(each) for each in batch]
        return batch, parts[0] if len(parts) == 1 else [item for part in parts for item in part]

    def _list_items(self, each: "Flight | Part") -> Sequence[Item]:
        if isinstance(each, Flight):
            return [self._make_item(each)]
        flock, rows = each
        who = rows.tolist()
        tasks = [flock.sheet.tasks[row] for row in who]

        def one(i: int) -> LazyLocal:
            return LazyLocal(self.home, flock.make_flight(who[i]), tasks[i])

        places = find_places(self.home, flock.sender, tasks, flock.nodes[rows], flock.began, one)
        job = tasks[0].job
        assert trains(job)
        items = Items([job] * len(tasks), places)
        return items if self.aside is None else list(items)

    def _make_item(self, flight: Flight) -> Item:
        item = flight.item
        assert not isinstance(item, Move)
        job = item.job
        assert trains(job)
        return Item(job, LazyLocal(self.home, flight, item))

    def _fetch(self, begun: Begun) -> None:
        results, at = begun.results(), 0
        alone = any(isinstance(each, Flight) for each in begun.batch)
        apart = list(results) if alone else results
        for each in begun.batch:
            if isinstance(each, Flight):
                each.result = apart[at]
                self.begun.pop(each.id, None)
                at += 1
                continue
            each.flock.sheet.take(results, each.rows, at)
            at += len(each.rows)
            for fid in range(each.flock.id, each.flock.id + len(each.flock)):
                self.begun.pop(fid, None)
