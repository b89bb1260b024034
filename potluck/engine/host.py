"""What a runtime lends to an aggregation point: facts for its Context, and hands for its commands."""

from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from potluck.core.job import Nets
from potluck.core.messages import Answer, Lost, Move, Node, Note, Task, Tell, Wake
from potluck.fleet import Profiles, Topology

Children = range | NDArray[np.int64] | Sequence[Node]


class Host(Protocol):
    """What a Context asks of the runtime under it; nothing here changes during one event but what is busy."""

    @property
    def topology(self) -> Topology: ...
    @property
    def root(self) -> Node: ...
    @property
    def seed(self) -> int: ...  # of the run
    @property
    def now(self) -> float: ...
    @property
    def children(self) -> Mapping[Node, Children]: ...  # of each aggregation point
    @property
    def models(self) -> Nets: ...
    @property
    def claimed(self) -> Profiles: ...  # what nodes say of themselves
    @property
    def user(self) -> NDArray[np.int32]: ...  # whose each device is; -1: nobody's
    @property
    def always(self) -> bool: ...  # whether everybody is online at all times, so that nobody need be asked
    @property
    def busy(self) -> Container[Node]: ...  # who has something to do

    def online(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]: ...  # devices and aggregators
    def count_rows(self, nodes: Sequence[Node]) -> list[int]: ...  # to train on, as nodes say
    def owing(self, me: Node) -> set[Node]: ...  # aggregators below that owe this one an answer


class Carrier(Protocol):
    """Does what an aggregation point commands."""

    def accept(self, me: Node, item: Task | Tell | Move) -> None: ...  # for a device, or for the point itself
    def accept_all(self, me: Node, tasks: list[Task]) -> None: ...  # for devices, one after another
    def ask(self, me: Node, item: Task | Tell) -> None: ...  # an aggregator below
    def answer(self, me: Node, answer: Answer) -> None: ...  # the parent
    def wake(self, me: Node, wake: Wake, serial: int) -> None: ...  # the serial tells if it counts
    def note(self, note: Note) -> None: ...
    def lose(self, me: Node, lost: Lost) -> None: ...  # an answer that was heard, and came to nothing
    def cancel(self, me: Node, task: Hashable, over: bool) -> bool: ...  # False: no such task is under way
    def works(self, me: Node) -> bool: ...  # whether any task of this point is under way
