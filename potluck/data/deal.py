"""What the ways to divide have in common: shuffled rows, and owners from a table of counts."""

import numpy as np
from numpy.typing import NDArray

from potluck.data.holding import Cut, stream
from potluck.data.pool import Pool
from potluck.errors import ConfigError, DataError
from potluck.keys import hashed


def labels(pool: Pool, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels of rows."""
    found: NDArray[np.int64] = pool.y.numpy()[rows]
    return found


def shuffled_rows(pool: Pool, clients: int, key: int, cut: Cut) -> NDArray[np.int64]:
    """The non-test rows by hash, if they are enough for so many clients."""
    rows = pool.free
    most = len(rows) // cut.smallest
    if clients < 1:
        raise ConfigError(f"clients = {clients}: must be at least 1")
    if clients > most:
        raise DataError(
            f"clients = {clients}: the {len(rows)} non-test rows of {pool.name} are enough for {most} "
            f"clients of {cut.smallest} rows; lower clients or smallest, or use kind 'procedural'"
        )
    return rows[np.argsort(hashed(stream(key, b"deal"), rows), kind="stable")]


def owners(pool: Pool, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The owner of every row, from [classes, clients] how many rows of a class each client gets."""
    owner = np.full(len(pool), -1)
    of_row = labels(pool, rows)
    for label, given in enumerate(counts):
        owner[rows[of_row == label][: given.sum()]] = np.repeat(np.arange(len(given)), given)
    return owner


def move(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], label: int, donor: int, to: int, most: int
) -> None:
    """Hand rows of one class from a client to another, at most `most` of them."""
    moved = min(most, int(counts[label, donor]))
    counts[label, donor] -= moved
    counts[label, to] += moved
    sizes[donor] -= moved
    sizes[to] += moved
