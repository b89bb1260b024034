"""What a job sees on a device, looked up when it is read."""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from potluck.core.columns import Looked, Places
from potluck.core.job import Local, Nets, Samples
from potluck.core.messages import Node, Task, Tell
from potluck.core.trees import Tree
from potluck.engine.flight import Flight
from potluck.engine.memories import Memories
from potluck.engine.seeds import seed_all, seed_work


class Home(Protocol):
    """Where devices' things are kept."""

    @property
    def models(self) -> Nets: ...
    @property
    def pool(self) -> Samples: ...
    @property
    def memories(self) -> Memories: ...
    @property
    def seed(self) -> int: ...  # of the run

    def rows(self, node: Node, at: float | None = None) -> NDArray[np.int64]: ...  # now unless said
    def find_sizes(self, nodes: NDArray[np.int64], at: float) -> NDArray[np.int64]: ...  # of their rows
    def lay_rows(
        self, nodes: NDArray[np.int64], at: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...  # rows of all, and where each one's begin


class LazyLocal(Local):
    """What a job sees while its item runs; looked up when read, since most jobs don't look at all."""

    __slots__ = ("_flight", "_home", "_item", "_seeded", "_seen")

    def __init__(self, home: Home, flight: Flight, item: Task | Tell) -> None:
        self._home, self._flight, self._item = home, flight, item
        self._seen: NDArray[np.int64] | None = None
        self._seeded: int | None = None
        self.node, self.inbox, self.test = item.to, item.send, None
        self.models, self.pool = home.models, home.pool

    @property
    def rows(self) -> NDArray[np.int64]:
        if self._seen is None:  # those of the start, whatever has changed since
            self._seen = self._home.rows(self.node, self._flight.began)
        return self._seen

    @property
    def keep(self) -> Tree:
        return self._home.memories.get(self.node, self._item.slot)

    @property
    def seed(self) -> int:
        if self._seeded is None:
            self._seeded = seed_work(self._home.seed, self._flight, self._item)
        return self._seeded


def find_places(
    home: Home,
    sender: Node,
    tasks: Sequence[Task],
    nodes: NDArray[np.int64],
    began: float,
    one: Callable[[int], Local],
) -> Places:
    """What a barrier's tasks see that started together, of one model; `one`: what one of them sees."""

    def look() -> Looked:
        slots, nobody = [task.slot for task in tasks], [None] * len(tasks)
        source, first = home.lay_rows(nodes, began)
        seeds = seed_all(home.seed, tasks, nodes, sender)
        return Looked(seeds, source, first, home.memories.get_all(nodes.tolist(), slots), nobody)

    sizes, inboxes = home.find_sizes(nodes, began), [tasks[0].send] * len(tasks)
    return Places(one, sizes, inboxes, home.models, home.pool, look)


def look_up(
    home: Home,
    node: Node,
    sent: dict[str, Tree],
    slot: Hashable,
    seed: int,
    test: NDArray[np.int64] | None = None,
    keeper: Node | None = None,  # whose memory it is; None: the device's own
) -> Local:
    """What a job would see on a device now."""
    rows, keep = home.rows(node), home.memories.get(node if keeper is None else keeper, slot)
    return Local(node, rows, sent, keep, seed, home.models, home.pool, test)
