"""Changes in mid-run: at a time, some clients' rows are dealt anew, or are seen turned from then on."""

from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError, nearest
from potluck.core.keys import derive, hash_all, permute
from potluck.data.holding import Cut, Partition, Procedural, Split, StoredPartition, lay_out
from potluck.data.partition.deal import read_labels
from potluck.data.partition.registry import PARTITIONS, Settings, divide
from potluck.data.partition.ways import dirichlet
from potluck.data.pool import Pool

CHANGE_KINDS = ("labels", "rotation")
# Where nobody has one to exchange, from which splits a client takes a row that lacks train, validation or
# test rows: what is tested on should not have been trained on, so train rows come last.
_SPARE = ((1, 2), (2, 0), (1, 0))


@dataclass(frozen=True)
class Change:
    """What happens to a share of the clients at a time."""

    at: float  # virtual seconds
    kind: str
    degrees: float | None = None  # of rotation: how much further images are turned, counter-clockwise
    share: float = 1.0  # of the clients; of users, where clients belong to some

    def __post_init__(self) -> None:
        if not 0 < self.at < float("inf"):
            raise ConfigError(f"changes.at = {self.at}: must be above 0, in virtual seconds")
        if self.kind not in CHANGE_KINDS:
            raise ConfigError(
                f"changes.kind = {self.kind!r}: no such change; {nearest(self.kind, CHANGE_KINDS)}"
            )
        if not 0 < self.share <= 1:
            raise ConfigError(f"changes.share = {self.share}: must be above 0 and at most 1, all clients")
        if self.kind == "rotation" and not (self.degrees or 0) % 360:
            raise ConfigError(f"changes.degrees = {self.degrees}: say how far images turn, such as 90")
        if self.kind == "labels" and self.degrees is not None:
            raise ConfigError(
                f"changes.degrees = {self.degrees}: is of 'rotation'; leave it out for 'labels'"
            )


@dataclass(frozen=True, eq=False)
class Mixed:
    """Clients that changed follow one partition, the others another."""

    before: Partition
    after: Partition
    changed: NDArray[np.bool_]  # [clients]

    @property
    def clients(self) -> int:
        return self.before.clients

    @property
    def left_out(self) -> int:
        return self.before.left_out

    @property
    def user(self) -> NDArray[np.int32] | None:
        return self.before.user

    def rows(self, client: int, split: Split) -> NDArray[np.int64]:
        return self._of(client).rows(client, split)

    def size(self, client: int) -> int:
        return self._of(client).size(client)

    def _of(self, client: int) -> Partition:
        return self.after if 0 <= client < self.clients and self.changed[client] else self.before


def draw_clients(share: float, clients: int, user: NDArray[np.int32] | None, key: int) -> NDArray[np.bool_]:
    """Who changes: the share to the nearest, one at least. All devices of a user change together."""
    own = np.arange(clients)
    who = own if user is None else np.where(user >= 0, user, own + clients)
    households, at = np.unique(who, return_inverse=True)
    order = np.argsort(hash_all(key, households), kind="stable")
    chosen = np.zeros(len(households), np.bool_)
    chosen[order[: max(1, int(np.floor(share * len(households) + 0.5)))]] = True
    changed: NDArray[np.bool_] = chosen[at]
    return changed


