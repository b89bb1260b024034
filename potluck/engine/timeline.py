"""The last tasks that devices worked on, and what their time went into: how a round looks from below.

Few are kept, however many there were: enough for a report to draw a round, and nothing to a snapshot.
"""

from collections import deque
from typing import Any, NamedTuple

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


Trail = deque[tuple[Any, ...]]  # of what `leg` makes, in order of their ends


def leg(flight: Flight, item: Task, ended: float, fate: str) -> tuple[Any, ...]:
    """A plain tuple: this is done for every task."""
    return (
        item.id, flight.sender, item.to, flight.began, flight.down, flight.compute, flight.up, ended, fate
    )  # fmt: skip


def table(trail: Trail) -> dict[str, list[Any]]:
    """As columns that a file can hold; barriers are numbered by sender, lane and serial, as they end."""
    legs = [Leg(*each) for each in trail]
    barriers: dict[Any, int] = {}
    of = [
        barriers.setdefault((x.sender, i) if x.id is None else (x.sender, x.id[0], x.id[1]), len(barriers))
        for i, x in enumerate(legs)
    ]
    names = ("sender", "node", "began", "down", "compute", "up", "ended", "fate")
    return {"barrier": of, **{name: [getattr(x, name) for x in legs] for name in names}}
