"""Where fleets come from: generators, by name.

The defaults follow published measurements of 51,496 phones: medians of 41 ms a sample and 6.1 Mbit/s, 13x
between the slowest phone and the fastest, 200x between links, and no correlation between the two.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.errors import ConfigError, nearest
from potluck.fleet.availability import Always, Availability
from potluck.fleet.profiles import Column, Fleet, Profiles
from potluck.keys import derive, shuffled, uniforms

GIB = 2.0**30
MEDIAN_COMPUTE = 41.0  # ms per sample
MEDIAN_DOWN = 6.1e6  # bits per second
UP_SHARE = 0.5  # of the down rate: the measurements have one number for both

# Standard deviations at which the log-normal ends. The logarithms of links then deviate by 1.17 (measured:
# 1.12), those of compute by 0.56 (measured: 0.88, in two clumps, which no log-normal has).
_CUT = 2.0
_GRID = np.linspace(-_CUT, _CUT, 2001)
_CDF = np.array([math.erf(z / math.sqrt(2)) for z in _GRID]) / math.erf(_CUT / math.sqrt(2)) / 2 + 0.5


def mobile(
    n: int,
    key: int,
    *,
    compute: float = MEDIAN_COMPUTE,
    compute_spread: float = 13.0,
    down: float = MEDIAN_DOWN,
    link_spread: float = 200.0,
    up_share: float = UP_SHARE,
    latency: Sequence[float] = (0.02, 0.2),
    memory: Sequence[float] = (1 * GIB, 8 * GIB),
) -> Profiles:
    """Phones: log-normal speeds and links about their medians; latency and memory uniform between two ends.

    A spread is the ratio between the best and the worst of the fleet; 1 makes all alike.
    """
    _check_count("devices", n)
    _check("compute", compute, 0 < _number(compute) < math.inf, "give a median above 0, in ms per sample")
    _check("down", down, 0 < _number(down) < math.inf, "give a median above 0, in bits per second")
    _check("up_share", up_share, 0 < _number(up_share) <= 1, "give the up rate as a share of down, in (0, 1]")
    for name, spread in (("compute_spread", compute_spread), ("link_spread", link_spread)):
        _check(name, spread, 1 <= _number(spread) < math.inf, "give best / worst, at least 1 (1: all alike)")
    rates = _dealt(derive(key, 2), n, down, link_spread)
    return Profiles(
        compute=_dealt(derive(key, 1), n, compute, compute_spread),
        up=rates * up_share,
        down=rates,
        latency=_between("latency", derive(key, 3), n, latency),
        memory=_between("memory", derive(key, 4), n, memory),
    ).checked()


def uniform(
    n: int,
    key: int = 0,  # unused: sources are called alike
    *,
    compute: float = MEDIAN_COMPUTE,
    up: float = MEDIAN_DOWN * UP_SHARE,
    down: float = MEDIAN_DOWN,
    latency: float = 0.05,
    memory: float = 4 * GIB,
) -> Profiles:
    """Devices that are all alike."""
    _check_count("devices", n)
    columns = {"compute": compute, "up": up, "down": down, "latency": latency, "memory": memory}
    for name, value in columns.items():
        _check(name, value, not math.isnan(_number(value)), "give one number for all devices")
    return Profiles(**{name: np.full(n, float(value)) for name, value in columns.items()}).checked()


SOURCES: dict[str, Callable[..., Profiles]] = {"mobile": mobile, "uniform": uniform}


def build(
    source: str,
    n: int,
    key: int,
    users: int | None = None,
    edges: int | None = None,
    availability: Availability = Always(),
    **options: Any,
) -> Fleet:
    """A fleet by the name of its source; users and edges get even, contiguous blocks of devices."""
    if source not in SOURCES:
        raise ConfigError(f"fleet.source = {source!r}: no such source; {nearest(source, tuple(SOURCES))}")
    known = [
        p.name for p in inspect.signature(SOURCES[source]).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    for name in options:
        if name not in known:
            raise ConfigError(f"fleet.{name}: {source!r} has no such option; {nearest(name, known)}")
    profiles = SOURCES[source](n, key, **options)
    nobody = np.full(n, -1, dtype=np.int32)
    user = nobody if users is None else _blocks("users", users, n)
    if users is None or edges is None:
        edge = nobody if edges is None else _blocks("edges", edges, n)
    else:  # by user, since the devices of a user share an edge
        _check("edges", edges, edges <= users, f"at most {users}: each edge needs a user of its own")
        edge = _blocks("edges", edges, users)[user]
    return Fleet(profiles, profiles, availability, user, edge, group=nobody)


def _dealt(key: int, n: int, median: float, spread: float) -> Column:
    """The quantiles of a log-normal cut at both ends, dealt by hash: so the extremes are `spread` apart."""
    ranks = np.linspace(0, 1, n) if n > 1 else np.array([0.5])
    ladder: Column = median * spread ** (np.interp(ranks, _CDF, _GRID) / (2 * _CUT))
    return ladder[shuffled(key, n)]


def _between(name: str, key: int, n: int, ends: Sequence[float]) -> Column:
    fix = "give two finite numbers, [lowest, highest]"
    _check(name, ends, isinstance(ends, Sequence) and len(ends) == 2, fix)
    low, high = (_number(end) for end in ends)
    _check(name, ends, -math.inf < low <= high < math.inf, fix)
    return low + (high - low) * uniforms(key, np.arange(n))


def _blocks(name: str, count: int, n: int) -> NDArray[np.int32]:
    """Which of `count` blocks each of n belongs to; sizes differ by one at most."""
    _check_count(name, count)
    _check(name, count, count <= n, f"at most {n}, so that none is empty")
    return (np.arange(n) * count // n).astype(np.int32)


def _check_count(name: str, count: int) -> None:
    whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
    _check(name, count, whole and count >= 1, "give a whole number, at least 1")


def _number(value: float) -> float:
    """A number as it is, anything else as NaN, which passes no comparison."""
    return value if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan


def _check(name: str, value: object, good: bool, fix: str) -> None:
    if not good:
        raise ConfigError(f"fleet.{name} = {value!r}: {fix}")
