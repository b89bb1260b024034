"""What the ways to divide have in common: shuffled rows, and owners from a table of counts."""

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError
from potluck.core.keys import generator, hash_all
from potluck.data.holding import Cut, stream
from potluck.data.pool import Pool


def read_labels(pool: Pool, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels of rows."""
    found: NDArray[np.int64] = pool.y.numpy()[rows]
    return found


def shuffle_rows(pool: Pool, clients: int, key: int, cut: Cut) -> NDArray[np.int64]:
    """The non-test rows by hash, if they are enough for so many clients."""
    rows = pool.free
    most = len(rows) // cut.smallest
    if clients < 1:
        raise ConfigError(f"clients = {clients}: must be at least 1")
    if clients > most:
        raise DataError(
            f"clients = {clients}: the {len(rows)} rows of {pool.name} that are neither tests nor the "
            f"server's are enough for {most} clients of {cut.smallest} rows; lower clients or smallest, or "
            f"use partition 'procedural'"
        )
    return rows[np.argsort(hash_all(stream(key, b"deal"), rows), kind="stable")]


def find_owners(pool: Pool, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The owner of every row of the pool, from [classes, clients] how many of a class each client gets."""
    owner = np.full(len(pool), -1)
    owner[rows] = share_out(read_labels(pool, rows), counts)
    return owner


def share_out(of_row: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The owner of each of some rows of these labels, in their order; -1: nobody."""
    owner = np.full(len(of_row), -1)
    for label in np.flatnonzero(counts.any(axis=1)):
        given = counts[label]
        owner[np.flatnonzero(of_row == label)[: given.sum()]] = np.repeat(np.arange(len(given)), given)
    return owner


def draw_skewed(
    per_class: NDArray[np.int64], clients: int, alpha: float, smallest: int, key: int
) -> NDArray[np.int64]:
    """[classes, clients] rows: every class shared out by Dirichlet(alpha), then small clients filled up.

    Filling up goes in order of number, by rows of the then largest client's commonest class. (The usual
    way, drawing anew until all are large enough, may not end.) There must be `clients` x `smallest` rows.
    """
    shares = generator(key).dirichlet(np.full(clients, float(alpha)), len(per_class))
    ends = np.rint(np.cumsum(shares, axis=1) * per_class[:, None]).astype(np.int64)
    ends[:, -1] = per_class  # whatever the sum of shares was rounded to
    counts = np.diff(ends, axis=1, prepend=0)
    sizes = counts.sum(axis=0)
    for client in np.flatnonzero(sizes < smallest).tolist():
        while (need := smallest - int(sizes[client])) > 0:
            donor = int(np.argmax(sizes))
            label = int(np.argmax(counts[:, donor]))
            move(counts, sizes, label, donor, client, min(need, int(sizes[donor]) - smallest))
    return counts


def check_alpha(alpha: float) -> None:
    """Refuse what no Dirichlet distribution can be drawn with."""
    if not 0 < alpha <= 1e6:
        raise ConfigError(f"alpha = {alpha}: must be above 0 and at most 1e6; for no skew use kind 'iid'")


def move(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], label: int, donor: int, to: int, most: int
) -> None:
    """Hand rows of one class from a client to another, at most `most` of them."""
    moved = min(most, int(counts[label, donor]))
    counts[label, donor] -= moved
    counts[label, to] += moved
    sizes[donor] -= moved
    sizes[to] += moved
