"""Hidden groups: clients who see the same world in different ways, and nobody is told who belongs together.

Every group but group 0, which sees rows as they are, turns images (rotation), renames labels (permutation) or
stretches and moves features (affine; each by its own amount where rows are vectors, all alike in images). Or
groups see alike but hold other rows, a share of them of classes of their own (labels; `own_classes`), or are
the populations that the source knows its users to be of (source). Groups may have groups within them. All
devices of a user, or of an edge, may belong together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, nearest
from potluck.core.keys import derive, permute, uniforms
from potluck.data.holding import Partition, StoredPartition, stream
from potluck.data.own_classes import share_whole
from potluck.data.pool import Pool
from potluck.data.views import View, check_turn

GROUP_KINDS = ("rotation", "permutation", "affine", "labels", "source")
DEALT_BY = ("user", "edge")
# Of affine: scales are within a factor of 2, offsets within a deviation of the normalised features. So
# features still overlap between groups, as they do between makes of sensors.
_FACTOR, _OFFSET = 2.0, 1.0


@dataclass(frozen=True)
class Groups:
    """How many groups there are, and what sets them apart."""

    kind: str
    count: int
    degrees: float | None = None  # of rotation, from one group to the next; even turns unless said
    share: float | None = None  # of labels: of a client's rows, those of its group's own classes
    sizes: Sequence[float] | None = None  # of groups, as weights; even unless said
    within: "Groups | None" = None  # what sets apart groups within each of these
    by: str | None = None  # whose devices are of one group, user or edge; each by itself unless said

    def __post_init__(self) -> None:
        if self.kind not in GROUP_KINDS:
            raise ConfigError(
                f"groups.kind = {self.kind!r}: no such kind of groups; {nearest(self.kind, GROUP_KINDS)}"
            )
        if self.count < 2:
            raise ConfigError(f"groups.count = {self.count}: must be at least 2; leave groups out for none")
        if self.degrees is not None and (self.kind != "rotation" or not 0 < self.degrees < 360):
            raise ConfigError(
                f"groups.degrees = {self.degrees}: how far kind = 'rotation' turns each group from the one "
                "before, between 0 and 360; leave it out for even turns or another kind"
            )
        turns = [round((self.degrees or 0.0) * group, 9) % 360 for group in range(self.count)]
        if self.degrees is not None and len(set(turns)) < self.count:
            raise ConfigError(
                f"groups.degrees = {self.degrees:g}: {self.count} groups are turned all the way round, so "
                f"some of them see alike; lower it or groups.count, or leave it out for {360 / self.count:g}"
            )
        if (self.share is not None) != (self.kind == "labels"):
            raise ConfigError(
                f"groups.share = {self.share}: which share of a client's rows is of its group's own classes, "
                "such as 0.6, where kind = 'labels'; leave it out for other kinds"
            )
        if self.share is not None and not 0 < self.share <= 1:
            raise ConfigError(f"groups.share = {self.share}: must be above 0 and at most 1, such as 0.6")
        if self.by is not None and self.by not in DEALT_BY:
            raise ConfigError(
                f"groups.by = {self.by!r}: must be 'user' or 'edge', whose devices are then of one group; "
                "leave it out to deal devices one by one"
            )
        if self.sizes is not None and (len(self.sizes) != self.count or min(self.sizes) <= 0):
            raise ConfigError(
                f"groups.sizes = {list(self.sizes)}: must be {self.count} weights above 0, one for each group"
            )
        if self.sizes is not None and self.kind == "source":
            raise ConfigError("groups.sizes: kind = 'source' has groups as large as they are; leave it out")
        kinds = [level.kind for level in self.levels]
        if len(kinds) > len(set(kinds)) or len(kinds) > 2 or (len(kinds) == 2 and "source" in kinds):
            raise ConfigError(
                f"groups.within.kind = {kinds[-1]!r}: groups of kind {kinds[0]!r} can have groups of one "
                "other kind within them, and those of a source neither have any nor are any"
            )

    @property
    def levels(self) -> "tuple[Groups, ...]":
        """These groups without those within them, and those within."""
        return (self,) if self.within is None else (replace(self, within=None), *self.within.levels)

    @property
    def total(self) -> int:
        """How many there are with those within: group k of group j of m is number j m + k."""
        return math.prod(level.count for level in self.levels)

    @property
    def weights(self) -> tuple[float, ...]:
        """How large groups are, beside each other."""
        outer = (1.0,) * self.count if self.sizes is None else tuple(self.sizes)
        inner = (1.0,) if self.within is None else self.within.weights
        return tuple(a * b for a in outer for b in inner)

    def part(self, group: NDArray[np.int32]) -> "list[tuple[Groups, NDArray[np.int32]]]":
        """Each level, and which of its groups every client is of."""
        if self.within is None:
            return [(self, group)]
        outer, inner = self.levels
        return [(outer, group // inner.count), (inner, group % inner.count)]

    def deal(self, owners: Mapping[str, NDArray[np.int32]], clients: int, key: int) -> NDArray[np.int32]:
        """Which group each client belongs to; `owners`: whose each is, by tier, below 0 if nobody's."""
        if self.by is None:
            members, place, who = clients, np.arange(clients), "clients"
        else:
            owner, who = owners.get(self.by), f"{self.by}s"
            if owner is None or owner.min() < 0:
                raise ConfigError(
                    f"groups.by = {self.by!r}: some device belongs to no {self.by}; set fleet.{who}, or "
                    "leave it out to deal devices one by one"
                )
            found, place = np.unique(owner, return_inverse=True)
            members = len(found)
        if self.total > members:
            raise ConfigError(
                f"groups.count = {self.total}: more than the {members} {who}; lower it or raise {who}"
            )
        return deal_groups(members, self.weights, key)[place]

    def views(self, pool: Pool, key: int) -> list[View]:
        """What each group sees, of those within which nobody sees anything else."""
        if self.kind == "rotation":
            turn = 360 / self.count if self.degrees is None else self.degrees
            check_turn("groups.kind", pool, turn)
            return [View().turn(turn * group) for group in range(self.count)]
        if self.kind == "permutation":
            return _permute_labels(pool, self.count, stream(key, b"names"))
        return _draw_affine(pool, self.count, stream(key, b"affine"))


