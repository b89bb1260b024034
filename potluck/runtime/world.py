"""A federation: who holds what, who is how fast, and which models they train."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.contracts import Nets
from potluck.data import Partition, Pool
from potluck.fleet import Fleet


@dataclass(frozen=True, eq=False)
class World:
    """Everything that is given before an algorithm runs; nothing in it changes during a run."""

    pool: Pool
    partition: Partition
    fleet: Fleet
    models: Nets

    def test_rows(self) -> NDArray[np.int64]:
        """The global test set."""
        return np.flatnonzero(self.pool.test)

    def server_rows(self) -> NDArray[np.int64]:
        """The cloud's own rows, if some were set aside for it."""
        server = self.pool.server
        return np.zeros(0, np.int64) if server is None else np.flatnonzero(server)

    def row_bytes(self) -> int:
        """Bytes of one sample when it moves between devices: its input and its label."""
        x = self.pool.x
        return int(x[0].numel() * x.element_size()) + 8
