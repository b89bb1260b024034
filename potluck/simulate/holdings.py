"""Which rows a device has at a time: those of its phase, or those that moves have left it with.

A change in mid-run deals the rows of those whom it touches anew, so what had been moved to or from them is
undone: from then on they have what the new phase gives them. Everybody else keeps what moves have left them.
All devices of a user change together; so this makes or loses no row as long as rows move between devices of
one user. If any moved farther (between users, or to an aggregator), the next change undoes all moves, whoever
it touches. Nothing happens when the time of a change comes: rows follow from the time that is asked for.
"""

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from potluck.core.codec import value
from potluck.core.messages import Node
from potluck.data import StoredPartition
from potluck.federation import Federation
from potluck.fleet import Topology

Rows = NDArray[np.int64]
NO_ROWS: Rows = np.zeros(0, np.int64)


@value(frozen=False, eq=False)
class Moved:
    """What moves have changed."""

    rows: dict[Node, Rows] = field(default_factory=dict)  # of those who gave or took some
    at: dict[Node, float] = field(default_factory=dict)  # when they last did
    far: dict[int, None] = field(default_factory=dict)  # phases in which rows moved beyond a user


class Holdings:
    """The train rows of all nodes; only moved ones take memory."""

    def __init__(self, federation: Federation, topology: Topology, moved: Moved) -> None:
        self.federation, self.devices, self.root = federation, topology.devices, topology.root
        self.topology = topology
        self.moved = moved

    def rows(self, node: Node, at: float) -> Rows:
        """What a node trains on at a time; of the aggregators, the cloud may have some."""
        mine = self.moved.rows.get(node)
        if mine is not None and (not self.federation.changes or self._lasts(node, at)):
            return mine
        if node >= self.devices:
            return self.federation.server_rows() if node == self.root else NO_ROWS
        return self.federation.find_partition(at).rows(node, "train")

    def count(self, node: Node, at: float) -> int:
        """How many these are: of a device whose rows no move has touched, without looking for them.

        Of an aggregator below the cloud: those of all devices below it, in whose place it stands.
        """
        if node >= self.devices and node != self.root:
            return sum(self.count(int(below), at) for below in self.topology.children(node))
        if node >= self.devices or node in self.moved.rows:
            return len(self.rows(node, at))
        return self.federation.find_partition(at).size(node)

    def find_sizes(self, nodes: NDArray[np.int64], at: float) -> Rows:
        """How many train rows each of these devices has."""
        partition = self._find_stored(nodes, at)
        if partition is None:
            return np.array([self.count(node, at) for node in nodes.tolist()], np.int64)
        return np.asarray(partition.offsets[3 * nodes + 1] - partition.offsets[3 * nodes])

    def lay_rows(self, nodes: NDArray[np.int64], at: float) -> tuple[Rows, Rows]:
        """Train rows of all these devices, and where in them each one's begin."""
        partition = self._find_stored(nodes, at)
        if partition is not None:
            return partition.order, np.asarray(partition.offsets[3 * nodes])
        rows = [self.rows(node, at) for node in nodes.tolist()]
        sizes = np.array([len(own) for own in rows])
        return np.concatenate(rows), np.cumsum(sizes) - sizes

    def move(self, src: Node, dst: Node, go: NDArray[np.intp], now: float) -> None:
        """Hand over the rows at these places of the sender's."""
        have, had = self.rows(src, now), self.rows(dst, now)
        self.moved.rows[dst] = np.concatenate([had, have[go]])
        self.moved.rows[src] = np.delete(have, go)
        self.moved.at[src] = self.moved.at[dst] = now
        user = self.federation.fleet.user
        if max(src, dst) >= self.devices or not user[src] == user[dst] >= 0:
            self.moved.far[self.federation.count_changes(now)] = None

    def _find_stored(self, nodes: NDArray[np.int64], at: float) -> StoredPartition | None:
        """The arrays that these devices' rows are slices of, if they are."""
        partition = self.federation.find_partition(at)
        if not isinstance(partition, StoredPartition) or not self.moved.rows.keys().isdisjoint(
            nodes.tolist()
        ):
            return None
        return partition

    def _lasts(self, node: Node, at: float) -> bool:
        """Whether no change up to a time has undone what moves left a node with."""
        federation = self.federation
        for phase in range(federation.count_changes(self.moved.at[node]), federation.count_changes(at)):
            if phase in self.moved.far or (node < self.devices and federation.changes[phase].changed[node]):
                return False
        return True
