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
    accepted: dict[Node, int]  # items so far, by sender
    flights: dict[int, Flight] = field(default_factory=dict)
    first: dict[Node, int] = field(default_factory=dict)  # of who is busy: what runs, or a move that waits
    behind: dict[Node, list[int]] = field(default_factory=dict)  # and what is queued after it
    serial: int = 0  # of the last flight

    @classmethod
    def begin(cls, senders: Iterable[Node]) -> "QueueState":
        return cls({sender: {} for sender in senders}, dict.fromkeys(senders, 0))


class Queues:
    """The queues of all devices; `start` is called with a flight when it is first in all of its queues."""

    __slots__ = ("accepted", "behind", "first", "flights", "ids", "start", "state")

    def __init__(self, state: QueueState, start: Callable[[Flight, tuple[Node, ...]], None]) -> None:
        self.state, self.start = state, start
        self.ids, self.flights, self.accepted = state.ids, state.flights, state.accepted
        self.first, self.behind = state.first, state.behind

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
                if node in self.behind:
                    self._next(node)
                else:
                    del self.first[node]
            else:
                self.behind[node].remove(flight.id)
                if not self.behind[node]:
                    del self.behind[node]

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
