"""Test-time shift: clients are tested, in part, on other rows than their own (ClassTer).

A share of a client's test rows gives way to rows of the global test set, drawn by hash. Which ones, the kind
says:

- unseen: of classes that are absent from its train rows; a client that trains on every class is tested on
  the one that it has the fewest train rows of (all such classes, where several tie): the farthest that its
  data can shift.
- one: all of one class, drawn by hash for each client among those that the global test set has.
- least: of the class that it has the fewest train rows of, but has; by hash, where several tie.
- global: of everybody's mix of classes, drawn from the whole global test set.
- onset: the rows of unseen, met in an order: first its own, and from then on no row of its own.
- gradual: likewise, but the chance that a row is an unseen one rises along a line: at u of the stream (0 to
  1) it is 2 x share x u. With a share above one half it is u / (2 x (1 - share)), up to 1, and stays there.

So unseen, onset and gradual of one share are the same rows in another order, which matters only to those who
read them one by one (`order_of_stream`). Kinds without an order are met in one that tells nothing.

Settings that should suit a shift are chosen on validation rows, which are rehearsed with: as many of a
client's give way to other clients' validation rows, by the same rules; fewer where there aren't enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potluck.core.codec import value
from potluck.core.errors import ConfigError, DataError, nearest
from potluck.core.keys import derive, hash_all, permute
from potluck.data.changes import Mixed
from potluck.data.holding import (
    SPLITS,
    Overlay,
    Partition,
    Procedural,
    Split,
    StoredPartition,
    draw_distinct,
    store,
    stream,
)
from potluck.data.pool import Pool
from potluck.data.streams import arrange_by_hash

SHIFT_KINDS = ("unseen", "one", "least", "global", "onset", "gradual")


@value
class Shift:
    """How many of a client's test rows give way, and to which."""

    share: float  # to the nearest row
    kind: str = "unseen"

    def __post_init__(self) -> None:
        if self.kind not in SHIFT_KINDS:
            raise ConfigError(f"shift.kind = {self.kind!r}: no such kind; {nearest(self.kind, SHIFT_KINDS)}")
        if not 0 <= self.share <= 1:
            raise ConfigError(
                f"shift = {self.share}: must be between 0 (as trained on) and 1 (all of it shifted)"
            )

    @property
    def ordered(self) -> bool:
        """Whether the rows come in the order of the stream."""
        return self.kind in _PLACES

    def __str__(self) -> str:
        """As a file has it."""
        if self.kind == "unseen":
            return f"{self.share}"
        return f'{{ kind = "{self.kind}", share = {self.share} }}'


