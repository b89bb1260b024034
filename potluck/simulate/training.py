"""When training is computed: when its reply falls due, or some time ahead by other processes.

Nothing touches a device while an item runs on it, so its rows and its memory are those of the start whenever
it is computed: together with all others of the same shape that have started by then.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

from potluck.core.job import Job, Result, trains
from potluck.core.messages import Move, Task, Tell
from potluck.engine.flight import Flight
from potluck.engine.local import Home, LazyLocal
from potluck.execute.plan import Executor, ParallelExecutor
from potluck.execute.reference import Item, find_shape, run_alone


class Begun(NamedTuple):
    """Training that others do."""

    batch: list[Flight]
    results: Callable[[], Sequence[Result]]  # waits for them


class PendingTraining:
    """What has started and isn't computed yet, and what others compute."""

    def __init__(
        self, executor: Executor, home: Home, flights: dict[int, Flight], pending: list[list[int]]
    ) -> None:
        self.executor, self.home, self.flights = executor, home, flights
        self.aside = executor if isinstance(executor, ParallelExecutor) else None
        self.begun: dict[int, Begun] = {}  # training that is under way there, by flight
        self._last: tuple[Job | None, Hashable] = (None, None)  # job and its shape
        self.pending: dict[Hashable, dict[int, None]] = {}  # flights that have started, by shape
        for flight in (flights[fid] for fids in pending for fid in fids):
            assert not isinstance(flight.item, Move)
            self.add(flight, flight.item.job)

    def list_pending(self) -> list[list[int]]:
        """Flights that wait, in groups of one shape: what a snapshot stores."""
        return [list(fids) for fids in self.pending.values()]

    def add(self, flight: Flight, job: Job) -> None:
        """A flight has started; if it trains, it waits until it is due."""
        if job is not self._last[0]:
            self._last = job, find_shape(job)
        if self._last[1] is not None:
            self.pending.setdefault(self._last[1], {})[flight.id] = None

    def remove(self, flight: Flight) -> None:
        """Nobody will see what it computes."""
        assert not isinstance(flight.item, Move)
        self.begun.pop(flight.id, None)
        shape = find_shape(flight.item.job)
        waiting = self.pending.get(shape, {})
        waiting.pop(flight.id, None)
        if not waiting:
            self.pending.pop(shape, None)

    def compute(self, flight: Flight, item: Task | Tell) -> Result:
        """The result of a flight that is due, with those that wait with it."""
        if flight.result is not None:
            return flight.result
        shape = find_shape(item.job)
        if shape is None:
            return run_alone(item.job, LazyLocal(self.home, flight, item))
        if flight.id not in self.begun:
            self.begin(shape, flight)
        self._fetch(self.begun[flight.id])
        assert flight.result is not None
        return flight.result

    def begin(self, shape: Hashable, due: Flight | None = None) -> None:
        """Train all that wait with this one."""
        batch = [due if due and due.id == fid else self.flights[fid] for fid in self.pending.pop(shape)]
        items = [self._make_item(flight) for flight in batch]
        results = self.aside.begin(items, due is None) if self.aside else partial(self.executor.run, items)
        self.begun |= dict.fromkeys((f.id for f in batch), Begun(batch, results))

    def look_ahead(self) -> None:
        """Begin training before it is due, if other processes do it: each of them has a part of what is in
        the air, and this process one whose results have come, which it handles meanwhile.

        By what is in the air alone, never by how fast anybody is: what is stacked with what must not change.
        """
        if self.aside is not None:
            air, parts = len(self.flights), self.aside.count + 1
            waiting = [(shape, len(flights)) for shape, flights in self.pending.items()]
            for shape in [shape for shape, count in waiting if count < air <= parts * count]:
                if self.begun or any(flight.result is not None for flight in self.flights.values()):
                    self.begin(shape)

    def settle(self) -> None:
        """Wait for all training that is under way."""
        while self.begun:
            self._fetch(next(iter(self.begun.values())))

    def _make_item(self, flight: Flight) -> Item:
        item = flight.item
        assert not isinstance(item, Move)
        job = item.job
        assert trains(job)
        return Item(job, LazyLocal(self.home, flight, item))

    def _fetch(self, begun: Begun) -> None:
        for flight, result in zip(begun.batch, begun.results(), strict=True):
            flight.result = result
            self.begun.pop(flight.id, None)
