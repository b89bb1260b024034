"""Who holds which rows: as two arrays for thousands of clients, or by hash for millions."""

from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError
from potluck.core.keys import derive, hash_all, permute

Split = Literal["train", "validation", "test"]
SPLITS: dict[Split, int] = {"train": 0, "validation": 1, "test": 2}


@runtime_checkable
class Partition(Protocol):
    """Who holds what. Every client has at least one row of every split, and no row in two of them."""

    @property
    def clients(self) -> int: ...

    @property
    def left_out(self) -> int:
        """Users who got no client because they have too few rows; 0 unless rows are divided by user."""
        ...

    @property
    def user(self) -> NDArray[np.int32] | None:
        """Whose device each client is, numbered from 0 without gaps; None where that isn't known."""
        ...

    def rows(self, client: int, split: Split) -> NDArray[np.int64]:
        """Indices into the pool, ascending and read-only (torch.tensor copies them, as_tensor would warn).

        Test rows are in the order of the stream instead where the partition is `in_order`.
        """
        ...

    def size(self, client: int) -> int:
        """How many train rows a client has, at once."""
        ...


@dataclass(frozen=True, eq=False)
class Overlay:
    """A partition laid over another: the same clients, who hold other rows."""

    base: Partition

    @property
    def clients(self) -> int:
        return self.base.clients

    @property
    def left_out(self) -> int:
        return self.base.left_out

    @property
    def user(self) -> NDArray[np.int32] | None:
        return self.base.user

    @property
    def in_order(self) -> bool:
        """Whether test rows are in the order of the stream rather than sorted."""
        return isinstance(self.base, Overlay | StoredPartition) and self.base.in_order

    def size(self, client: int) -> int:
        return self.base.size(client)


@dataclass(frozen=True)
class Cut:
    """How a client's rows are cut into three: shares to the nearest row, but at least one row each."""

    validation: float = 0.1
    test: float = 0.2
    smallest: int = 5  # rows of a client, all splits together
    # Rows of people whom nobody trains on: everybody's validation rows, in even shares, in place of own ones.
    validators: NDArray[np.int64] | None = field(default=None, compare=False)
    # Of every row of the pool: rows are cut in this order, the last ones to test on. None: by chance.
    order: NDArray[np.int64] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, share in (("validation", self.validation), ("test", self.test)):
            if not 0 < share < 1:
                raise ConfigError(f"{name} = {share}: must be a share between 0 and 1, such as 0.1")
        if self.validators is None and not self.validation + self.test < 1:
            raise ConfigError(
                f"validation + test = {self.validation + self.test:g}: must leave rows to train on"
            )
        if self.smallest < 3:
            raise ConfigError(
                f"smallest = {self.smallest}: must be at least 3, one row each to train, validate and test"
            )

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """[N] numbers of rows, each at least 3, to [N, 3] numbers of train, validation and test rows."""
        test = np.clip(np.floor(self.test * rows + 0.5).astype(np.int64), 1, rows - 2)
        validation = np.clip(np.floor(self.validation * rows + 0.5).astype(np.int64), 1, rows - 1 - test)
        if self.validators is not None:
            validation = np.zeros_like(validation)
        return np.stack([rows - validation - test, validation, test], axis=1)


@dataclass(frozen=True, eq=False)
class StoredPartition:
    """Disjoint rows of every client in one array, cut by (client, split)."""

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]  # [3 x clients + 1]
    left_out: int = 0
    user: NDArray[np.int32] | None = None
    in_order: bool = False  # whether test rows are in the order of the stream rather than sorted

    @property
    def clients(self) -> int:
        return len(self.offsets) // 3

    @property
    def cells(self) -> NDArray[np.int64]:
        """Of every row in `order`: 3 x its client + its split."""
        return np.repeat(np.arange(3 * self.clients), np.diff(self.offsets))

    def rows(self, client: int, split: Split) -> NDArray[np.int64]:
        cell = 3 * _check(client, self.clients) + SPLITS[split]
        return self.order[self.offsets[cell] : self.offsets[cell + 1]]

    def size(self, client: int) -> int:
        cell = 3 * _check(client, self.clients)
        return int(self.offsets[cell + 1] - self.offsets[cell])


