"""What an algorithm may know and use while it handles one event."""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from potluck.core.job import Nets
from potluck.core.messages import Node, Task


class Claims(Protocol):
    """What devices say of themselves, one entry a node asked for."""

    @property
    def compute(self) -> NDArray[np.float64]: ...  # ms per sample of the reference model
    @property
    def up(self) -> NDArray[np.float64]: ...  # bits per second
    @property
    def down(self) -> NDArray[np.float64]: ...
    @property
    def latency(self) -> NDArray[np.float64]: ...
    @property
    def memory(self) -> NDArray[np.float64]: ...  # bytes


class Context(Protocol):
    """What an algorithm may know and use while it handles one event."""

    @property
    def me(self) -> Node: ...
    @property
    def here(self) -> Node: ...  # the aggregator's own machine: a Task to it is work, charged on the clock
    @property
    def parent(self) -> Node | None: ...
    @property
    def now(self) -> float: ...
    @property
    def owed(self) -> Task | None: ...  # the parent's task that waits for an answer
    @property
    def stop(self) -> bool: ...
    @property
    def children(self) -> "range | NDArray[np.int64] | Sequence[Node]": ...
    @property
    def key(self) -> int: ...  # fresh for every event
    @property
    def rng(self) -> np.random.Generator: ...
    @property
    def models(self) -> Nets: ...
    @property
    def working(self) -> bool: ...  # not stopped, and at the top or owing an answer

    def profiles(self, nodes: Sequence[Node]) -> Claims: ...
    def rows(self, nodes: Sequence[Node]) -> NDArray[np.int64]: ...  # train rows that they say they have
    def sample(self, count: int, but: Collection[Node] = ()) -> list[Node]: ...  # online, idle, no repeats
    def ready(self, nodes: Sequence[Node]) -> list[Node]: ...  # those online and idle; takes nobody
    def siblings(self, node: Node) -> list[Node]: ...  # children of the device's own user, itself included
    def only(self, nodes: Iterable[Node]) -> "Context": ...  # the same, among these children
    def holding(self, owed: Task | None, stop: bool) -> "Context": ...  # the same, with what the loop knows
    def release(
        self, nodes: Iterable[Node]
    ) -> None: ...  # their tasks are called off: they count as idle now
