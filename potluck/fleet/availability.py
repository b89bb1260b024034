"""When devices are there: looked up, never stepped through, and nothing stored that a formula can give.

Online periods are half-open, [start, end), so that a device is offline at the moment that `until` names. Only
devices are asked about; aggregation points are always there.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from potluck.errors import ConfigError, DataError
from potluck.keys import derive, hashed

Times = NDArray[np.float64]


class Availability(Protocol):
    """When each device can be reached. Times are seconds of the virtual clock."""

    def online(self, node: int, when: float) -> bool: ...

    def online_many(self, nodes: NDArray[np.integer], when: float) -> NDArray[np.bool_]:
        """`online` of each of these nodes."""

    def until(self, node: int, when: float) -> float:
        """The end of the online period that holds `when`: inf if it never ends, `when` itself if offline."""

    def next_online(self, node: int, when: float) -> float:
        """The first moment from `when` on at which the node is online: inf if there is none."""

    def change(self, when: float) -> float:
        """A time after `when` at which an aggregator that lacks devices should look again: inf if never.

        Whoever looks at each such time in turn meets every online period of every device.
        """


@dataclass(frozen=True)
class Always:
    """Everybody, all the time."""

    def online(self, node: int, when: float) -> bool:
        return True

    def online_many(self, nodes: NDArray[np.integer], when: float) -> NDArray[np.bool_]:
        return np.ones(len(nodes), dtype=np.bool_)

    def until(self, node: int, when: float) -> float:
        return math.inf

    def next_online(self, node: int, when: float) -> float:
        return when

    def change(self, when: float) -> float:
        return math.inf


@dataclass(frozen=True)
class OnOff:
    """Each device is online once a period, from a moment and for a share of the period that are its own.

    Both come from a hash of the device. Shares lie evenly about `share`, up to nine tenths of the way to
    0 or 1, whichever is nearer: so nobody is never online, and nobody always unless `share` is 1.
    """

    key: int
    period: float  # seconds
    share: float  # mean share of time online

    def __post_init__(self) -> None:
        if not 0 < self.period < math.inf:
            raise ConfigError(f"availability.period = {self.period!r}: give seconds, above 0")
        if not 0 < self.share <= 1:
            raise ConfigError(
                f"availability.share = {self.share!r}: give the mean share of time online, in (0, 1]"
            )

    @cached_property
    def _deviation(self) -> float:
        return 0.9 * min(self.share, 1 - self.share)

    @cached_property
    def _look(self) -> float:
        """Seconds between two looks: often enough to meet the shortest online period."""
        return self.period * min(1 / 48, (self.share - self._deviation) / 2)

    def _window(self, node: int, when: float) -> tuple[float, float, float]:
        """The last start up to `when`, the end that belongs to it, and the start after it."""
        bits, period = derive(self.key, int(node)), self.period
        phase = (bits >> 32) * 2.0**-32 * period
        length = (self.share + ((bits & 0xFFFFFFFF) * 2.0**-31 - 1) * self._deviation) * period
        cycle = math.floor((when - phase) / period)
        start, following = phase + cycle * period, phase + (cycle + 1) * period
        if start > when:  # the division rounded up
            start, following = phase + (cycle - 1) * period, start
        elif following <= when:  # ... or down
            start, following = following, phase + (cycle + 2) * period
        return start, start + length, following

    def online(self, node: int, when: float) -> bool:
        return self.share == 1 or when < self._window(node, when)[1]

    def online_many(self, nodes: NDArray[np.integer], when: float) -> NDArray[np.bool_]:
        if self.share == 1:
            return np.ones(len(nodes), dtype=np.bool_)
        # The operations of _window in its order: the two must agree to the last bit.
        bits, period = hashed(self.key, nodes), self.period
        phase = (bits >> np.uint64(32)).astype(np.float64) * 2.0**-32 * period
        low = (bits & np.uint64(0xFFFFFFFF)).astype(np.float64)
        length = (self.share + (low * 2.0**-31 - 1) * self._deviation) * period
        cycle = np.floor((when - phase) / period)
        cycle -= phase + cycle * period > when
        cycle += phase + (cycle + 1) * period <= when
        return when < phase + cycle * period + length

    def until(self, node: int, when: float) -> float:
        return math.inf if self.share == 1 else max(when, self._window(node, when)[1])

    def next_online(self, node: int, when: float) -> float:
        _, end, following = self._window(node, when)
        return when if self.share == 1 or when < end else following

    def change(self, when: float) -> float:
        if self.share == 1:
            return math.inf
        at = (math.floor(when / self._look) + 1) * self._look
        return at if at > when else at + self._look  # the product may round down to `when`


@dataclass(frozen=True, eq=False)
class Intervals:
    """A trace: the online periods of node i are starts[first[i]:first[i + 1]] and the ends beside them."""

    first: NDArray[np.int64]  # nodes + 1
    starts: Times  # seconds; ascending within a node
    ends: Times

    @classmethod
    def of(cls, spans: Sequence[Sequence[tuple[float, float]]]) -> "Intervals":
        """From the (start, end) pairs of every node."""
        first = np.concatenate(([0], np.cumsum([len(own) for own in spans], dtype=np.int64)))
        pairs = np.array([pair for own in spans for pair in own], dtype=np.float64).reshape(-1, 2)
        return cls(first, pairs[:, 0].copy(), pairs[:, 1].copy())

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

    def _last(self, node: int, when: float) -> int:
        """The index of the node's last period that has begun, or the one before its first."""
        return bisect_right(self.starts, when, int(self.first[node]), int(self.first[node + 1])) - 1

    def online(self, node: int, when: float) -> bool:
        i = self._last(node, when)
        return i >= self.first[node] and when < float(self.ends[i])

    def online_many(self, nodes: NDArray[np.integer], when: float) -> NDArray[np.bool_]:
        if not len(self.starts):
            return np.zeros(len(nodes), dtype=np.bool_)
        low, high = self.first[nodes], self.first[nodes + 1]
        while (open_ := low < high).any():  # all nodes bisect at once
            middle = np.where(open_, (low + high) // 2, 0)
            begun = self.starts[middle] <= when
            low, high = np.where(open_ & begun, middle + 1, low), np.where(open_ & ~begun, middle, high)
        online: NDArray[np.bool_] = (low > self.first[nodes]) & (when < self.ends[low - 1])
        return online

    def until(self, node: int, when: float) -> float:
        return float(self.ends[self._last(node, when)]) if self.online(node, when) else when

    def next_online(self, node: int, when: float) -> float:
        if self.online(node, when):
            return when
        i = self._last(node, when) + 1
        return float(self.starts[i]) if i < self.first[node + 1] else math.inf

    def change(self, when: float) -> float:
        i = int(np.searchsorted(self._moments, when, side="right"))
        return float(self._moments[i]) if i < len(self._moments) else math.inf
