"""When devices are there, by a trace: looked up by bisection, never stepped through."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import DataError
from potluck.data.sources.npz_file import read_arrays
from potluck.fleet.availability import Times
from potluck.fleet.validation import find_file

_ORIGIN = (
    "save numpy.savez(path, node=..., start=seconds, end=seconds) with an entry a period, for instance of "
    "client_behave_trace in github.com/SymbioticLab/FedScale, benchmark/dataset/data/device_info"
)


@dataclass(frozen=True, eq=False)
class Intervals:
    """A trace: the online periods of node i are starts[first[i]:first[i + 1]] and the ends beside them.

    With more devices than the trace has nodes, the nodes go round: device i follows node i mod nodes.
    """

    first: NDArray[np.int64]  # nodes + 1
    starts: Times  # seconds; ascending within a node
    ends: Times

    @classmethod
    def of(cls, spans: Sequence[Sequence[tuple[float, float]]]) -> "Intervals":
        """From the (start, end) pairs of every node."""
        first = np.concatenate(([0], np.cumsum([len(own) for own in spans], dtype=np.int64)))
        pairs = np.array([pair for own in spans for pair in own], dtype=np.float64).reshape(-1, 2)
        return cls(first, pairs[:, 0].copy(), pairs[:, 1].copy())

    @classmethod
    def read(cls, path: str) -> "Intervals":
        """From an npz file with arrays node (from 0, without gaps), start and end; in any order."""
        file = find_file("intervals", path, _ORIGIN)
        found = read_arrays(file, ("node", "start", "end"))
        node, start, end = (found[name] for name in ("node", "start", "end"))
        if not (node.shape == start.shape == end.shape and node.ndim == 1 and node.size):
            shapes = ", ".join(f"{name} {array.shape}" for name, array in found.items())
            raise DataError(f"{file}: shapes {shapes}; give one entry a period in each array")
        if node.dtype.kind not in "iu" or start.dtype.kind not in "iuf" or end.dtype.kind not in "iuf":
            raise DataError(f"{file}: give whole numbers for node and numbers for start and end")
        low, high = int(node.min()), int(node.max())
        if low < 0 or high >= node.size or not (sizes := np.bincount(node.astype(np.int64))).all():
            raise DataError(f"{file}: nodes from {low} to {high}; number them from 0, without gaps")
        order = np.lexsort((start, node))
        first = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        try:
            return cls(first, start[order].astype(np.float64), end[order].astype(np.float64))
        except DataError as error:
            raise DataError(f"{file}: {error}") from None

    def __post_init__(self) -> None:
        if not (len(self.starts) == len(self.ends) == self.first[-1] and self.first[0] == 0):
            raise DataError(
                f"availability: {len(self.starts)} starts, {len(self.ends)} ends; give {self.first[-1]} each"
            )
        late = np.ones(len(self.starts), dtype=np.bool_)  # begins after the one before it has ended
        late[1:] = self.starts[1:] > self.ends[:-1]
        late[self.first[:-1][np.diff(self.first) > 0]] = True  # a node's first one may begin at any time
        bad = ~(late & (self.starts < self.ends) & np.isfinite(self.starts))
        if bad.any():
            i = int(np.argmax(bad))
            node = int(np.searchsorted(self.first, i, side="right")) - 1
            raise DataError(
                f"availability of node {node}: [{self.starts[i]}, {self.ends[i]}) is empty or begins before"
                " the one before it is over; sort the periods and join those that touch"
            )

    @cached_property
    def _moments(self) -> Times:
        return np.unique(self.starts)

    def _last(self, node: int, when: float) -> tuple[int, int, int]:
        """The index of the node's last period that has begun (or the one before its first), and its range."""
        node %= len(self.first) - 1
        low, high = int(self.first[node]), int(self.first[node + 1])
        return bisect_right(self.starts, when, low, high) - 1, low, high

    def online(self, node: int, when: float) -> bool:
        i, low, _ = self._last(node, when)
        return i >= low and when < float(self.ends[i])

    def online_many(self, nodes: NDArray[np.integer], when: float) -> NDArray[np.bool_]:
        if not len(self.starts):
            return np.zeros(len(nodes), dtype=np.bool_)
        nodes = nodes % (len(self.first) - 1)
        low, high = self.first[nodes], self.first[nodes + 1]
        while (open_ := low < high).any():  # all nodes bisect at once
            middle = np.where(open_, (low + high) // 2, 0)
            begun = self.starts[middle] <= when
            low, high = np.where(open_ & begun, middle + 1, low), np.where(open_ & ~begun, middle, high)
        online: NDArray[np.bool_] = (low > self.first[nodes]) & (when < self.ends[low - 1])
        return online

    def until(self, node: int, when: float) -> float:
        i, low, _ = self._last(node, when)
        return max(when, float(self.ends[i])) if i >= low else when

    def next_online(self, node: int, when: float) -> float:
        i, low, high = self._last(node, when)
        if i >= low and when < float(self.ends[i]):
            return when
        return float(self.starts[i + 1]) if i + 1 < high else math.inf

    def change(self, when: float) -> float:
        i = int(np.searchsorted(self._moments, when, side="right"))
        return float(self._moments[i]) if i < len(self._moments) else math.inf
