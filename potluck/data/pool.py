"""All rows of a data set, before anybody holds them: checked, normalised, with a global test set."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core.errors import ConfigError, DataError
from potluck.core.keys import derive, hash_all

TEST_SHARE = 0.2  # of every class, where a source names no test rows itself
# Fixed: the global test set, validators and `limit` must be the same in runs of different seeds.
_TEST_KEY = derive(0, int.from_bytes(b"test"))
_LIMIT_KEY = derive(0, int.from_bytes(b"limit"))
_VALIDATORS_KEY = derive(0, int.from_bytes(b"validators"))
_BLOCK = 1 << 24  # bytes
_SERVER = int.from_bytes(b"server")
# What columns may hold, by NumPy's letters for it.
_KINDS = {"b": "bool", "iu": "integers", "iuU": "integers or text", "iufM": "numbers or dates"}
_RENUMBER = "number them without gaps, by y = numpy.unique(y, return_inverse=True)[1]"


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows of one data set. Rows where `test` holds form the global test set: no client ever has one."""

    # [M, *shape] float32: (value - mean) / std, bytes being scaled to [0, 1] first; or tokens, int64
    x: Tensor
    y: Tensor  # [M] int64, 0 to classes - 1
    classes: int
    test: NDArray[np.bool_]  # [M]
    user: NDArray[np.int64] | None  # [M] who wrote the row, when known
    name: str
    mean: float = 0.0  # over all values of the non-test rows, before any `limit`
    std: float = 1.0
    server: NDArray[np.bool_] | None = None  # [M] rows of the server, which no client has either
    validators: NDArray[np.bool_] | None = None  # [M] rows of users who do nothing but validate
    drawn: bool = False  # test rows were drawn by us: the source names none
    time: NDArray[np.int64] | None = None  # [M] which row was before which, where rows have an order
    by_time: bool = False  # clients' own rows are cut in that order, the last ones to be tested on
    names: tuple[str, ...] | None = None  # of users 0, 1, ..., where they came as text
    people: NDArray[np.int64] | None = None  # [M] which population a row's user is of, where that is known

    @property
    def free(self) -> NDArray[np.int64]:
        """Rows that clients may train and be tested on."""
        masks = (self.test, self.server, self.validators)
        return np.flatnonzero(~np.any([mask for mask in masks if mask is not None], axis=0))

    @property
    def validating(self) -> NDArray[np.int64] | None:
        """Rows of users who do nothing but validate, if some were set apart for it."""
        return None if self.validators is None else np.flatnonzero(self.validators)

    @property
    def order(self) -> NDArray[np.int64] | None:
        """What clients' own rows are cut by, train rows first; None: by chance."""
        return self.time if self.by_time else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.x.shape[1:])

    def __len__(self) -> int:
        return len(self.y)


def assemble(
    name: str,
    x: NDArray[np.generic],
    y: NDArray[np.generic],
    *,
    test: NDArray[np.generic] | None = None,
    user: NDArray[np.generic] | None = None,
    time: NDArray[np.generic] | None = None,
    people: NDArray[np.int64] | None = None,
    classes: int | None = None,
    top: int = 255,
    normalise: bool = True,
    tokens: bool = False,
) -> Pool:
    """Check raw arrays and make a pool of them.

    `name`: what errors call the data. `x`, `y`: rows and their labels. `classes`: how many labels there are;
    by default the largest + 1. `test`: which rows are the global test set's; by default a fixed, stratified
    fifth. `user`: who each row is of, by number or by name (names are numbered in sorted order). `time`:
    numbers or dates, which say which row was before which.
    Bytes (uint8) are divided by `top`; then the mean and the standard deviation of all values of the
    non-test rows are taken out, as two numbers that the pool states, unless `normalise` is False. With
    `tokens`, rows stay the integers they are. `people`: populations that the source knows, of each row.
    """
    if x.dtype.kind not in "buif" or x.ndim < 2 or not x.size:
        raise DataError(f"{name}: x must hold numbers of shape [rows, ...], found {_describe(x)}")
    classes = _count_classes(name, _column(name, "y", y, len(x), "iu"), classes)
    labels = y.astype(np.int64)
    held_out = (
        _column(name, "test", test, len(x), "b").astype(np.bool_)
        if test is not None
        else _draw_test_rows(labels)
    )
    if held_out.all() or not held_out.any():
        raise DataError(f"{name}: {held_out.sum()} of {len(x)} rows are test rows: both kinds are needed")
    users, names = (None, None) if user is None else number_users(_column(name, "user", user, len(x), "iuU"))
    values, mean, std = (
        (_check_tokens(name, x), 0.0, 1.0) if tokens else _standardise(name, x, ~held_out, top, normalise)
    )
    return Pool(
        *(torch.from_numpy(values), torch.from_numpy(labels), classes, held_out, users, name, mean, std),
        drawn=test is None,
        time=None if time is None else _rank(name, _column(name, "time", time, len(x), "iufM")),
        names=names,
        people=people,
    )


