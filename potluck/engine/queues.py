"""One queue a device: tasks, tells and moves to it run one after another; a move stands in two queues.

Only what is busy takes memory. Queues know when an item's turn comes, and tell their owner; what then happens
on the device, and when it ends, is the owner's business.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import field

from potluck.core.codec import value
from potluck.core.messages import Move, Node, Task, Tell
from potluck.engine.flight import Flight, find_nodes


@value(frozen=False, eq=False)
class QueueState:
    """What is queued and what runs."""

    ids: dict[Node, dict[Hashable, int]]  # flights of tasks, by sender and id
    flights: dict[int, Flight] = field(default_factory=dict)
    first: dict[Node, int] = field(default_factory=dict)  # of who is busy: what runs, or a move that waits
    behind: dict[Node, list[int]] = field(default_factory=dict)  # and what is queued after it
    accepted: int = 0  # items so far

    @classmethod
    def begin(cls, senders: Iterable[Node]) -> "QueueState":
        return cls({sender: {} for sender in senders})


class Queues:
    """The queues of all devices; `start` is called with a flight when it is first in all of its queues."""

    __slots__ = ("behind", "first", "flights", "ids", "start", "state")

    def __init__(self, state: QueueState, start: Callable[[Flight, tuple[Node, ...]], None]) -> None:
        self.state, self.start = state, start
        self.ids, self.flights, self.first, self.behind = state.ids, state.flights, state.first, state.behind

    def accept(self, sender: Node, item: Task | Tell | Move) -> None:
        """Put an item into its device's queue (a move: into both)."""
        fid = self.state.accepted = self.state.accepted + 1
        flight = self.flights[fid] = Flight(fid, sender, item)
        if type(item) is Task and item.id is not None:
            self.ids[sender][item.id] = fid
        nodes = find_nodes(item)
        for node in nodes:
            if node in self.first:
                self.behind.setdefault(node, []).append(fid)
            else:
                self.first[node] = fid
        self._try(flight, nodes)

    def find(self, sender: Node, task: Hashable) -> int | None:
        """The flight of a sender's task, if it is still there."""
        return self.ids[sender].get(task)

    def take(self, fid: int) -> Flight | None:
        """Take a flight out, unless somebody has; it holds its places until they are freed."""
        flight = self.flights.pop(fid, None)
        if flight is not None:
            item = flight.item
            if type(item) is Task and item.id is not None:
                del self.ids[flight.sender][item.id]
        return flight

    def free(self, flight: Flight) -> None:
        """Give up the places of a flight that was taken out; whose turn it is then, starts."""
        for node in find_nodes(flight.item):
            if self.first[node] == flight.id:
                self._next(node)
            else:
                self.behind[node].remove(flight.id)
                if not self.behind[node]:
                    del self.behind[node]

    def _try(self, flight: Flight, nodes: tuple[Node, ...]) -> None:
        """Start an item if it is first in all of its queues."""
        for node in nodes:
            if self.first[node] != flight.id:
                return
        self.start(flight, nodes)

    def _next(self, node: Node) -> None:
        queue = self.behind.get(node)
        if queue is None:
            del self.first[node]
            return
        self.first[node] = queue.pop(0)
        if not queue:
            del self.behind[node]
        flight = self.flights[self.first[node]]
        self._try(flight, find_nodes(flight.item))
