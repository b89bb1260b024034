"""Who is below whom. Nodes are integers: devices, then the root, then the tiers from the cloud downward."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, nearest

CLOUD, DEVICE = "cloud", "device"


class _Links(NamedTuple):
    """Parents of all nodes, and the same edges the other way round."""

    parents: NDArray[np.int32]  # total; -1 for the root
    order: NDArray[np.int64]  # all nodes but the root, by parent and then by number
    starts: NDArray[np.int64]  # of each aggregator's children within `order`, and the end


@dataclass(frozen=True, eq=False)
class Topology:
    """A tree: devices are 0 to devices - 1, the root is `devices`, other aggregators follow tier by tier."""

    devices: int
    tiers: tuple[str, ...]  # between cloud and devices, from the cloud downward
    firsts: tuple[int, ...]  # first node of the cloud and of each tier
    total: int
    _links: _Links | None  # None: flat, everybody below the root, so nothing need be stored

    @classmethod
    def build(
        cls,
        devices: int,
        tiers: Sequence[str] = (),
        groups: Mapping[str, NDArray[np.integer]] = {},
    ) -> "Topology":
        """The tree in which groups[tier][device] is the aggregator of a tier; -1: attached to the tier above.

        An aggregator hangs below the nearest tier that its devices belong to, so they must agree on it.
        """
        if devices < 1:
            raise ConfigError(f"devices = {devices}: give at least 1")
        if not tiers:
            return cls(devices, (), (devices,), devices + 1, None)
        above = np.full(devices, devices, dtype=np.int32)  # each device's nearest aggregator so far
        firsts, total, uppers = [devices], devices + 1, [np.array([-1], dtype=np.int32)]
        for depth, tier in enumerate(tiers):
            if tier in (CLOUD, DEVICE) or tier in tiers[:depth]:
                raise ConfigError(
                    f"tiers = {list(tiers)}: the name {tier!r} is taken; give each tier its own"
                )
            ids, count = _members(tier, groups, devices)
            inside = np.flatnonzero(ids >= 0)
            own = ids[inside]
            upper = np.empty(count, dtype=np.int32)
            upper[own] = above[inside]  # of several devices one wins, and then all must agree with it
            stray = inside[upper[own] != above[inside]]
            if stray.size:
                group = int(ids[stray[0]])
                both = " and ".join(
                    _name(int(node), devices, firsts, tiers) for node in (upper[group], above[stray[0]])
                )
                raise ConfigError(f"{tier} {group} has devices below {both}: attach all of them to one")
            above[inside] = own + total
            uppers.append(upper)
            firsts.append(total)
            total += count
        parents = np.concatenate([above, *uppers])
        order = np.argsort(parents, kind="stable")[1:]  # the root's -1 comes first
        starts = np.searchsorted(parents[order], np.arange(devices, total + 1))
        order.flags.writeable = False  # `children` hands out views
        return cls(devices, tuple(tiers), tuple(firsts), total, _Links(parents, order, starts))

    @property
    def root(self) -> int:
        return self.devices

    @property
    def aggregators(self) -> range:
        """All aggregation points, the root first, parents before their children."""
        return range(self.devices, self.total)

    def members(self, tier: str) -> range:
        """The nodes of a tier; "cloud" and "device" are tiers too."""
        if tier == DEVICE:
            return range(self.devices)
        names = (CLOUD, *self.tiers)
        if tier not in names:
            raise ConfigError(f"tier {tier!r}: no such tier; {nearest(tier, (*names, DEVICE))}")
        i = names.index(tier)
        return range(self.firsts[i], (*self.firsts, self.total)[i + 1])

    def children(self, node: int) -> range | NDArray[np.int64]:
        """The nodes right below, ascending; a range whenever they are contiguous."""
        self._check(node)
        if node < self.devices:
            return range(0)
        if self._links is None:
            return range(self.devices)
        at = node - self.devices
        found = self._links.order[self._links.starts[at] : self._links.starts[at + 1]]
        first, last = int(found[0]), int(found[-1])  # nobody is built without children
        return range(first, last + 1) if last - first + 1 == len(found) else found

    def parent(self, node: int) -> int | None:
        self._check(node)
        if node == self.root:
            return None
        return self.root if self._links is None else int(self._links.parents[node])

    def devices_below(self, tier: str) -> NDArray[np.int64]:
        """The devices whose parent is of a tier, ascending."""
        nodes = self.members(tier)
        if self._links is None:
            return np.arange(self.devices)
        above = self._links.parents[: self.devices]
        return np.flatnonzero((above >= nodes.start) & (above < nodes.stop))

    def list_below(self, tier: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All nodes right below those of a tier, and whom each of them is below."""
        assert self._links is not None
        nodes = self.members(tier)
        start, stop = self._links.starts[[nodes.start - self.devices, nodes.stop - self.devices]]
        below = self._links.order[start:stop]
        return below, self._links.parents[below].astype(np.int64)

    def path(self, node: int) -> tuple[int, ...]:
        """Parent, grandparent and so on up to the root."""
        path: list[int] = []
        above = self.parent(node)
        while above is not None:
            path.append(above)
            above = self.parent(above)
        return tuple(path)

    def tier(self, node: int) -> str:
        self._check(node)
        return _tier(node, self.devices, self.firsts, self.tiers)[0]

    def name(self, node: int) -> str:
        """For people: "cloud", "edge 3", "device 12"."""
        self._check(node)
        return _name(node, self.devices, self.firsts, self.tiers)

    def _check(self, node: int) -> None:
        if not 0 <= node < self.total:  # a negative one would be found, from the wrong end
            raise IndexError(f"node {node}: nodes are 0 to {self.total - 1}")


def _members(
    tier: str, groups: Mapping[str, NDArray[np.integer]], devices: int
) -> tuple[NDArray[np.int32], int]:
    """Each device's aggregator in a tier, and how many there are."""
    if tier not in groups:
        raise ConfigError(
            f"tier {tier!r}: no device says which one it belongs to; {nearest(tier, tuple(groups))}"
        )
    ids = np.asarray(groups[tier], dtype=np.int32)
    if ids.ndim != 1:
        raise ConfigError(
            f"tier {tier!r}: a device belongs to one of them or none; give one number for each device, not "
            f"{list(ids.shape)}"
        )
    if ids.shape != (devices,):
        raise ConfigError(f"tier {tier!r}: {len(ids)} entries; give one for each of {devices} devices")
    if ids.min() < -1:
        raise ConfigError(f"{tier} {ids.min()}: number them from 0; -1 stands for none")
    count = int(ids.max()) + 1
    if not count:
        raise ConfigError(f"tier {tier!r}: no device belongs to one; set fleet.{tier}s or leave the tier out")
    sizes = np.bincount(ids[ids >= 0], minlength=count)
    if not sizes.all():
        raise ConfigError(f"{tier} {np.argmin(sizes)} of {count} has no devices: number them without gaps")
    return ids, count


def _tier(node: int, devices: int, firsts: Sequence[int], tiers: Sequence[str]) -> tuple[str, int]:
    """The tier of a node and its number within it."""
    if node < devices:
        return DEVICE, node
    i = bisect_right(firsts, node) - 1
    return (CLOUD, *tiers)[i], node - firsts[i]


def _name(node: int, devices: int, firsts: Sequence[int], tiers: Sequence[str]) -> str:
    tier, number = _tier(node, devices, firsts, tiers)
    return CLOUD if tier == CLOUD else f"{tier} {number}"
