"""Label skew by number: every client knows k classes (McMahan et al., 2017, with exact k).

There, rows sorted by label are cut into equal shards and each client draws some, so that a shard may hold two
classes and a client the same class twice. Here, who holds which class is drawn first.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError
from potluck.core.keys import generator
from potluck.data.holding import Cut, StoredPartition, build_partition, stream
from potluck.data.partition.deal import find_owners, move, read_labels, shuffle_rows
from potluck.data.pool import Pool


def shards(
    pool: Pool, clients: int, key: int, classes_per_client: int = 2, cut: Cut = Cut()
) -> StoredPartition:
    """Every client holds rows of exactly `classes_per_client` classes; which ones is drawn.

    A class has about as many holders as it has rows for, and is shared out evenly among them. All rows are
    held if clients x classes_per_client is at least the number of classes; else some classes are nobody's.
    Where rows hardly suffice it may give up (DataError) though a cleverer deal exists.
    `pool`, `clients`, `key`, `cut`: as for `iid`.
    """
    if not 1 <= classes_per_client <= pool.classes:
        raise ConfigError(
            f"classes_per_client = {classes_per_client}: {pool.name} has {pool.classes} classes, "
            f"so it must be 1 to {pool.classes}"
        )
    rows = shuffle_rows(pool, clients, key, cut)
    per_class = np.bincount(read_labels(pool, rows), minlength=pool.classes)
    rng = generator(stream(key, b"shards"))
    left = _holders(per_class, clients, classes_per_client, rng)
    counts = np.zeros((pool.classes, clients), np.int64)
    for client in range(clients):
        # Weighted draw without replacement (Efraimidis and Spirakis); a class with as many holders left as
        # there are clients left must be taken, which keeps the rest solvable.
        score = np.where(left > 0, np.log1p(-rng.random(pool.classes)) / np.maximum(left, 1), -np.inf)
        score[left == clients - client] = np.inf
        taken = np.argsort(-score, kind="stable")[:classes_per_client]
        counts[taken, client] = 1
        left[taken] -= 1
    sizes = np.zeros(clients, np.int64)
    for label in np.flatnonzero(counts.any(axis=1)):
        holders = np.flatnonzero(counts[label])
        holders = holders[np.argsort(sizes[holders], kind="stable")]  # odd rows go to the smallest
        counts[label, holders] = per_class[label] // len(holders)
        counts[label, holders[: per_class[label] % len(holders)]] += 1
        sizes += counts[label]
    _fill_up(counts, sizes, cut.smallest)
    return build_partition(find_owners(pool, rows, counts), clients, key, cut)


def _holders(
    per_class: NDArray[np.int64], clients: int, each: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many clients hold each class: in proportion to its rows, one at least where there are enough."""
    wanted = clients * each
    most = np.minimum(per_class, clients)  # a client holds a class once, and a holder has a row
    if most.sum() < wanted:
        raise DataError(
            f"classes_per_client = {each}: {clients} clients need {wanted} times a class, but with "
            f"{per_class.tolist()} rows per class there are {most.sum()}; lower it, or clients"
        )
    holders = (most > 0).astype(np.int64)
    if holders.sum() > wanted:
        holders[:] = 0
    # Highest averages (D'Hondt): the next holder where holders would then have the most rows each.
    ties = rng.permutation(len(most)).tolist()
    heap = [(-per_class[c] / (holders[c] + 1), ties[c], c) for c in np.flatnonzero(holders < most).tolist()]
    heapq.heapify(heap)
    for _ in range(wanted - int(holders.sum())):
        label = heap[0][2]
        holders[label] += 1
        if holders[label] < most[label]:
            heapq.heapreplace(heap, (-per_class[label] / (holders[label] + 1), ties[label], label))
        else:
            heapq.heappop(heap)
    return holders


def _fill_up(counts: NDArray[np.int64], sizes: NDArray[np.int64], smallest: int) -> None:
    """Fill up small clients, within their classes, from the largest client that can spare such rows."""
    for client in np.flatnonzero(sizes < smallest).tolist():
        own = np.flatnonzero(counts[:, client])
        while (need := smallest - int(sizes[client])) > 0:
            able = (counts[own] > 1).any(axis=0) & (sizes > smallest)
            if not able.any():
                raise DataError(
                    f"clients = {len(sizes)}: too few rows of classes {own.tolist()} for clients of "
                    f"{smallest} rows; lower clients or smallest, or raise classes_per_client"
                )
            donor = int(np.argmax(np.where(able, sizes, -1)))
            label = int(own[np.argmax(counts[own, donor])])
            spare = min(int(sizes[donor]) - smallest, int(counts[label, donor]) - 1)
            move(counts, sizes, label, donor, client, min(need, spare))
