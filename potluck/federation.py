"""A federation: who holds what, who is how fast, and which models they train."""

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from potluck.core.job import Nets
from potluck.core.trees import Tree
from potluck.data import Partition, Phase, Pool, Shift, StoredPartition
from potluck.fleet import Fleet

LOOKED_AT = 10_000  # clients whose labels are counted where rows aren't stored for each


@dataclass(frozen=True, eq=False)
class Federation:
    """Everything that is given before an algorithm runs; nothing in it changes during a run."""

    pool: Pool
    partition: Partition  # at the start
    fleet: Fleet
    models: Nets
    changes: tuple[Phase, ...] = ()  # by time: who holds what later
    test_group: NDArray[np.int32] | None = None  # as which group each global test row is seen, if any
    flips: NDArray[np.bool_] | None = None  # whose train labels are wrong; no algorithm sees it
    # What devices remember at the start, by device and slot.
    memories: Mapping[tuple[int, Hashable], Tree] = field(default_factory=dict)
    shifts: Mapping[Shift, Partition] = field(default_factory=dict)  # `partition` at other shifts
    triggered: NDArray[np.int64] | None = None  # the test set of a backdoor at the start, if there is one

    # -------------------------------------------------------------------- what rules may ask: FederationFacts

    @property
    def devices(self) -> int:
        return len(self.fleet)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pool.shape

    @property
    def tokens(self) -> bool:
        return not self.pool.x.is_floating_point()

    @property
    def classes(self) -> int:
        return self.pool.classes

    @property
    def server(self) -> int:
        return len(self.server_rows())

    def count_labels(self) -> NDArray[np.int64]:
        """Train rows of each class at the start; of the first 10,000 clients where rows go by hash."""
        partition = self.partition
        if isinstance(partition, StoredPartition):
            rows = partition.order[partition.cells % 3 == 0]
        else:
            some = range(min(partition.clients, LOOKED_AT))
            rows = np.concatenate([partition.rows(client, "train") for client in some])
        return np.bincount(self.pool.y.cpu().numpy()[rows], minlength=self.classes)

    # ------------------------------------------------------------------------------------ who holds what when

    def count_changes(self, when: float) -> int:
        """How many changes have happened by a time, one at this very moment included."""
        return bisect_right(self.changes, when, key=lambda change: change.start) if self.changes else 0

    def find_partition(self, when: float) -> Partition:
        """Who holds what at a time."""
        phase = self.count_changes(when)
        return self.changes[phase - 1].partition if phase else self.partition

    def find_shifts(self, when: float) -> Mapping[Shift, Partition]:
        """Who is tested on what at a time, by shift."""
        phase = self.count_changes(when)
        return self.changes[phase - 1].shifts if phase else self.shifts

    def test_rows(self, when: float = 0.0) -> NDArray[np.int64]:
        """The global test set at a time."""
        phase = self.count_changes(when)
        return self.changes[phase - 1].test if phase else np.flatnonzero(self.pool.test)

    def triggered_rows(self, when: float = 0.0) -> NDArray[np.int64] | None:
        """The global test set with a backdoor's trigger at a time; None: there is no backdoor."""
        phase = self.count_changes(when)
        return self.changes[phase - 1].triggered if phase else self.triggered

    def server_rows(self) -> NDArray[np.int64]:
        """The cloud's own rows, if some were set aside for it."""
        server = self.pool.server
        return np.zeros(0, np.int64) if server is None else np.flatnonzero(server)

    def on(self, device: str) -> "Federation":
        """The same federation with its rows and models on a device."""
        pool = replace(self.pool, x=self.pool.x.to(device), y=self.pool.y.to(device))
        return replace(self, pool=pool, models=self.models.on(device))

    def row_bytes(self) -> int:
        """Bytes of one sample when it moves between devices: its input and its label."""
        x = self.pool.x
        return int(x[0].numel() * x.element_size()) + 8
