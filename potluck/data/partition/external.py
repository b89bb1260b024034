"""Partitions made elsewhere: lists of rows, and flwr-datasets' partitioners (it needn't be installed)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potluck.core.errors import DataError
from potluck.data.holding import Cut, StoredPartition, build_partition
from potluck.data.pool import Pool


class Partitioner(Protocol):
    """What flwr-datasets' partitioners have in common, once their `dataset` is set."""

    @property
    def num_partitions(self) -> int: ...
    def load_partition(self, partition_id: int) -> Mapping[str, ArrayLike]: ...  # a Hugging Face dataset


def columns(pool: Pool) -> dict[str, NDArray[np.int64]]:
    """The rows of a `pool` that clients may hold, as columns for `datasets.Dataset.from_dict`.

    partitioner = DirichletPartitioner(num_partitions=20, partition_by="label", alpha=0.5)
    partitioner.dataset = Dataset.from_dict(columns(pool))
    partition = from_flwr(partitioner, pool)
    """
    rows = pool.free
    found = {"index": rows, "label": pool.y.numpy()[rows]}
    return found if pool.user is None else {**found, "user": pool.user[rows]}


def from_flwr(
    partitioner: Partitioner, pool: Pool, key: int = 0, cut: Cut = Cut(), column: str = "index"
) -> StoredPartition:
    """What a partitioner of flwr-datasets made of a `pool`.

    `partitioner`: one whose dataset is `potluck.data.columns(pool)`, or has the numbers of the pool's rows in
    `column`. `key`, `cut`: as for `from_rows`.
    """
    shares = []
    for client in range(partitioner.num_partitions):
        share = partitioner.load_partition(client)
        try:
            shares.append(np.asarray(share[column]))
        except KeyError:
            raise DataError(
                f"column = {column!r}: partition {client} has no such column; make the partitioner's dataset "
                "of potluck.data.columns(pool), or name the column that holds row numbers"
            ) from None
    return from_rows(shares, pool, key, cut)


def from_rows(
    rows: Sequence[ArrayLike],
    pool: Pool,
    key: int = 0,
    cut: Cut = Cut(),
    user: NDArray[np.integer] | None = None,
) -> StoredPartition:
    """A partition from the rows of every client.

    `rows`: of each client, the numbers of its rows in `pool`. `user`: whose device each client is, if that is
    known. Each client's rows are cut into train, validation and test rows as `cut` says, drawn from `key`.
    """
    free = np.zeros(len(pool), np.bool_)
    free[pool.free] = True
    owner = np.full(len(pool), -1)
    for client, listed in enumerate(rows):
        mine = _check(client, np.asarray(listed), len(pool), cut.smallest)
        closed, taken = mine[~free[mine]], mine[owner[mine] >= 0]
        if len(closed):
            raise DataError(
                f"client {client}: row {closed[0]} is a test, validator or server row, which nobody may hold"
            )
        if len(taken):
            raise DataError(f"client {client}: row {taken[0]} is client {owner[taken[0]]}'s already")
        owner[mine] = client
    if not len(rows):
        raise DataError("rows: no clients; give one array of row numbers for each")
    if user is not None and len(user) != len(rows):
        raise DataError(f"user has {len(user)} entries: give one for each of {len(rows)} clients")
    cut = replace(cut, validators=pool.validating, order=pool.order)
    return build_partition(owner, len(rows), key, cut, user=None if user is None else user.astype(np.int32))


def _check(client: int, rows: NDArray[np.generic], total: int, smallest: int) -> NDArray[np.int64]:
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise DataError(
            f"client {client}: give one column of row numbers, not {rows.dtype} {list(rows.shape)}"
        )
    if len(rows) < smallest:
        raise DataError(f"client {client} has {len(rows)} rows; give it {smallest}, or lower smallest")
    if rows.min() < 0 or rows.max() >= total:
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise DataError(f"client {client}: row {wrong} is out of range; the pool has rows 0 to {total - 1}")
    unique, counts = np.unique(rows, return_counts=True)
    if len(unique) < len(rows):
        raise DataError(f"client {client}: row {unique[counts > 1][0]} is listed twice")
    return rows.astype(np.int64)
