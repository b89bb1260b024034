"""Ways to divide a pool's rows among clients: the global test set stays out of all of them."""

import numpy as np

from potluck.data.deal import labels, move, owners, shuffled_rows
from potluck.data.holding import Cut, Held, Partition, Procedural, Split, hold, stream
from potluck.data.label_shards import shards
from potluck.data.pool import Pool
from potluck.errors import ConfigError, DataError, nearest
from potluck.keys import generator, hashed

__all__ = [
    "KINDS",
    "Cut",
    "Held",
    "Partition",
    "Procedural",
    "Split",
    "by_user",
    "dirichlet",
    "divide",
    "iid",
    "procedural",
    "shards",
]

KINDS = ("iid", "dirichlet", "shards", "by_user", "procedural")


def divide(
    pool: Pool,
    kind: str,
    clients: int | None,
    key: int,
    *,
    alpha: float = 0.5,
    classes_per_client: int | None = None,
    smallest: int = 5,
    largest: int = 50,
    validation: float = 0.1,
    test: float = 0.2,
) -> Partition:
    """Divide the non-test rows among clients, each of which gets train, validation and test rows.

    A kind reads the parameters it has and no others: `alpha` is dirichlet's, `largest` procedural's,
    `classes_per_client` shards' (2 unless told) and procedural's (all unless told). `clients` may be None
    for by_user only: everybody.
    """
    cut = Cut(validation, test, smallest)
    if kind == "by_user":
        return by_user(pool, clients, key, cut)
    if kind not in KINDS:
        raise ConfigError(f"partition {kind!r}: no such kind; {nearest(kind, KINDS)}")
    if clients is None:
        raise ConfigError(f"clients is missing: {kind} needs a number of clients")
    if kind == "iid":
        return iid(pool, clients, key, cut)
    if kind == "dirichlet":
        return dirichlet(pool, clients, key, alpha, cut)
    if kind == "shards":
        return shards(pool, clients, key, 2 if classes_per_client is None else classes_per_client, cut)
    return procedural(pool, clients, key, largest, classes_per_client, cut)


def iid(pool: Pool, clients: int, key: int, cut: Cut = Cut()) -> Held:
    """All rows, dealt out evenly after a shuffle."""
    rows = shuffled_rows(pool, clients, key, cut)
    owner = np.full(len(pool), -1)
    owner[rows] = np.arange(len(rows)) % clients
    return hold(owner, clients, key, cut)


def dirichlet(pool: Pool, clients: int, key: int, alpha: float = 0.5, cut: Cut = Cut()) -> Held:
    """All rows; each class is shared out in proportions drawn from Dirichlet(alpha): small alpha, much skew.

    A client that got fewer than `cut.smallest` rows is filled up, in order of number, by rows of the then
    largest client's commonest class. (The usual way, drawing anew until all are large enough, may not end.)
    """
    if not 0 < alpha <= 1e6:
        raise ConfigError(f"alpha = {alpha}: must be above 0 and at most 1e6; for no skew use kind 'iid'")
    rows = shuffled_rows(pool, clients, key, cut)
    per_class = np.bincount(labels(pool, rows), minlength=pool.classes)
    shares = generator(stream(key, b"shares")).dirichlet(np.full(clients, float(alpha)), pool.classes)
    ends = np.rint(np.cumsum(shares, axis=1) * per_class[:, None]).astype(np.int64)
    ends[:, -1] = per_class  # whatever the sum of shares was rounded to
    counts = np.diff(ends, axis=1, prepend=0)  # [classes, clients]
    sizes = counts.sum(axis=0)
    for client in np.flatnonzero(sizes < cut.smallest).tolist():
        while (need := cut.smallest - int(sizes[client])) > 0:
            donor = int(np.argmax(sizes))
            label = int(np.argmax(counts[:, donor]))
            move(counts, sizes, label, donor, client, min(need, int(sizes[donor]) - cut.smallest))
    return hold(owners(pool, rows, counts), clients, key, cut)


def by_user(pool: Pool, clients: int | None, key: int, cut: Cut = Cut()) -> Held:
    """One client per user of the non-test rows, in order of user id; `clients` picks that many by hash.

    Users with fewer than `cut.smallest` rows are left out; `left_out` of the partition says how many.
    """
    if pool.user is None:
        raise DataError(f"by_user: {pool.name} doesn't say who wrote its rows; use dirichlet or shards")
    rows = pool.free
    users, at, counts = np.unique(pool.user[rows], return_inverse=True, return_counts=True)
    chosen = np.flatnonzero(counts >= cut.smallest)
    left_out = len(users) - len(chosen)
    if clients is None:
        clients = len(chosen)
    if not 1 <= clients <= len(chosen):
        raise DataError(
            f"clients = {clients}: {pool.name} has {len(chosen)} users of {cut.smallest} rows or more "
            f"({left_out} have fewer); ask for 1 to {len(chosen)}, or lower smallest"
        )
    picked = np.argsort(hashed(stream(key, b"users"), users[chosen]), kind="stable")[:clients]
    number = np.full(len(users), -1)
    number[np.sort(chosen[picked])] = np.arange(clients)
    owner = np.full(len(pool), -1)
    owner[rows] = number[at]
    return hold(owner, clients, key, cut, left_out)


def procedural(
    pool: Pool,
    clients: int,
    key: int,
    largest: int = 50,
    classes_per_client: int | None = None,
    cut: Cut = Cut(),
) -> Procedural:
    """Any number of clients, of `cut.smallest` to `largest` rows, who may share rows; see Procedural.

    Classes with fewer than 3 non-test rows are nobody's.
    """
    if clients < 1:
        raise ConfigError(f"clients = {clients}: must be at least 1")
    if largest < cut.smallest:
        raise ConfigError(f"largest = {largest}: must be at least smallest = {cut.smallest}")
    rows = pool.free
    _, at, per_class = np.unique(labels(pool, rows), return_inverse=True, return_counts=True)
    enough = per_class >= 3
    usable = int(enough.sum())
    per_client = usable if classes_per_client is None else classes_per_client
    if not 1 <= per_client <= usable:
        raise ConfigError(
            f"classes_per_client = {classes_per_client}: {pool.name} has {usable} classes of 3 rows or more, "
            f"so it must be 1 to {usable}"
        )
    owner = np.full(len(pool), -1)
    owner[rows] = np.where(enough, np.cumsum(enough) - 1, -1)[at]
    by_class = hold(owner, usable, key, cut)
    sizes = cut.sizes(np.arange(cut.smallest, largest + 1))
    there = np.diff(by_class.offsets).reshape(usable, 3)
    fewest = np.sort(there, axis=0)[:per_client].sum(axis=0)  # if a client's classes are the rarest ones
    if (fewest < sizes[-1]).any():
        raise DataError(
            f"largest = {largest}: needs {sizes[-1].tolist()} rows to train, validate and test, but the "
            f"rarest {per_client} classes of {pool.name} have {fewest.tolist()}; lower largest"
        )
    return Procedural(key, clients, sizes, by_class, per_client)
