"""A federation: who holds what, who is how fast, and which models they train."""

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.contracts import Nets
from potluck.data import Partition, Phase, Pool
from potluck.fleet import Fleet


@dataclass(frozen=True, eq=False)
class World:
    """Everything that is given before an algorithm runs; nothing in it changes during a run."""

    pool: Pool
    partition: Partition  # at the start
    fleet: Fleet
    models: Nets
    changes: tuple[Phase, ...] = ()  # by time: who holds what later
    test_group: NDArray[np.int32] | None = None  # as which group each global test row is seen, if any
    flips: NDArray[np.bool_] | None = None  # whose train labels are wrong; no algorithm sees it
    # What devices remember at the start, by device and slot.
    memories: Mapping[tuple[int, Hashable], Any] = field(default_factory=dict)

    def phase(self, when: float) -> int:
        """How many changes have happened by a time, one at this very moment included."""
        return bisect_right(self.changes, when, key=lambda change: change.start) if self.changes else 0

    def holding(self, when: float) -> Partition:
        """Who holds what at a time."""
        phase = self.phase(when)
        return self.changes[phase - 1].partition if phase else self.partition

    def test_rows(self, when: float = 0.0) -> NDArray[np.int64]:
        """The global test set at a time."""
        phase = self.phase(when)
        return self.changes[phase - 1].test if phase else np.flatnonzero(self.pool.test)

    def server_rows(self) -> NDArray[np.int64]:
        """The cloud's own rows, if some were set aside for it."""
        server = self.pool.server
        return np.zeros(0, np.int64) if server is None else np.flatnonzero(server)

    def on(self, device: str) -> "World":
        """The same world with its rows and models on a device."""
        pool = replace(self.pool, x=self.pool.x.to(device), y=self.pool.y.to(device))
        return replace(self, pool=pool, models=self.models.on(device))

    def row_bytes(self) -> int:
        """Bytes of one sample when it moves between devices: its input and its label."""
        x = self.pool.x
        return int(x[0].numel() * x.element_size()) + 8
