"""When devices are there: looked up, never stepped through, and nothing stored that a formula can give.

Online periods are half-open, [start, end), so that a device is offline at the moment that `until` names. Only
devices are asked about; aggregation points are always there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from potluck.core.keys import derive, hash_all
from potluck.fleet.validation import check, read_number

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
        check("period", self.period, 0 < read_number(self.period) < math.inf, "give seconds, above 0")
        fix = "give the mean share of time online, in (0, 1]"
        check("share", self.share, 0 < read_number(self.share) <= 1, fix)

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
        start, following = _starts(phase, period, when)
        return start, start + length, following

    def online(self, node: int, when: float) -> bool:
        return self.share == 1 or when < self._window(node, when)[1]

    def online_many(self, nodes: NDArray[np.integer], when: float) -> NDArray[np.bool_]:
        if self.share == 1:
            return np.ones(len(nodes), dtype=np.bool_)
        # The operations of _window in its order: the two must agree to the last bit.
        bits, period = hash_all(self.key, nodes), self.period
        phase = (bits >> np.uint64(32)).astype(np.float64) * 2.0**-32 * period
        low = (bits & np.uint64(0xFFFFFFFF)).astype(np.float64)
        length = (self.share + (low * 2.0**-31 - 1) * self._deviation) * period
        return when < _last_starts(phase, period, when) + length

    def until(self, node: int, when: float) -> float:
        return math.inf if self.share == 1 else max(when, self._window(node, when)[1])

    def next_online(self, node: int, when: float) -> float:
        _, end, following = self._window(node, when)
        return when if self.share == 1 or when < end else following

    def change(self, when: float) -> float:
        return math.inf if self.share == 1 else _next_look(self._look, when)


@dataclass(frozen=True)
class DayNight:
    """Each device is online while it charges: every night, from an hour to another that are its own.

    Both ends lie evenly within `spread` hours of those of `night`, in the time of the device's zone. Zones
    are an hour apart, with about as many devices in each; the clock begins at midnight in the first, and
    night comes an hour earlier in the next. Who lives where and goes to bed when comes from a hash.
    """

    key: int
    night: Sequence[float] = (22.0, 6.0)  # local hours
    zones: int = 1
    spread: float = 1.5  # hours
    period: float = 86_400.0  # seconds of a day

    def __post_init__(self) -> None:
        check(
            "period",
            self.period,
            0 < read_number(self.period) < math.inf,
            "give the seconds of a day, above 0",
        )
        whole = isinstance(self.zones, int) and 1 <= self.zones <= 24
        check("zones", self.zones, whole, "give a number of time zones, 1 to 24")
        hours = [read_number(hour) for hour in self.night]
        fix = "give two different hours, [from, to], each in [0, 24]"
        check("night", self.night, len(hours) == 2 and all(0 <= hour <= 24 for hour in hours), fix)
        check("night", self.night, 0 < self._hours < 24, fix)
        most = max(0.0, (min(self._hours, 24 - self._hours) - 0.5) / 2)
        fix = f"give hours, 0 to {most:g}, so that half an hour is left of each night and each day"
        check("night_spread", self.spread, 0 <= read_number(self.spread) <= most, fix)

    @cached_property
    def _hours(self) -> float:
        return (self.night[1] - self.night[0]) % 24

    @cached_property
    def _look(self) -> float:
        """Seconds between two looks: often enough to meet the shortest night."""
        return self.period / 24 * min(0.5, (self._hours - 2 * self.spread) / 2)

    def _window(self, node: int, when: float) -> tuple[float, float, float]:
        """The last start up to `when`, the end that belongs to it, and the start after it."""
        bits, hour = derive(self.key, int(node)), self.period / 24
        zone = (bits >> 48) * self.zones >> 16
        early, late = (bits >> 24 & 0xFFFFFF) * 2.0**-23 - 1, (bits & 0xFFFFFF) * 2.0**-23 - 1
        phase = (self.night[0] + early * self.spread - zone) * hour
        length = (self._hours + (late - early) * self.spread) * hour
        start, following = _starts(phase, self.period, when)
        return start, start + length, following

    def online(self, node: int, when: float) -> bool:
        return when < self._window(node, when)[1]

    def online_many(self, nodes: NDArray[np.integer], when: float) -> NDArray[np.bool_]:
        # The operations of _window in its order: the two must agree to the last bit.
        bits, hour = hash_all(self.key, nodes), self.period / 24
        zone = ((bits >> np.uint64(48)) * np.uint64(self.zones) >> np.uint64(16)).astype(np.float64)
        early = (bits >> np.uint64(24) & np.uint64(0xFFFFFF)).astype(np.float64) * 2.0**-23 - 1
        late = (bits & np.uint64(0xFFFFFF)).astype(np.float64) * 2.0**-23 - 1
        phase = (self.night[0] + early * self.spread - zone) * hour
        length = (self._hours + (late - early) * self.spread) * hour
        return when < _last_starts(phase, self.period, when) + length

    def until(self, node: int, when: float) -> float:
        return max(when, self._window(node, when)[1])

    def next_online(self, node: int, when: float) -> float:
        _, end, following = self._window(node, when)
        return when if when < end else following

    def change(self, when: float) -> float:
        return _next_look(self._look, when)


def _starts(phase: float, period: float, when: float) -> tuple[float, float]:
    """Of starts at phase + k * period the last one up to `when`, and the one after it."""
    cycle = math.floor((when - phase) / period)
    start, following = phase + cycle * period, phase + (cycle + 1) * period
    if start > when:  # the division rounded up
        start, following = phase + (cycle - 1) * period, start
    elif following <= when:  # ... or down
        start, following = following, phase + (cycle + 2) * period
    return start, following


def _last_starts(phase: Times, period: float, when: float) -> Times:
    """The first of `_starts`, of many."""
    cycle = np.floor((when - phase) / period)
    cycle -= phase + cycle * period > when
    cycle += phase + (cycle + 1) * period <= when
    return phase + cycle * period


def _next_look(every: float, when: float) -> float:
    """The next multiple of `every` after `when`."""
    at = (math.floor(when / every) + 1) * every
    return at if at > when else at + every  # the product may round down to `when`
