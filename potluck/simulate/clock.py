"""The virtual clock: a heap of what will happen; nothing sleeps."""

import heapq
from dataclasses import field
from typing import Literal

from potluck.core.codec import value
from potluck.core.messages import Event, Node

Heard = tuple[Node, Event, int]  # who hears what; of an alarm, its serial
Happening = int | Heard | Literal["evaluate", "stop"]  # an int: an end of that flight, or flock


@value(frozen=False, eq=False)
class Clock:
    """Time goes from one entry to the next; entries of equal time come in the order they were made."""

    now: float = 0.0
    serial: int = 0
    heap: list[tuple[float, int, Happening]] = field(default_factory=list)  # when, in which order, what

    def push(self, at: float, what: Happening) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (at, self.serial, what))

    def reserve(self, count: int) -> int:
        """Places in the order for so many entries that will be put there later: the first."""
        self.serial += count
        return self.serial - count + 1

    def put(self, at: float, serial: int, what: Happening) -> None:
        """An entry at a place that was reserved."""
        heapq.heappush(self.heap, (at, serial, what))

    def pop(self) -> Happening:
        self.now, _, what = heapq.heappop(self.heap)
        return what