def number_users(user: NDArray[np.generic]) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Users as numbers; names are numbered in sorted order, and given beside them."""
    if user.dtype.kind != "U":
        return user.astype(np.int64), None
    names, numbers = np.unique(user, return_inverse=True)
    return numbers.astype(np.int64), tuple(names.tolist())


def check_people(name: str, noun: str, user: NDArray[np.generic], test: NDArray[np.bool_]) -> None:
    """Refuse people on both sides: a test on them would reward a model for knowing them."""
    both = np.intersect1d(user[test], user[~test])
    if len(both):
        raise DataError(f"{name}: {noun} {both[0]} has train and test rows; the test {noun}s must be others")


def limit_rows(pool: Pool, limit: int) -> Pool:
    """The `pool` with at most `limit` of its free rows: the first ones of a fixed shuffle."""
    if limit < 1:
        raise ConfigError(f"data.limit = {limit}: must be at least 1, or left out to keep every row")
    rows = pool.free
    keep = np.ones(len(pool), np.bool_)
    keep[rows] = False
    keep[rows[np.argsort(hash_all(_LIMIT_KEY, rows), kind="stable")[:limit]]] = True
    return _keep_rows(pool, keep)


def drop_class(pool: Pool, label: int) -> Pool:
    """The `pool` with class `label` in its test rows only: nobody trains on it."""
    if not 0 <= label < pool.classes:
        last = pool.classes - 1
        raise ConfigError(f"data.without = {label}: {pool.name} has classes 0 to {last}; name one of them")
    keep = pool.test | (pool.y.numpy() != label)
    if not keep[pool.free].any():
        raise ConfigError(f"data.without = {label}: {pool.name} has no other class to train on; leave it out")
    return _keep_rows(pool, keep)


def _keep_rows(pool: Pool, keep: NDArray[np.bool_]) -> Pool:
    index = torch.from_numpy(np.flatnonzero(keep))
    return replace(
        pool,
        x=pool.x[index],
        y=pool.y[index],
        test=pool.test[keep],
        user=None if pool.user is None else pool.user[keep],
        server=None if pool.server is None else pool.server[keep],
        validators=None if pool.validators is None else pool.validators[keep],
        time=None if pool.time is None else pool.time[keep],
        people=None if pool.people is None else pool.people[keep],
    )


def set_validators(pool: Pool, share: float) -> Pool:
    """The `pool` with a `share` of its users for validation alone: nobody trains on their rows.

    Settings that are chosen on such rows are chosen for people whom models don't know, as test rows are of
    other people where a set names them. Rows of one person resemble each other.
    """
    if pool.user is None:
        raise ConfigError(
            f"data.validation_from = 'users': {pool.name} doesn't say who wrote its rows; use 'rows'"
        )
    users = np.unique(pool.user[pool.free])
    count = max(1, round(share * len(users)))
    if count >= len(users):
        raise ConfigError(
            f"data.validation = {share}: {count} of {len(users)} users of {pool.name} would validate, and "
            "nobody train; lower it, or set data.validation_from = 'rows'"
        )
    chosen = users[np.argsort(hash_all(_VALIDATORS_KEY, users), kind="stable")[:count]]
    return replace(pool, validators=~pool.test & np.isin(pool.user, chosen))


def reserve_rows(pool: Pool, share: float, key: int) -> Pool:
    """The `pool` with a `share` of its free rows, drawn by `key`, set aside for the server."""
    if not 0 < share < 1:
        raise ConfigError(f"data.server = {share}: must be between 0 and 1, or left out for none")
    rows = pool.free
    order = np.argsort(hash_all(derive(key, _SERVER), rows), kind="stable")
    server = np.zeros(len(pool), np.bool_)
    server[rows[order[: max(1, round(share * len(rows)))]]] = True
    return replace(pool, server=server)


def fingerprint(pool: Pool) -> bytes:
    """A hash of everything in a `pool`, for runs whose data no file can name."""
    digest = hashlib.sha256(f"{pool.name} {pool.classes} {pool.shape} {pool.x.dtype}".encode())
    for part in (pool.x.numpy(), pool.y.numpy(), pool.test, pool.user, pool.server, pool.validators):
        if part is not None:
            digest.update(np.ascontiguousarray(part).data.cast("B"))
        digest.update(b"|")
    for part in (pool.order, pool.people):
        if part is not None:
            digest.update(np.ascontiguousarray(part).data.cast("B"))
    return digest.digest()


def _describe(array: NDArray[np.generic]) -> str:
    return f"{array.dtype} {list(array.shape)}"


def _column(name: str, key: str, values: NDArray[np.generic], rows: int, kinds: str) -> NDArray[np.generic]:
    wanted = _KINDS[kinds]
    if values.dtype.kind not in kinds or values.ndim != 1:
        fix = f"; {_RENUMBER}" if key == "y" and values.ndim == 1 else ""
        raise DataError(f"{name}: {key} must hold one column of {wanted}, found {_describe(values)}{fix}")
    if len(values) != rows:
        raise DataError(f"{name}: {key} has {len(values)} entries, x has {rows} rows")
    return values


def _rank(name: str, time: NDArray[np.generic]) -> NDArray[np.int64]:
    """Moments as numbers in their order; equal ones are equal."""
    unknown = np.isnat(time) if time.dtype.kind == "M" else ~np.isfinite(time)
    if unknown.any():
        raise DataError(f"{name}: time of row {int(np.flatnonzero(unknown)[0])} is no moment; leave none out")
    ranks: NDArray[np.int64] = np.unique(time, return_inverse=True)[1].astype(np.int64)
    return ranks


def _count_classes(name: str, labels: NDArray[np.generic], classes: int | None) -> int:
    low, high = int(labels.min()), int(labels.max())
    if classes is None:
        classes = high + 1
        if low == high:
            raise DataError(
                f"{name}: every row has label {low}, so nothing can be learned; give rows of several classes"
            )
        if not 2 <= classes <= len(labels):
            raise DataError(
                f"{name}: labels must be numbered 0, 1, 2, ...; found {low} to {high}; {_RENUMBER}"
            )
        missing = np.setdiff1d(np.arange(classes), labels)
        if low >= 0 and len(missing):
            raise DataError(
                f"{name}: no row has label {missing[0]} of 0 to {high}, so {len(np.unique(labels))} classes "
                f"would count as {classes}; {_RENUMBER}, or give classes = {classes} if they are so many"
            )
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        row = int(np.flatnonzero(labels == wrong)[0])
        fix = f"; {_RENUMBER}" if low < 0 else ""
        raise DataError(f"{name}: label {wrong} of row {row} is out of range 0 to {classes - 1}{fix}")
    return classes


def _draw_test_rows(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """A test set: of every class, the share of rows whose hashes come first."""
    order = np.lexsort((hash_all(_TEST_KEY, np.arange(len(labels))), labels))
    counts = np.bincount(labels)
    rank = np.empty(len(labels), np.int64)  # of a row, within its class
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen: NDArray[np.bool_] = rank < np.rint(TEST_SHARE * counts)[labels]
    return chosen


def _standardise(
    name: str, x: NDArray[np.generic], train: NDArray[np.bool_], top: int, normalise: bool
) -> tuple[NDArray[np.float32], float, float]:
    """Values without mean and deviation of the train rows, and these two."""
    mean, std = 0.0, 1.0
    if x.dtype == np.uint8:  # by table: exact sums, and no float64 copy of the images
        table = np.arange(256) / top
        if normalise:
            share = _count_bytes(x[train].reshape(-1)) / x[train].size
            mean = float(share @ table)
            std = float(np.sqrt(share @ (table - mean) ** 2))
            _check_spread(name, std)
        return ((table - mean) / std).astype(np.float32)[x], mean, std
    with np.errstate(over="ignore"):  # what overflows is reported as not finite
        values = x.astype(np.float32)
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise DataError(f"{name}: x of row {row} is not a finite number of 32 bits")
    if normalise:
        mean = float(values[train].mean(dtype=np.float64))
        std = float(values[train].std(dtype=np.float64))
        _check_spread(name, std)
        values -= np.float32(mean)
        values /= np.float32(std)
    return values, mean, std


def _count_bytes(values: NDArray[np.generic]) -> NDArray[np.int64]:
    """How often each byte occurs; block by block, since NumPy makes eight bytes of each to count them."""
    counts = np.zeros(256, np.int64)
    for at in range(0, values.size, _BLOCK):
        counts += np.bincount(values[at : at + _BLOCK], minlength=256)
    return counts


def _check_tokens(name: str, x: NDArray[np.generic]) -> NDArray[np.int64]:
    if x.dtype.kind not in "iu":
        raise DataError(f"{name}: tokens must be integers, found {_describe(x)}")
    values = x.astype(np.int64, copy=False)
    if int(values.min()) < 0:
        row = int(np.argwhere(values < 0)[0][0])
        raise DataError(f"{name}: x of row {row} holds a negative token; number them from 0")
    return values


def _check_spread(name: str, std: float) -> None:
    if not std > 0:
        raise DataError(f"{name}: all values of x are equal, so nothing can be learned from them")
