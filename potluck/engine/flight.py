"""An item on its way through a device, what its job sees there, and what may come out of it."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.job import Local, Result
from potluck.core.messages import Move, Node, Task, Tell
from potluck.core.trees import Tree, finite, same_form

if TYPE_CHECKING:
    from potluck.simulate.devices import Devices


@value(frozen=False, eq=False)
class Flight:
    """An item on its way through a device."""

    id: int
    sender: Node
    item: Task | Tell | Move
    began: float = -1.0  # -1: waits in its queue
    down: float = 0.0  # seconds
    compute: float = 0.0
    up: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0
    gone: bool = False  # its device leaves before the end
    sends: Tree = None  # the form that its body must have
    result: Result | None = None  # computed, not yet delivered


class Seen(Local):
    """What a job sees while its item runs; looked up when read, since most jobs don't look at all."""

    __slots__ = ("_devices", "_flight", "_item", "_rows", "_seed")

    def __init__(self, devices: "Devices", flight: Flight, item: Task | Tell) -> None:
        self._devices, self._flight, self._item = devices, flight, item
        self._rows: NDArray[np.int64] | None = None
        self._seed: int | None = None
        self.node, self.inbox, self.test = item.to, item.send, None
        self.models, self.pool = devices.models, devices.pool

    @property
    def rows(self) -> NDArray[np.int64]:  # type: ignore[override]
        if self._rows is None:  # those of the start, whatever has changed since
            self._rows = self._devices.rows(self.node, self._flight.began)
        return self._rows

    @property
    def keep(self) -> Tree:
        return self._devices.keeps.get(self.node, self._item.slot)

    @property
    def seed(self) -> int:  # type: ignore[override]
        """By who asked for what, not by when it is computed."""
        if self._seed is None:
            item, flight, seed = self._item, self._flight, self._devices.seed
            if isinstance(item, Task) and item.id is not None:
                self._seed = keys.derive(seed, item.to, flight.sender, item.id[1], item.id[2])
            else:
                self._seed = keys.derive(seed, item.to, flight.id)
        return self._seed


def occupied(item: Task | Tell | Move) -> tuple[Node, ...]:
    """The devices that an item occupies."""
    if type(item) is Move:
        return (item.src, item.dst) if item.src != item.dst else (item.src,)
    return (item.to,)  # type: ignore[union-attr]


def part(size: int, elapsed: float, seconds: float) -> int:
    if seconds <= 0 or elapsed >= seconds:
        return size if elapsed > 0 else 0
    return int(size * max(0.0, elapsed) / seconds)


def problem(result: Result, sends: Tree) -> str | None:
    """Why an update must not reach an aggregate."""
    if result.body is not None or sends:  # not by its truth: a body may be anything
        if sends is not None and not same_form(result.body, sends):
            return "keys, shapes or types differ from what the job promised"
        if not (result.finite or finite(result.body)):
            return "NaN or infinite numbers"
    if not (0 <= result.weight < float("inf")):
        return f"weight {result.weight}"
    return None
