"""The virtual clock: a heap of what will happen; nothing sleeps."""

import heapq
from typing import Any

Entry = tuple[float, int, str, Any]  # when, in which order, what kind, of what


class Clock:
    """Time goes from one entry to the next; entries of equal time come in the order they were made."""

    __slots__ = ("heap", "now", "serial")

    def __init__(self) -> None:
        self.now = 0.0
        self.serial = 0
        self.heap: list[Entry] = []

    def push(self, at: float, kind: str, what: Any) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (at, self.serial, kind, what))

    def pop(self) -> tuple[str, Any]:
        self.now, _, kind, what = heapq.heappop(self.heap)
        return kind, what

    def state(self) -> Any:
        return self.now, self.serial, self.heap

    def restore(self, state: Any) -> None:
        self.now, self.serial, heap = state
        self.heap = [tuple(entry) for entry in heap]
