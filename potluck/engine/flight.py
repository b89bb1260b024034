"""An item on its way through a device, and what its job sees there."""

import numpy as np
from numpy.typing import NDArray

from potluck.core.codec import value
from potluck.core.job import Cost, Result
from potluck.core.messages import Move, Node, Task, Tell


@value(frozen=False, eq=False)
class Flight:
    """An item on its way through a device."""

    id: int
    sender: Node
    item: Task | Tell | Move
    count: int = 0  # of its sender's items so far, this one included
    began: float = -1.0  # -1: waits in its queue
    down: float = 0.0  # seconds
    compute: float = 0.0
    up: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0
    gone: bool = False  # its device leaves before the end
    cost: Cost = Cost()  # what its job promised
    result: Result | None = None  # computed, not yet delivered


def find_nodes(item: Task | Tell | Move) -> tuple[Node, ...]:
    """The devices that an item occupies."""
    if type(item) is Move:
        return (item.src, item.dst) if item.src != item.dst else (item.src,)
    return (item.to,)


def count_bytes(size: int, elapsed: float, seconds: float) -> int:
    """Of a transfer that takes so many seconds: what has passed by now."""
    if seconds <= 0 or elapsed >= seconds:
        return size if elapsed > 0 else 0
    return int(size * max(0.0, elapsed) / seconds)


def count_all_bytes(
    size: int, elapsed: NDArray[np.float64], seconds: NDArray[np.float64]
) -> NDArray[np.int64]:
    """`count_bytes` of many transfers."""
    whole = (seconds <= 0) | (elapsed >= seconds)
    part = (size * np.maximum(0.0, elapsed) / np.where(whole, 1.0, seconds)).astype(np.int64)
    return np.where(whole, np.where(elapsed > 0, size, 0), part)
