"""One queue a device: tasks, tells and moves to it run one after another; a move stands in two queues.

Only what is busy takes memory. Queues know when an item's turn comes, and tell their owner; what then happens
on the device, and when it ends, is the owner's business.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from potluck.core.codec import value
from potluck.core.messages import Move, Node, Task, Tell
from potluck.engine.flight import Flight, find_nodes
from potluck.engine.flock import Flock


@value(frozen=False, eq=False)
class QueueState:
    """What is queued and what runs."""

    ids: dict[Node, dict[Hashable, int]]  # flights of tasks, by sender and id
    accepted: dict[Node, int]  # items so far, by sender
    flights: dict[int, Flight] = field(default_factory=dict)
    flocks: dict[int, Flock] = field(default_factory=dict)  # those that started together, by the first's
    first: dict[Node, int] = field(default_factory=dict)  # of who is busy: what runs, or a move that waits
    behind: dict[Node, list[int]] = field(default_factory=dict)  # and what is queued after it
    serial: int = 0  # of the last flight

    def find_oldest(self) -> int | None:
        """The first of all flights that are under way."""
        alone = next(iter(self.flights), None)
        flock = next(iter(self.flocks.values()), None)
        if flock is None:
            return alone
        first = flock.id + int(np.argmax(flock.there))
        return first if alone is None else min(alone, first)

    @classmethod
    def begin(cls, senders: Iterable[Node]) -> "QueueState":
        return cls({sender: {} for sender in senders}, dict.fromkeys(senders, 0))


class Queues:
    """The queues of all devices; `start` is called with a flight when it is first in all of its queues."""

    __slots__ = ("accepted", "behind", "first", "flights", "flocks", "ids", "start", "state")

    def __init__(self, state: QueueState, start: Callable[[Flight, tuple[Node, ...]], None]) -> None:
        self.state, self.start = state, start
        self.ids, self.flights, self.accepted = state.ids, state.flights, state.accepted
        self.flocks, self.first, self.behind = state.flocks, state.first, state.behind

    def accept(self, sender: Node, item: Task | Tell | Move) -> None:
        """Put an item into its device's queue (a move: into both)."""
        fid = self.state.serial = self.state.serial + 1
        count = self.accepted[sender] = self.accepted[sender] + 1
        flight = self.flights[fid] = Flight(fid, sender, item, count)
        if type(item) is Task and item.id is not None:
            self.ids[sender][item.id] = fid
        nodes, first = find_nodes(item), True
        for node in nodes:
            if node in self.first:
                self.behind.setdefault(node, []).append(fid)
                first = False
            else:
                self.first[node] = fid
        if first:
            self.start(flight, nodes)

    def accept_together(self, sender: Node, tasks: list[Task], nodes: list[Node]) -> tuple[int, int]:
        """Tasks that start at once, each on an idle device of its own: the first one's flight and count."""
        first, count = self.state.serial + 1, self.accepted[sender] + 1
        self.state.serial += len(tasks)
        self.accepted[sender] += len(tasks)
        fids = range(first, first + len(tasks))
        self.ids[sender].update(zip([task.id for task in tasks], fids, strict=True))
        self.first.update(zip(nodes, fids, strict=True))
        return first, count

    def take_together(self, flock: Flock, rows: NDArray[np.int64]) -> None:
        """Take rows of a flock out and free their devices; whose turn it is then, starts."""
        tasks, ids = flock.sheet.tasks, self.ids[flock.sender]
        flock.take(rows)
        for row in rows.tolist():
            del ids[tasks[row].id]
        for node in flock.nodes[rows].tolist():
            if node in self.behind:
                self._next(node)
            else:
                del self.first[node]
        if not flock.left:
            del self.flocks[flock.id]

    def find_flock(self, fid: int) -> Flock | None:
        """The flock that a flight belongs to."""
        for first, flock in self.flocks.items():
            if first <= fid < first + len(flock):
                return flock
        return None

    def look(self, fid: int) -> Flight:
        """A flight that is under way, alone or in a flock."""
        flight = self.flights.get(fid)
        if flight is not None:
            return flight
        flock = self.find_flock(fid)
        assert flock is not None
        return flock.make_flight(fid - flock.id)

    def count(self) -> int:
        """Flights that are under way."""
        return len(self.flights) + sum(flock.left for flock in self.flocks.values())

    def find(self, sender: Node, task: Hashable) -> int | None:
        """The flight of a sender's task, if it is still there."""
        return self.ids[sender].get(task)

    def take(self, fid: int) -> Flight | None:
        """Take a flight out, unless somebody has; it holds its places until they are freed."""
        flight = self.flights.pop(fid, None)
        if flight is None and (flock := self.find_flock(fid)) is not None and flock.there[fid - flock.id]:
            flight = flock.make_flight(fid - flock.id)
            flock.take(np.array([fid - flock.id]))
        if flight is not None:
            item = flight.item
            if type(item) is Task and item.id is not None:
                del self.ids[flight.sender][item.id]
        return flight

    def free(self, flight: Flight) -> None:
        """Give up the places of a flight that was taken out; whose turn it is then, starts."""
        for node in find_nodes(flight.item):
            if self.first[node] == flight.id:
                if node in self.behind:
                    self._next(node)
                else:
                    del self.first[node]
            else:
                self.behind[node].remove(flight.id)
                if not self.behind[node]:
                    del self.behind[node]

        if self.flocks and (flock := self.find_flock(flight.id)) is not None and not flock.left:
            del self.flocks[flock.id]

    def _next(self, node: Node) -> None:
        """The next in a queue comes first, and starts if it is first in all of its queues."""
        queue = self.behind[node]
        fid = self.first[node] = queue.pop(0)
        if not queue:
            del self.behind[node]
        flight = self.flights[fid]
        nodes = find_nodes(flight.item)
        if all(self.first[node] == fid for node in nodes):
            self.start(flight, nodes)
