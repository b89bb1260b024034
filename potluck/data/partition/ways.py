"""Ways to divide a pool's rows among clients: the global test set stays out of all of them."""

import numpy as np

from potluck.core.errors import ConfigError, DataError, nearest
from potluck.core.keys import generator, permute
from potluck.core.room import require_room
from potluck.data.holding import Cut, Procedural, StoredPartition, build_partition, stream
from potluck.data.partition.deal import check_alpha, draw_skewed, find_owners, read_labels, shuffle_rows
from potluck.data.pool import Pool

LAWS = ("lognormal", "powerlaw")


def iid(pool: Pool, clients: int, key: int, cut: Cut = Cut()) -> StoredPartition:
    """All rows, dealt out evenly after a shuffle.

    `pool`: the rows. `clients`: how many devices. `key`: the source of all that is drawn.
    `cut`: how a device's rows are cut into train, validation and test rows.
    """
    rows = shuffle_rows(pool, clients, key, cut)
    owner = np.full(len(pool), -1)
    owner[rows] = np.arange(len(rows)) % clients
    return build_partition(owner, clients, key, cut)


def dirichlet(pool: Pool, clients: int, key: int, alpha: float = 0.5, cut: Cut = Cut()) -> StoredPartition:
    """All rows; each class is shared out in proportions drawn from Dirichlet(alpha): small alpha, much skew.

    `pool`, `clients`, `key`, `cut`: as for `iid`. `alpha`: above 0. A client that got fewer than
    `cut.smallest` rows is filled up; see `draw_skewed`.
    """
    check_alpha(alpha)
    rows = shuffle_rows(pool, clients, key, cut)
    fix = f"lower it, or use kind 'iid' ({pool.classes:,} classes are shared out)"
    require_room(32 * clients * pool.classes, "clients", clients, fix)
    per_class = np.bincount(read_labels(pool, rows), minlength=pool.classes)
    counts = draw_skewed(per_class, clients, alpha, cut.smallest, stream(key, b"shares"))
    return build_partition(find_owners(pool, rows, counts), clients, key, cut)


def quantity(
    pool: Pool, clients: int, key: int, law: str = "lognormal", skew: float = 1.0, cut: Cut = Cut()
) -> StoredPartition:
    """All rows, shuffled; clients differ in how many they hold, not in labels.

    Everybody gets `cut.smallest` rows, and the others are shared out in proportion to weights. These go by
    `law`: log-normal ones whose logarithms deviate by `skew`, or rank^-skew (powerlaw), ranks being drawn.
    `pool`, `clients`, `key`, `cut`: as for `iid`.
    """
    if law not in LAWS:
        raise ConfigError(f"law = {law!r}: no such law of sizes; {nearest(law, LAWS)}")
    if not 0 <= skew <= 10:
        raise ConfigError(f"skew = {skew}: must be 0 (all alike) to 10 (one client has nearly all)")
    rows = shuffle_rows(pool, clients, key, cut)
    if law == "lognormal":
        weight = np.exp(skew * generator(stream(key, b"sizes")).standard_normal(clients))
    else:
        weight = (1.0 + permute(stream(key, b"sizes"), clients)) ** -skew
    spare = len(rows) - clients * cut.smallest
    ends = np.rint(np.cumsum(weight) / weight.sum() * spare).astype(np.int64)
    ends[-1] = spare
    sizes = cut.smallest + np.diff(ends, prepend=0)
    owner = np.full(len(pool), -1)
    owner[rows] = np.repeat(np.arange(clients), sizes)
    return build_partition(owner, clients, key, cut)


def procedural(
    pool: Pool,
    clients: int,
    key: int,
    largest: int = 50,
    classes_per_client: int | None = None,
    cut: Cut = Cut(),
) -> Procedural:
    """As many clients as you like, of `cut.smallest` to `largest` rows, who may share rows; see Procedural.

    `classes_per_client`: how many classes a client holds; all of them unless told. Classes with fewer than 3
    non-test rows are nobody's. `pool`, `clients`, `key`, `cut`: as for `iid`.
    """
    if pool.validators is not None:
        raise ConfigError("validation_from = 'users': procedural clients share rows by class; use 'rows'")
    if pool.by_time:
        raise ConfigError("test_from = 'time': procedural clients share rows by class; use 'rows'")
    if clients < 1:
        raise ConfigError(f"clients = {clients}: must be at least 1")
    if largest > len(pool):
        raise ConfigError(f"largest = {largest}: {pool.name} has {len(pool)} rows in all; lower it")
    if largest < cut.smallest:
        raise ConfigError(f"largest = {largest}: must be at least smallest = {cut.smallest}")
    rows = pool.free
    _, at, per_class = np.unique(read_labels(pool, rows), return_inverse=True, return_counts=True)
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
    by_class = build_partition(owner, usable, key, cut)
    sizes = cut.sizes(np.arange(cut.smallest, largest + 1))
    there = np.diff(by_class.offsets).reshape(usable, 3)
    fewest = np.sort(there, axis=0)[:per_client].sum(axis=0)  # if a client's classes are the rarest ones
    if (fewest < sizes[-1]).any():
        raise DataError(
            f"largest = {largest}: needs {sizes[-1].tolist()} rows to train, validate and test, but the "
            f"rarest {per_client} classes of {pool.name} have {fewest.tolist()}; lower largest"
        )
    return Procedural(key, clients, sizes, by_class, per_client)
