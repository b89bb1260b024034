"""The last tasks that devices worked on, and what their time went into: how a round looks from below.

Few are kept, however many there were: enough for a report to draw a round, and nothing to a snapshot.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from potluck.core.messages import Node, Task, TaskId
from potluck.engine.flight import Flight

KEPT = 2000  # tasks


class Leg(NamedTuple):
    """One task on one device; times are virtual."""

    id: TaskId | None  # lane, serial of its barrier, place in it
    sender: Node
    node: Node
    began: float
    down: float  # seconds
    compute: float
    up: float
    ended: float
    fate: str  # why it was lost; empty when it was answered


Plain = tuple[TaskId | None, Node, Node, float, float, float, float, float, str]  # a leg's fields
Timeline = deque[Plain]  # in order of their ends
Column = list[int | float | str]


def make_leg(flight: Flight, item: Task, ended: float, fate: str) -> Plain:
    """A plain tuple, not a Leg: this is done for every task."""
    return (
        item.id, flight.sender, item.to, flight.began, flight.down, flight.compute, flight.up, ended, fate
    )  # fmt: skip


def make_columns(timeline: Iterable[Plain]) -> dict[str, Column]:
    """As columns that a file can hold; barriers are numbered by sender, lane and serial, as they end."""
    legs = [Leg(*each) for each in timeline]
    barriers: dict[Hashable, int] = {}
    of: Column = [
        barriers.setdefault((x.sender, i) if x.id is None else (x.sender, x.id[0], x.id[1]), len(barriers))
        for i, x in enumerate(legs)
    ]
    names = ("sender", "node", "began", "down", "compute", "up", "ended", "fate")
    return {"barrier": of, **{name: [getattr(x, name) for x in legs] for name in names}}
