"""Groups by labels: a share of each client's rows is of classes that are its group's own.

Classes are dealt to groups by key, in proportion to how many clients a group has, each at least one and none
to two groups. A client keeps the numbers of rows that it was dealt; foreign rows above what it may have are
exchanged for own ones, with clients of other groups who hold these. The rest stays as it was dealt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError
from potluck.core.keys import derive, hash_all, permute
from potluck.data.holding import (
    SPLITS,
    Overlay,
    Partition,
    Procedural,
    Split,
    StoredPartition,
    lay_out,
    stream,
)
from potluck.data.pool import Pool

Rows = NDArray[np.int64]


def deal_classes(pool: Pool, weights: Sequence[float], key: int) -> NDArray[np.int64]:
    """The group of every class."""
    if len(weights) > pool.classes:
        raise ConfigError(
            f"groups.count = {len(weights)}: {pool.name} has {pool.classes} classes, and each group "
            "needs one of its own; lower it"
        )
    counts = share_whole(pool.classes, weights)
    owner = np.empty(pool.classes, np.int64)
    owner[permute(stream(key, b"classes"), pool.classes)] = np.repeat(np.arange(len(weights)), counts)
    return owner


def share_whole(total: int, weights: Sequence[float]) -> NDArray[np.int64]:
    """So many things in proportion to weights: at least one each, what is left by largest remainders."""
    share = np.asarray(weights, np.float64) / np.sum(weights) * (total - len(weights))
    counts: NDArray[np.int64] = np.floor(share).astype(np.int64)
    counts[np.argsort(counts - share, kind="stable")[: total - len(weights) - counts.sum()]] += 1
    counts += 1
    return counts


def count_own(share: float, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of so many rows are of the group's own classes: the share to the nearest row."""
    return np.asarray(np.floor(share * rows + 0.5), np.int64)


def give_own_classes(
    pool: Pool,
    partition: Partition,
    group: NDArray[np.int32],
    owner: NDArray[np.int64],
    share: float,
    key: int,
) -> Partition:
    """The partition in which at least a share of every client's rows is of its group's classes."""
    if isinstance(partition, StoredPartition):
        return _exchange_rows(pool, partition, group, owner, share, stream(key, b"own"))
    if not isinstance(partition, Procedural):
        raise DataError(f"groups.kind = 'labels': rows of a {type(partition).__name__} can't be exchanged")
    base = partition.by_class
    kinds = owner[pool.y.numpy()[base.order]]
    split = base.cells % 3
    own = {
        name: tuple(base.order[(split == number) & (kinds == k)] for k in range(owner.max() + 1))
        for name, number in SPLITS.items()
    }
    most = count_own(share, partition.sizes.max(axis=0))
    for name, number in SPLITS.items():
        for k, rows in enumerate(own[name]):
            if len(rows) < most[number]:
                raise DataError(
                    f"groups.share = {share}: a client of group {k} may need {most[number]} rows of its "
                    f"classes to {name}, but {pool.name} has {len(rows)}; lower share, count or largest"
                )
    return Leaning(partition, group, owner[pool.y.numpy()], own, share, stream(key, b"own"))


@dataclass(frozen=True, eq=False)
class Leaning(Overlay):
    """Clients by hash, who hold a share of rows of their group's classes; as they, nothing is stored."""

    group: NDArray[np.int32]  # [clients]
    kinds: NDArray[np.int64]  # [M] the group whose class it is, of all rows
    own: dict[Split, tuple[Rows, ...]]  # rows by split and group
    share: float
    key: int

    def rows(self, client: int, split: Split) -> Rows:
        held = self.base.rows(client, split)
        group = self.group[client]
        foreign = np.flatnonzero(self.kinds[held] != group)
        need = int(count_own(self.share, np.array(len(held)))) - (len(held) - len(foreign))
        if need <= 0:
            return held
        key = derive(derive(self.key, client), SPLITS[split])
        gone = foreign[np.argsort(hash_all(key, held[foreign]), kind="stable")[:need]]
        there = self.own[split][group]
        # Of as many as could be held already, enough are new.
        tries = there[permute(derive(key, 1), len(there))[: need + len(held)]]
        new = tries[~np.isin(tries, held)][:need]
        rows = np.sort(np.concatenate([np.delete(held, gone), new]))
        rows.setflags(write=False)
        return rows


def _exchange_rows(
    pool: Pool,
    partition: StoredPartition,
    group: NDArray[np.int32],
    owner: NDArray[np.int64],
    share: float,
    key: int,
) -> StoredPartition:
    """Everybody's foreign rows above their share into one heap, and each takes own ones from it."""
    order, holder = partition.order.copy(), partition.cells // 3
    kinds = owner[pool.y.numpy()[order]]  # of every place, which a row leaves and another takes
    own = kinds == group[holder]
    wanted = count_own(share, np.bincount(holder, minlength=partition.clients))
    _check_supply(group, kinds, wanted, share)
    by_hash = np.argsort(hash_all(key, order), kind="stable")
    kept, heap = np.zeros(len(order), np.bool_), np.zeros(len(order), np.bool_)
    kept[_pick(holder, own, wanted, by_hash)] = True
    need = wanted - np.bincount(holder[kept], minlength=partition.clients)
    heap[_pick(holder, ~own, need, by_hash)] = True
    lacks = np.bincount(group, need, len(owner)).astype(np.int64)  # of each group
    for k in np.unique(group).tolist():
        # The heap may hold too few rows of one group and too many of others: rows outside change with these.
        few = int(lacks[k]) - int((heap & (kinds == k)).sum())
        if few <= 0:
            continue
        free = by_hash[(~heap & ~kept & (kinds == k))[by_hash]]
        free = free[np.argsort(own[free], kind="stable")][:few]  # own ones above the share go last
        above = np.bincount(kinds[heap], minlength=len(owner)) - lacks
        given = by_hash[heap[by_hash]]
        given = given[_rank(kinds[given]) < above[kinds[given]]][:few]
        for table in (order, kinds):
            table[free], table[given] = table[given], table[free]
    places = np.flatnonzero(heap)
    takers = places[np.lexsort((places, group[holder[places]]))]
    rows = places[np.lexsort((hash_all(key, order[places]), kinds[places]))]
    order[takers] = order[rows]
    return lay_out(order, partition.cells, partition.clients, partition.left_out, partition.user)


def _check_supply(
    group: NDArray[np.int32], kinds: NDArray[np.int64], wanted: NDArray[np.int64], share: float
) -> None:
    for k in np.unique(group).tolist():
        want, there = int(wanted[group == k].sum()), int((kinds == k).sum())
        if want > there:
            clients = int((group == k).sum())
            raise DataError(
                f"groups.share = {share}: the {clients} clients of group {k} want {want} rows of its "
                f"classes, of which clients hold {there}; lower share, or make groups by sizes that fit"
            )


def _pick(
    holder: NDArray[np.int64], may: NDArray[np.bool_], count: NDArray[np.int64], by_hash: NDArray[np.int64]
) -> NDArray[np.int64]:
    """So many places of each holder, of those that may be picked, by hash."""
    places = by_hash[may[by_hash]]
    return places[_rank(holder[places]) < count[holder[places]]]


def _rank(of: NDArray[np.int64]) -> NDArray[np.int64]:
    """The how-manieth of its kind each is, in their order."""
    order = np.argsort(of, kind="stable")
    counts = np.bincount(of) if len(of) else np.zeros(0, np.int64)
    rank = np.empty(len(of), np.int64)
    rank[order] = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank
