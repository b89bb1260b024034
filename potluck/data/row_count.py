"""Where every row of a data set went: numbers that add up to its rows."""

from dataclasses import dataclass

import numpy as np

from potluck.data.holding import SPLITS, Partition, Procedural, StoredPartition
from potluck.data.pool import Pool


@dataclass(frozen=True)
class RowCount:
    """How many rows of a source are whose, before any moves, changes or shifts."""

    train: int  # of devices
    validation: int
    test: int
    global_test: int
    server: int
    dropped: int  # by data.limit and data.without
    unheld: int  # that no device was given: of users with too few, say


def count_rows(rows: int, pool: Pool, partition: Partition) -> RowCount:
    """Where so many `rows` of a source are: a `pool` kept some, and a `partition` dealt these out.

    A row that several devices have counts once: as a train row, if it is one of somebody's.
    """
    held = np.full(len(pool), len(SPLITS))
    if isinstance(partition, Procedural):  # anybody may have any of these
        partition = partition.by_class
    if isinstance(partition, StoredPartition):
        held[partition.order] = partition.cells % 3
    else:
        for split in ("test", "validation", "train"):
            for client in range(partition.clients):
                held[partition.rows(client, split)] = SPLITS[split]
    train, validation, test, _ = np.bincount(held, minlength=len(SPLITS) + 1).tolist()
    apart = int(pool.test.sum())
    server = 0 if pool.server is None else int(pool.server.sum())
    unheld = len(pool) - train - validation - test - apart - server
    return RowCount(train, validation, test, apart, server, rows - len(pool), unheld)
