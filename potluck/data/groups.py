"""Hidden groups: clients who see the same world in different ways, and nobody is told who belongs together.

Every group but group 0, which sees rows as they are, turns images (rotation), renames labels (permutation) or
stretches and moves features (affine; each by its own amount where rows are vectors, all alike in images). Or
groups see alike but hold other rows, a share of them of classes of their own (labels; `own_classes`). All
devices of a user, or of an edge, may belong together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, nearest
from potluck.core.keys import derive, permute, uniforms
from potluck.data.holding import stream
from potluck.data.own_classes import share_whole
from potluck.data.pool import Pool
from potluck.data.views import View, check_turn

GROUP_KINDS = ("rotation", "permutation", "affine", "labels")
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

    @property
    def weights(self) -> tuple[float, ...]:
        """How large groups are, beside each other."""
        return (1.0,) * self.count if self.sizes is None else tuple(self.sizes)

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
        if self.count > members:
            raise ConfigError(
                f"groups.count = {self.count}: more than the {members} {who}; lower it or raise {who}"
            )
        return deal_groups(members, self.weights, key)[place]

    def views(self, pool: Pool, key: int) -> list[View]:
        """What each group sees."""
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