@dataclass(frozen=True, eq=False)
class Procedural:
    """Rows by hash of (key, client): nothing is stored per client, so that a million cost nothing.

    Clients overlap, as there are more of them than rows. So a row's split is the same for all clients:
    what one tests on, none trains on. Rows of one client are distinct.
    """

    key: int
    clients: int
    sizes: NDArray[np.int64]  # [S, 3] of the splits, one line for every number of rows a client may have
    by_class: StoredPartition  # its "clients" are the classes
    classes_per_client: int
    left_out: int = 0
    user: NDArray[np.int32] | None = None

    def rows(self, client: int, split: Split) -> NDArray[np.int64]:
        number = SPLITS[split]
        count = int(self._sizes(client)[number])
        key = derive(stream(self.key, b"rows"), client)
        kinds = permute(derive(key, 3), self.by_class.clients)[: self.classes_per_client]
        cells = 3 * kinds + number
        starts, ends = self.by_class.offsets[cells], self.by_class.offsets[cells + 1]
        joined = np.cumsum(ends - starts)  # the classes' rows laid end to end, without copying them
        drawn = draw_distinct(derive(key, number), count, int(joined[-1]))
        at = np.searchsorted(joined, drawn, side="right")
        rows = np.sort(self.by_class.order[ends[at] - joined[at] + drawn])
        rows.setflags(write=False)
        return rows

    def size(self, client: int) -> int:
        return int(self._sizes(client)[0])

    def _sizes(self, client: int) -> NDArray[np.int64]:
        key = derive(stream(self.key, b"sizes"), _check(client, self.clients))
        sizes: NDArray[np.int64] = self.sizes[key % len(self.sizes)]
        return sizes


def build_partition(
    owner: NDArray[np.int64],
    clients: int,
    key: int,
    cut: Cut,
    left_out: int = 0,
    user: NDArray[np.int32] | None = None,
) -> StoredPartition:
    """A partition from the owner of every row of the pool (-1: nobody), each client having 3 or more.

    Splits go by hash of key and row, so that they don't depend on the order in which rows were dealt; or by
    the order of the cut: first train, then validation, then test rows.
    """
    rows = np.flatnonzero(owner >= 0)
    sizes = cut.sizes(np.bincount(owner[rows], minlength=clients)).reshape(-1)
    place = hash_all(stream(key, b"split"), rows) if cut.order is None else cut.order[rows]
    rows = rows[np.lexsort((place, owner[rows]))]
    cells = np.repeat(np.arange(3 * clients), sizes)
    if cut.validators is not None:
        more = cut.validators[np.argsort(hash_all(stream(key, b"validators"), cut.validators), kind="stable")]
        if len(more) < clients:
            raise DataError(
                f"validation_from = 'users': they have {len(more)} rows, fewer than the {clients} clients; "
                "raise validation or lower clients"
            )
        dealt = 3 * (np.arange(len(more)) % clients) + SPLITS["validation"]
        rows, cells = np.concatenate([rows, more]), np.concatenate([cells, dealt])
    return lay_out(rows, cells, clients, left_out, user)


def lay_out(
    rows: NDArray[np.int64],
    cells: NDArray[np.int64],
    clients: int,
    left_out: int = 0,
    user: NDArray[np.int32] | None = None,
) -> StoredPartition:
    """A partition from rows and the cell of each, 3 x its client + its split."""
    order = rows[np.lexsort((rows, cells))]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=3 * clients))])
    order.setflags(write=False)
    offsets.setflags(write=False)
    return StoredPartition(order, offsets, left_out, user)


def store(partition: Partition) -> StoredPartition:
    """A partition written out: for thousands of clients, quicker to read than to work out each time."""
    cells = [partition.rows(c, split) for c in range(partition.clients) for split in SPLITS]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in cells])])
    order = np.concatenate(cells)
    order.setflags(write=False)
    offsets.setflags(write=False)
    in_order = isinstance(partition, Overlay) and partition.in_order
    return StoredPartition(order, offsets, partition.left_out, partition.user, in_order)


def stream(key: int, word: bytes) -> int:
    """A key for one purpose. Words, not small numbers: seeds 1 and 2 must not meet in `derive`."""
    return derive(key, int.from_bytes(word))


def draw_distinct(key: int, count: int, total: int) -> NDArray[np.int64]:
    """`count` different numbers below `total`, in time that depends on `count` only."""
    if 2 * count >= total:
        return permute(key, total)[:count].astype(np.int64)
    tries = 2 * count + 8
    while True:  # ends: fewer than half of all numbers are wanted, and tries double
        drawn = hash_all(key, np.arange(tries)) % np.uint64(total)
        found = list(dict.fromkeys(drawn.tolist()))
        if len(found) >= count:
            return np.array(found[:count], np.int64)
        tries *= 2


def _check(client: int, clients: int) -> int:
    if not 0 <= client < clients:  # a negative index would silently be another client's
        raise IndexError(f"client {client}: there are clients 0 to {clients - 1}")
    return client
