"""Test-time shift: clients are tested, in part, on what they were never shown (ClassTer).

A share of a client's test rows gives way to rows of the global test set whose classes are absent from its
train rows, drawn by hash. A client that trains on every class is tested on the class that it has the fewest
train rows of (all such classes, where several tie): the farthest that its data can shift.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError
from potluck.core.keys import derive, hash_all
from potluck.data.holding import (
    Overlay,
    Partition,
    Procedural,
    Split,
    StoredPartition,
    draw_distinct,
    store,
    stream,
)
from potluck.data.pool import Pool


@dataclass(frozen=True, eq=False)
class Shifted(Overlay):
    """A partition with a share of every client's test rows replaced; train and validation rows stay."""

    share: float
    key: int
    labels: NDArray[np.int64]  # [M] of all rows
    unseen: NDArray[np.int64]  # global test rows, by class
    offsets: NDArray[np.int64]  # [classes + 1] into `unseen`

    def rows(self, client: int, split: Split) -> NDArray[np.int64]:
        own = self.base.rows(client, split)
        if split != "test":
            return own
        count = count_replaced(self.share, len(own))
        key = derive(stream(self.key, b"shift"), client)
        kept = own[np.argsort(hash_all(key, own), kind="stable")[count:]]
        train = np.bincount(self.labels[self.base.rows(client, "train")], minlength=len(self.offsets) - 1)
        kinds = np.flatnonzero(train == train.min())
        starts, ends = self.offsets[kinds], self.offsets[kinds + 1]
        joined = np.cumsum(ends - starts)  # the classes' rows laid end to end, without copying them
        if count > joined[-1]:
            raise DataError(
                f"shift = {self.share}: client {client} needs {count} test rows of classes {kinds.tolist()}, "
                f"but the global test set has {joined[-1]}; lower shift or test, or raise clients"
            )
        drawn = draw_distinct(derive(key, 1), count, int(joined[-1]))
        at = np.searchsorted(joined, drawn, side="right")
        rows = np.sort(np.concatenate([kept, self.unseen[ends[at] - joined[at] + drawn]]))
        rows.setflags(write=False)
        return rows


def count_replaced(share: float, rows: int) -> int:
    """How many of so many test rows are replaced: the share to the nearest row."""
    return int(np.floor(share * rows + 0.5))


def shift_tests(pool: Pool, partition: Partition, share: float, key: int) -> Partition:
    """The partition with a share of every client's test rows from classes that it doesn't train on."""
    if not 0 <= share <= 1:
        raise ConfigError(f"shift = {share}: must be between 0 (as trained on) and 1 (all of it unseen)")
    if not share:
        return partition
    test = np.flatnonzero(pool.test)
    labels: NDArray[np.int64] = pool.y.numpy()
    per_class = np.bincount(labels[test], minlength=pool.classes)
    unseen = test[np.argsort(labels[test], kind="stable")]
    made = Shifted(partition, share, key, labels, unseen, np.concatenate([[0], np.cumsum(per_class)]))
    if isinstance(partition, StoredPartition):
        return store(made)  # which finds everybody for whom there aren't enough rows
    if isinstance(partition, Procedural):
        most = count_replaced(share, int(partition.sizes[:, 2].max()))
        if most > per_class.min():
            raise DataError(
                f"shift = {share}: a client may need {most} test rows of class {per_class.argmin()}, but the "
                f"global test set has {per_class.min()}; lower shift, largest or test"
            )
    return made