def redeal(
    pool: Pool,
    partition: Partition,
    changed: NDArray[np.bool_],
    key: int,
    kind: str | None,
    **options: Unpack[Settings],
) -> Partition:
    """The partition after the rows of those who changed were dealt anew among them, as `divide` would.

    Devices of users (user_devices) deal inside each user. Where the pool or somebody else said whose a row
    is (by_user, split_users, no kind), clients take over each other's rows instead, in a circle. A row stays
    a train, validation or test row: else most of a client's new test rows would have been trained on. A
    client that would have no row of a split exchanges one with somebody, for a row of the same class.
    """
    if not isinstance(partition, StoredPartition):
        root = partition
        while isinstance(root, Mixed):
            root = root.before
        if not isinstance(root, Procedural):
            raise DataError(f"a {type(root).__name__} can't be dealt anew; use potluck.data.from_rows")
        return Mixed(partition, replace(root, key=derive(root.key, key)), changed)
    who = np.flatnonzero(changed)
    cells, order = partition.cells, partition.order
    stays = (cells % 3 == 1) & (pool.validators is not None)  # users who validate do so for the same clients
    fixed = order[stays], cells[stays]
    cells, order = cells[~stays], order[~stays]
    owner, split = cells // 3, cells % 3

    def lay(rows: NDArray[np.int64], cells: NDArray[np.int64]) -> StoredPartition:
        rows, cells = np.concatenate([rows, fixed[0]]), np.concatenate([cells, fixed[1]])
        return lay_out(rows, cells, partition.clients, partition.left_out, partition.user)

    if kind is None or (kind != "user_devices" and PARTITIONS[kind].counts_clients):
        circle = who[permute(key, len(who))]
        taker = np.arange(partition.clients)
        taker[circle] = np.roll(circle, 1)
        return lay(order, 3 * taker[owner] + split)
    if pool.validators is not None:  # then `validation` is no share of these rows
        options["validation"] = (1 - options.get("test", Cut.test)) / 2
    new = np.full(len(pool), -1)
    block = np.where(changed, 0, -1)  # among whom rows are dealt
    if kind == "user_devices":
        assert partition.user is not None
        block = np.where(changed, partition.user, -1)
        shares = options.get("validation", Cut.validation), options.get("test", Cut.test)
        cut = Cut(*shares, options.get("smallest", Cut.smallest))
        for user in np.unique(partition.user[who]).tolist():
            inside = np.flatnonzero(partition.user == user)
            part = _only(pool, order[partition.user[owner] == user])
            again = dirichlet(part, len(inside), derive(key, user), options.get("alpha", 0.5), cut)
            new[again.order] = inside[again.cells // 3]
    else:
        made = divide(_only(pool, order[changed[owner]]), kind, len(who), key, **options)
        if not isinstance(made, StoredPartition):
            raise DataError(f"partition = {kind!r}: a {type(made).__name__} can't be dealt anew")
        new[made.order] = who[made.cells // 3]
    owner = np.where(changed[owner], new[order], owner)
    dealt = owner >= 0  # shards may leave out a class
    wanted = (0, 1, 2) if pool.validators is None else (0, 2)
    return lay(
        order[dealt], _even_out(owner[dealt], split[dealt], read_labels(pool, order[dealt]), block, wanted)
    )


def _only(pool: Pool, rows: NDArray[np.int64]) -> Pool:
    """The pool as if nobody could hold any but these rows."""
    closed = np.ones(len(pool), np.bool_)
    closed[rows] = False
    return replace(pool, test=closed, server=None, validators=None)


def _even_out(
    owner: NDArray[np.int64],
    split: NDArray[np.int64],
    of_row: NDArray[np.int64],
    block: NDArray[np.int64],
    wanted: tuple[int, ...],
) -> NDArray[np.int64]:
    """Cells of rows under new owners, none of the wanted splits empty: each has 3 rows at least."""
    sizes = np.bincount(3 * owner + split, minlength=3 * len(block))
    for cell in np.flatnonzero(sizes == 0).tolist():
        client, lacking = divmod(cell, 3)
        if lacking not in wanted or sizes[cell]:  # an exchange has filled it
            continue
        mine = np.flatnonzero(owner == client)
        spare = mine[sizes[3 * client + split[mine]] > 1]
        others = np.flatnonzero(
            (split == lacking)
            & (block[owner] == block[client])
            & (sizes[3 * owner + lacking] > 1)
            & np.isin(of_row, of_row[spare])
        )
        if len(others):
            take = others[np.argmax(sizes[3 * owner[others] + lacking])]
            give = spare[of_row[spare] == of_row[take]][0]
            owner[give], owner[take] = owner[take], client
        else:
            give = next(row for other in _SPARE[lacking] for row in spare if split[row] == other)
            split[give] = lacking
        sizes = np.bincount(3 * owner + split, minlength=3 * len(block))
    return 3 * owner + split
