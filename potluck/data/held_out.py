"""Which rows are tested on, where chance would leak: whole users, or the last rows in time.

Rows of one person resemble each other, and overlapping windows are nearly the same row. Drawn at random, a
test row then has a twin that was trained on.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError
from potluck.core.keys import derive, hash_all
from potluck.data.pool import TEST_SHARE, Pool

_KEY = derive(0, int.from_bytes(b"test users"))  # fixed: the same people in runs of different seeds


def choose_tests(pool: Pool, how: str) -> Pool:
    """The `pool` with its test rows chosen anew, unless the source names them.

    `how` is "rows": as they are, by chance; "users": a fifth of the users, with all their rows; "time": the
    last fifth of each user's rows (of all rows, where users aren't known), and clients' own rows are cut in
    order, too.
    """
    if how == "rows":
        return pool
    if how == "users":
        return _hold_out_users(pool)
    if pool.time is None:
        raise ConfigError(
            f"data.test_from = {how!r}: rows of {pool.name} have no order in time; use 'rows' or 'users'"
        )
    return replace(_hold_out(pool, _find_last(pool.user, pool.time)) if pool.drawn else pool, by_time=True)


def _hold_out_users(pool: Pool) -> Pool:
    key = "data.test_from = 'users'"
    if pool.user is None:
        raise ConfigError(f"{key}: {pool.name} doesn't say who wrote its rows; use 'rows' or 'time'")
    if not pool.drawn:
        both = np.intersect1d(pool.user[pool.test], pool.user[~pool.test])
        if len(both):
            who = both[0] if pool.names is None else pool.names[both[0]]
            raise ConfigError(
                f"{key}: {pool.name} names its test rows, and user {who} has some and others; "
                "leave them out of the data, or use 'rows'"
            )
        return pool
    users = np.unique(pool.user)
    if len(users) < 2:
        raise ConfigError(f"{key}: {pool.name} has rows of one user only; use 'rows' or 'time'")
    count = max(1, round(TEST_SHARE * len(users)))
    chosen = users[np.argsort(hash_all(_KEY, users), kind="stable")[:count]]
    return _hold_out(pool, np.isin(pool.user, chosen))


def _find_last(user: NDArray[np.int64] | None, time: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The last share of each user's rows, to the nearest row."""
    whose = np.zeros(len(time), np.int64) if user is None else np.unique(user, return_inverse=True)[1]
    counts = np.bincount(whose)
    order = np.lexsort((time, whose))
    left = np.empty(len(time), np.int64)  # rows of the same user from this one on
    left[order] = np.repeat(np.cumsum(counts), counts) - np.arange(len(time))
    last: NDArray[np.bool_] = left <= np.rint(TEST_SHARE * counts)[whose]
    return last


def _hold_out(pool: Pool, test: NDArray[np.bool_]) -> Pool:
    """The pool with other test rows, and scaled by those that are none now."""
    if not test.any():
        raise DataError(f"data.test_from: users of {pool.name} have too few rows for a test set; use 'rows'")
    pool = replace(pool, test=test)
    if (pool.mean, pool.std) == (0.0, 1.0):  # tokens, or values that are to stay as they are
        return pool
    values = pool.x.numpy()
    train = values[~test]
    mean, std = float(train.mean(dtype=np.float64)), float(train.std(dtype=np.float64))
    if not std > 0:
        raise DataError(f"{pool.name}: all values of x are equal, so nothing can be learned from them")
    return replace(pool, x=(pool.x - mean) / std, mean=pool.mean + pool.std * mean, std=pool.std * std)
