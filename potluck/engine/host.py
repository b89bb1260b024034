"""What a runtime lends to an aggregation point: facts for its Context, and hands for its commands."""

from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.job import Nets
from potluck.core.messages import Answer, Move, Node, Note, Task, Tell, Wake
from potluck.fleet import Profiles, Topology

Children = range | NDArray[np.int64] | Sequence[Node]
NEAR, TOGETHER = 2, 256  # events between two samples of one; and for how many they are prepared then


class Lots:
    """The first random words of aggregators' events; those of the next few are made together where one event
    after another wants some, as with asynchronous rules. They follow from the seed, so nobody stores them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._made: dict[Node, tuple[int, list[keys.Words]]] = {}  # from which event on
        self._last: dict[Node, int] = {}

    def words(self, me: Node, tick: int) -> keys.Words:
        """Of an event's generator."""
        first, made = self._made.get(me, (0, []))
        if not 0 <= tick - first < len(made):
            near, self._last[me] = 0 < tick - self._last.get(me, tick) <= NEAR, tick
            if not near:
                return keys.first_words(keys.derive(self.seed, me, tick, 1))
            found = keys.hashed(keys.derive(self.seed, me), np.arange(tick, tick + TOGETHER))
            first, made = tick, keys.all_first_words(keys.hashed(found, np.ones(1, np.int64)))
            self._made[me] = first, made
        return made[tick - first]


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
    def lots(self) -> Lots: ...
    @property
    def busy(self) -> Container[Node]: ...  # who has something to do

    def online(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]: ...  # devices and aggregators
    def owing(self, me: Node) -> set[Node]: ...  # aggregators below that owe this one an answer


class Carrier(Protocol):
    """Does what an aggregation point commands."""

    def accept(self, me: Node, item: Task | Tell | Move) -> None: ...  # for a device, or for the point itself
    def ask(self, me: Node, task: Task) -> None: ...  # an aggregator below
    def answer(self, me: Node, answer: Answer) -> None: ...  # the parent
    def wake(self, me: Node, wake: Wake, serial: int) -> None: ...  # the serial tells if it counts
    def note(self, note: Note) -> None: ...
    def cancel(self, me: Node, task: Hashable, over: bool) -> bool: ...  # False: no such task is under way
    def works(self, me: Node) -> bool: ...  # whether any task of this point is under way