def deal_groups(count: int, weights: Sequence[float], key: int) -> NDArray[np.int32]:
    """Which group each of so many clients or rows belongs to: even ones differ by one at most."""
    group = np.empty(count, np.int32)
    if len(set(weights)) == 1 or count < len(weights):
        group[permute(key, count)] = np.arange(count) % len(weights)
    else:
        group[permute(key, count)] = np.repeat(np.arange(len(weights)), share_whole(count, weights))
    return group


def read_groups(pool: Pool, partition: Partition, count: int) -> NDArray[np.int32]:
    """Which population each client's user is of, by the order of their numbers in the source."""
    if pool.people is None:
        raise ConfigError(
            f"groups.kind = 'source': {pool.name} doesn't say which population its users are of; take "
            "another kind, or MNIST with QMNIST's labels beside it (`potluck data get qmnist`)"
        )
    if not isinstance(partition, StoredPartition):
        raise ConfigError("groups.kind = 'source': rows must be somebody's; use partition 'by_user'")
    own = partition.cells % 3 != 1  # others' rows may validate
    holder, held = partition.cells[own] // 3, pool.people[partition.order[own]]
    there, number = np.unique(held, return_inverse=True)
    if len(there) != count:
        raise ConfigError(
            f"groups.count = {count}: clients are of {len(there)} populations of {pool.name} "
            f"({', '.join(map(str, there))}); set {len(there)}, or leave groups out if that is one"
        )
    group = np.zeros(partition.clients, np.int32)
    group[holder] = number
    if (group[holder] != number).any():
        client = int(holder[np.flatnonzero(group[holder] != number)[0]])
        raise ConfigError(
            f"groups.kind = 'source': client {client} has rows of several populations; "
            "use partition 'by_user' or 'split_users'"
        )
    return group


def _permute_labels(pool: Pool, count: int, key: int) -> list[View]:
    if count > math.factorial(min(pool.classes, 12)):
        raise ConfigError(
            f"groups.count = {count}: the {pool.classes} classes of {pool.name} can be named in only "
            f"{math.factorial(pool.classes)} orders; lower it"
        )
    orders: dict[tuple[int, ...], None] = {tuple(range(pool.classes)): None}
    tries = 0
    while len(orders) < count:
        orders.setdefault(tuple(permute(derive(key, tries), pool.classes).tolist()))
        tries += 1
    return [View(), *(View(labels=order) for order in list(orders)[1:])]


def _draw_affine(pool: Pool, count: int, key: int) -> list[View]:
    if not pool.x.is_floating_point():
        raise ConfigError(
            f"groups.kind = 'affine': rows of {pool.name} are tokens, no measurements; use 'permutation'"
        )
    features = pool.shape[0] if len(pool.shape) == 1 else 1
    drawn = 2 * uniforms(key, np.arange((count - 1) * 2 * features)).reshape(count - 1, 2, features) - 1
    scale, offset = _FACTOR ** drawn[:, 0], _OFFSET * drawn[:, 1]
    return [View(), *(View(tuple(a), tuple(b)) for a, b in zip(scale.tolist(), offset.tolist(), strict=True))]