class Sorted(NamedTuple):
    """Rows that can be drawn from, class by class."""

    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]  # [classes + 1] into `rows`

    @classmethod
    def by_class(cls, rows: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> "Sorted":
        per_class = np.bincount(labels[rows], minlength=classes)
        in_order = rows[np.argsort(labels[rows], kind="stable")]
        return cls(in_order, np.concatenate([[0], np.cumsum(per_class)]))


def read_shift(given: Shift | float) -> Shift:
    """The shift that is `given`; a bare share is of unseen classes."""
    return given if isinstance(given, Shift) else Shift(given)


@dataclass(frozen=True, eq=False)
class Shifted(Overlay):
    """A partition with a share of every client's test rows replaced, and of validation rows if rehearsed."""

    shift: Shift
    key: int
    labels: NDArray[np.int64]  # [M] of all rows
    others: Sorted  # the global test set
    rehearsed: Sorted | None  # everybody's validation rows; None: they stay as they are

    @property
    def in_order(self) -> bool:
        return self.shift.ordered

    def rows(self, client: int, split: Split) -> NDArray[np.int64]:
        own = self.base.rows(client, split)
        if split == "validation" and self.rehearsed is not None:
            return self._rehearse(client, own, self.rehearsed)
        if split != "test":
            return own
        count = count_replaced(self.shift.share, len(own))
        key = derive(stream(self.key, b"shift"), client)
        kept = own[np.argsort(hash_all(key, own), kind="stable")[count:]]
        new = self._draw(client, count, key)
        if self.in_order:
            later = _PLACES[self.shift.kind](len(own), count, derive(key, 4))
            rows = np.empty(len(own), np.int64)
            rows[later] = new[arrange_by_hash(client, new)]
            rows[~later] = kept[arrange_by_hash(client, kept)]
        else:
            rows = np.sort(np.concatenate([kept, new]))
        rows.setflags(write=False)
        return rows

    def _draw(self, client: int, count: int, key: int) -> NDArray[np.int64]:
        """Rows of the global test set, of the classes that the kind names."""
        classes = self._choose_classes(client, key, self.others)
        starts, ends = self.others.offsets[classes], self.others.offsets[classes + 1]
        joined = np.cumsum(ends - starts)  # the classes' rows laid end to end, without copying them
        if count > joined[-1]:
            raise DataError(
                f"shift = {self.shift}: client {client} needs {count} test rows of classes "
                f"{classes.tolist()}, but the global test set has {joined[-1]}; lower shift or test, "
                "or raise clients"
            )
        drawn = draw_distinct(derive(key, 1), count, int(joined[-1]))
        at = np.searchsorted(joined, drawn, side="right")
        rows: NDArray[np.int64] = self.others.rows[ends[at] - joined[at] + drawn]
        return rows

    def _rehearse(self, client: int, own: NDArray[np.int64], known: Sorted) -> NDArray[np.int64]:
        key = derive(stream(self.key, b"rehearse"), client)
        classes = self._choose_classes(client, key, known)
        some = np.concatenate([known.rows[known.offsets[c] : known.offsets[c + 1]] for c in classes])
        some = some[~np.isin(some, own)]
        count = min(count_replaced(self.shift.share, len(own)), len(some))
        kept = own[permute(derive(key, 1), len(own))[count:]]
        rows = np.sort(np.concatenate([kept, some[permute(derive(key, 4), len(some))[:count]]]))
        rows.setflags(write=False)
        return rows

    def _choose_classes(self, client: int, key: int, among: Sorted) -> NDArray[np.intp]:
        there = np.flatnonzero(np.diff(among.offsets))
        if self.shift.kind == "global":
            return there
        if self.shift.kind == "one":
            return there[[derive(key, 2) % len(there)]]
        train = np.bincount(self.labels[self.base.rows(client, "train")], minlength=len(among.offsets) - 1)
        if self.shift.kind == "least":
            fewest = np.flatnonzero(train == train[train > 0].min())
            return fewest[[derive(key, 3) % len(fewest)]]
        return np.flatnonzero(train == train.min())


def list_validation(partition: Partition) -> NDArray[np.int64]:
    """Rows that any client validates on, as far as clients aren't too many to ask."""
    root = _find_root(partition)
    if isinstance(root, Procedural):
        root = root.by_class
    if not isinstance(root, StoredPartition):
        return np.zeros(0, np.int64)
    rows: NDArray[np.int64] = root.order[root.cells % 3 == SPLITS["validation"]]
    return rows


def _find_root(partition: Partition) -> Partition:
    """What is below changes and overlays: it has as many rows of each client, of the same splits."""
    while isinstance(partition, Mixed | Overlay):
        partition = partition.before if isinstance(partition, Mixed) else partition.base
    return partition


def count_replaced(share: float, rows: int) -> int:
    """How many of so many test rows are replaced: the share to the nearest row."""
    return int(np.floor(share * rows + 0.5))


def place_onset(rows: int, count: int, key: int) -> NDArray[np.bool_]:
    """The last `count` of so many places."""
    return np.arange(rows) >= rows - count


def place_gradually(rows: int, count: int, key: int) -> NDArray[np.bool_]:
    """`count` of so many places, each with a chance that rises linearly; in whole numbers, so exactly.

    Places are marked where the sum of chances passes a whole number plus an offset by hash: every place has
    its chance, and how many there are is no matter of chance.
    """
    ends = np.arange(1, rows + 1)
    ramp = 2 * (rows - count)  # places until the chance is 1; beyond the end where fewer than half are marked
    if ramp >= rows:
        whole, sums = rows**2, count * ends**2
    else:
        whole = max(2 * ramp, 1)
        sums = np.where(ends <= ramp, ends**2, whole * (ends - (rows - count)))
    marks = np.arange(count) * whole + key % whole
    marked = np.zeros(rows, np.bool_)
    marked[np.searchsorted(sums, marks, side="right")] = True
    return marked


_PLACES: dict[str, Callable[[int, int, int], NDArray[np.bool_]]] = {
    "onset": place_onset,
    "gradual": place_gradually,
}


def shift_tests(
    pool: Pool, partition: Partition, shift: Shift, key: int, rehearse: bool = False
) -> Partition:
    """The partition with a share of every client's test rows from the global test set.

    `rehearse`: and with a share of its validation rows from other clients'.
    """
    if not shift.share:
        return partition
    labels: NDArray[np.int64] = pool.y.numpy()
    tests = Sorted.by_class(np.flatnonzero(pool.test), labels, pool.classes)
    known = Sorted.by_class(list_validation(partition), labels, pool.classes) if rehearse else None
    made = Shifted(partition, shift, key, labels, tests, known if known and len(known.rows) else None)
    if isinstance(partition, StoredPartition):
        return store(made)  # which finds everybody for whom there aren't enough rows
    if isinstance(root := _find_root(partition), Procedural):
        most = count_replaced(shift.share, int(root.sizes[:, 2].max()))
        per_class = np.diff(tests.offsets)
        have, of = per_class.min(), f"of class {per_class.argmin()}"
        if shift.kind == "global":
            have, of = per_class.sum(), "of all classes"
        if most > have:
            raise DataError(
                f"shift = {shift}: a client may need {most} test rows {of}, but the global test set has "
                f"{have}; lower shift, largest or test"
            )
    return made
