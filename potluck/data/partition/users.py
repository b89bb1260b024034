"""Division by user: a client each, several clients each, or several devices whose labels differ."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError, show_short
from potluck.core.keys import derive, hash_all
from potluck.data.holding import Cut, StoredPartition, build_partition, stream
from potluck.data.partition.deal import check_alpha, draw_skewed, read_labels, share_out
from potluck.data.pool import Pool

Rows = NDArray[np.int64]


def by_user(pool: Pool, clients: int | None, key: int, cut: Cut = Cut()) -> StoredPartition:
    """One client per user of the non-test rows, in order of user id; `clients` picks that many by hash.

    Users with fewer than `cut.smallest` rows are left out; `left_out` of the partition says how many.
    `pool`: the rows. `key`: the source of all that is drawn. `cut`: how a device's rows are cut into train,
    validation and test rows.
    """
    rows, users, at, counts = _find_users(pool, "by_user")
    chosen = np.flatnonzero(counts >= cut.smallest)
    left_out = len(users) - len(chosen)
    if not len(chosen):
        raise DataError(
            f"smallest = {cut.smallest}: no user of {pool.name} has so many rows outside of the global test "
            f"set (the richest has {counts.max()}); lower it, or deal rows otherwise, such as by 'dirichlet'"
        )
    if clients is None:
        clients = len(chosen)
    if not 1 <= clients <= len(chosen):
        raise DataError(
            f"clients = {clients}: {pool.name} has {len(chosen)} users of {cut.smallest} rows or more "
            f"({left_out} have fewer); ask for 1 to {len(chosen)}, or lower smallest"
        )
    number = np.full(len(users), -1)
    number[_pick(chosen, users[chosen], clients, key)] = np.arange(clients)
    owner = np.full(len(pool), -1)
    owner[rows] = number[at]
    return build_partition(owner, clients, key, cut, left_out)


def split_users(
    pool: Pool, clients: int | None, key: int, rows_per_client: int = 28, cut: Cut = Cut()
) -> StoredPartition:
    """Every user's rows, shuffled and cut evenly into clients of about `rows_per_client` rows.

    More clients than there are users, who are still people: the partition's `user` says which. `clients`
    picks that many by hash. Users with fewer than `cut.smallest` rows are left out. `pool`, `key`, `cut`: as
    for `by_user`.
    """
    if rows_per_client < cut.smallest:
        raise ConfigError(
            f"rows_per_client = {rows_per_client}: must be at least smallest = {cut.smallest}; raise it, "
            "or lower smallest"
        )
    rows, users, at, counts = _find_users(pool, "split_users")
    parts = np.minimum(
        np.maximum(1, np.rint(counts / rows_per_client).astype(np.int64)), counts // cut.smallest
    )
    total = int(parts.sum())
    if not total:
        raise DataError(
            f"smallest = {cut.smallest}: no user of {pool.name} has so many rows (the richest has "
            f"{counts.max()}); lower it"
        )
    if not 1 <= (total if clients is None else clients) <= total:
        raise DataError(
            f"clients = {clients}: the {len(users)} users of {pool.name} can be cut into {total} clients of "
            f"about {rows_per_client} rows; ask for 1 to {total}, or change rows_per_client"
        )
    by_hash = np.lexsort((hash_all(stream(key, b"deal"), rows), at))
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)  # of a row, within its user
    user = np.repeat(np.arange(len(users)), parts)
    places = np.arange(total)
    picked = places if clients is None else _pick(places, places, clients, key)
    number = np.full(total + 1, -1)  # the last one is nobody's
    number[picked] = np.arange(len(picked))
    whose = at[by_hash]
    piece = np.cumsum(parts)[whose] - parts[whose] + rank % np.maximum(1, parts[whose])
    owner = np.full(len(pool), -1)
    owner[rows[by_hash]] = number[np.where(parts[whose] > 0, piece, total)]
    left_out = int((parts == 0).sum())
    return build_partition(owner, len(picked), key, cut, left_out, _number(user[picked]))


def user_devices(
    pool: Pool,
    key: int,
    users: int | None = None,
    devices_per_user: Sequence[int] = (2, 6),
    alpha: float = 0.5,
    cut: Cut = Cut(),
) -> StoredPartition:
    """Every user has some devices, each of them a client, and inside a user labels go by Dirichlet(`alpha`).

    How many devices is drawn between the two ends of `devices_per_user`, but a device has `cut.smallest`
    rows, so that users with few rows have fewer. Users are the pool's (who have too few rows for the fewest
    devices are left out), `users` picking that many by hash; or, in a pool that knows of none, `users` even
    shares of all rows. `pool`, `key`, `cut`: as for `by_user`.
    """
    low, high = _read_ends(devices_per_user)
    check_alpha(alpha)
    need = low * cut.smallest
    if pool.user is None:
        rows, ids, at, counts = _make_up_users(pool, users, key, need, low, cut.smallest)
    else:
        rows, ids, at, counts = _find_users(pool, "user_devices")
    chosen = np.flatnonzero(counts >= need)
    left_out = len(ids) - len(chosen)
    if not len(chosen):
        raise DataError(
            f"devices_per_user = {list(devices_per_user)}: no user of {pool.name} has the {need} rows that "
            f"{low} devices of {cut.smallest} need (the richest has {counts.max()}); lower it or smallest"
        )
    if users is None:
        users = len(chosen)
    if not 1 <= users <= len(chosen):
        raise DataError(
            f"users = {users}: {len(chosen)} users of {pool.name} have the {need} rows that {low} devices of "
            f"{cut.smallest} need; ask for 1 to {len(chosen)}, or lower devices_per_user or smallest"
        )
    picked = _pick(chosen, ids[chosen], users, key)
    drawn = hash_all(stream(key, b"devices"), ids[picked]) % np.uint64(high - low + 1)
    devices = np.minimum(low + drawn.astype(np.int64), counts[picked] // cut.smallest)
    rows, at = (
        column[np.argsort(hash_all(stream(key, b"deal"), rows), kind="stable")] for column in (rows, at)
    )
    mine = np.split(rows[np.argsort(at, kind="stable")], np.cumsum(counts)[:-1])  # by user
    owner, first = np.full(len(pool), -1), 0
    for user, count in zip(picked.tolist(), devices.tolist(), strict=True):
        of_row = read_labels(pool, mine[user])
        per_class = np.bincount(of_row, minlength=pool.classes)
        inside = derive(stream(key, b"inside"), int(ids[user]))
        owner[mine[user]] = first + share_out(
            of_row, draw_skewed(per_class, count, alpha, cut.smallest, inside)
        )  # all rows are shared out
        first += count
    return build_partition(
        owner, first, key, cut, left_out, np.repeat(np.arange(users), devices).astype(np.int32)
    )


def _find_users(pool: Pool, kind: str) -> tuple[Rows, Rows, Rows, Rows]:
    """The rows that clients may hold; the users of them, whose each row is, and how many each has."""
    if pool.user is None:
        raise DataError(f"{kind}: {pool.name} doesn't say who wrote its rows; use dirichlet or shards")
    rows = pool.free
    return rows, *np.unique(pool.user[rows], return_inverse=True, return_counts=True)


def _make_up_users(
    pool: Pool, users: int | None, key: int, need: int, low: int, smallest: int
) -> tuple[Rows, Rows, Rows, Rows]:
    """The same for users who are even shares of all rows."""
    rows = pool.free
    most = len(rows) // need
    if users is None:
        raise DataError(
            f"users is missing: {pool.name} doesn't say who wrote its rows, so say how many users to make, "
            f"1 to {most}"
        )
    if not 1 <= users <= most:
        raise DataError(
            f"users = {users}: the {len(rows)} non-test rows of {pool.name} are enough for {most} users of "
            f"{low} devices of {smallest} rows; lower users, devices_per_user or smallest"
        )
    rows = rows[np.argsort(hash_all(stream(key, b"users"), rows), kind="stable")]
    at = np.arange(len(rows)) % users
    return rows, np.arange(users), at, np.bincount(at)


def _pick(places: Rows, ids: Rows, count: int, key: int) -> Rows:
    """So many of these places, those whose ids come first by hash, ascending."""
    order = np.argsort(hash_all(stream(key, b"users"), ids), kind="stable")
    return np.sort(places[order[:count]])


def _number(user: Rows) -> NDArray[np.int32]:
    """The same users, numbered from 0 without gaps."""
    return np.unique(user, return_inverse=True)[1].astype(np.int32)


def _read_ends(devices: Sequence[int]) -> tuple[int, int]:
    low, high = devices if len(devices) == 2 else (0, 0)
    if not 1 <= low <= high:
        raise ConfigError(
            f"devices_per_user = {show_short(list(devices))}: give the fewest and the most, such as [2, 6]"
        )
    return int(low), int(high)
