"""Which rows a device has at a time: those of its phase, or those that moves have left it with.

A change in mid-run deals the rows of those whom it touches anew, so what had been moved to or from them is
undone: from then on they have what the new phase gives them. Everybody else keeps what moves have left them.
All devices of a user change together; so this makes or loses no row as long as rows move between devices of
one user. If any moved farther (between users, or to an aggregator), the next change undoes all moves, whoever
it touches. Nothing happens when the time of a change comes: rows follow from the time that is asked for.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.core.messages import Node
from potluck.federation import Federation
from potluck.fleet import Topology

Rows = NDArray[np.int64]
NO_ROWS: Rows = np.zeros(0, np.int64)


class Holdings:
    """The train rows of all nodes; only moved ones take memory."""

    def __init__(self, federation: Federation, topology: Topology) -> None:
        self.federation, self.devices, self.root = federation, topology.devices, topology.root
        self.moved: dict[Node, Rows] = {}  # of those who gave or took some
        self.moved_at: dict[Node, float] = {}
        self.far: dict[int, None] = {}  # phases in which rows moved beyond a user

    def rows(self, node: Node, at: float) -> Rows:
        """What a node trains on at a time; of the aggregators, the cloud may have some."""
        mine = self.moved.get(node)
        if mine is not None and (not self.federation.changes or self._lasts(node, at)):
            return mine
        if node >= self.devices:
            return self.federation.server_rows() if node == self.root else NO_ROWS
        return self.federation.holding(at).rows(node, "train")

    def move(self, src: Node, dst: Node, go: NDArray[np.intp], now: float) -> None:
        """Hand over the rows at these places of the sender's."""
        have, had = self.rows(src, now), self.rows(dst, now)
        self.moved[dst] = np.concatenate([had, have[go]])
        self.moved[src] = np.delete(have, go)
        self.moved_at[src] = self.moved_at[dst] = now
        user = self.federation.fleet.user
        if max(src, dst) >= self.devices or not user[src] == user[dst] >= 0:
            self.far[self.federation.phase(now)] = None

    def state(self) -> Any:
        return self.moved, self.moved_at, self.far

    def restore(self, state: Any) -> None:
        self.moved, self.moved_at, self.far = state

    def _lasts(self, node: Node, at: float) -> bool:
        """Whether no change up to a time has undone what moves left a node with."""
        federation = self.federation
        for phase in range(federation.phase(self.moved_at[node]), federation.phase(at)):
            if phase in self.far or (node < self.devices and federation.changes[phase].changed[node]):
                return False
        return True
