"""Fleets by formula.

The defaults follow published measurements of 51,496 phones: medians of 41 ms a sample and 6.1 Mbit/s, 13x
between the slowest phone and the fastest, 200x between links, and no correlation between the two.
"""

import math
from collections.abc import Sequence

import numpy as np

from potluck.core.errors import ConfigError, nearest
from potluck.core.keys import derive, permute, uniforms
from potluck.fleet.profiles import Column, Profiles
from potluck.fleet.validation import check, check_count, check_share, check_up_share, read_ends, read_number

GIB = 2.0**30
MEDIAN_COMPUTE = 41.0  # ms per sample
MEDIAN_DOWN = 6.1e6  # bits per second
UP_SHARE = 0.5  # of the down rate: the measurements have one number for both
LATENCY = (0.02, 0.2)  # seconds one way: not measured
MEMORY = (1 * GIB, 8 * GIB)  # bytes: not measured

# How many times longer slow devices train: ClassTer's Table 1 (its text says 5, 10, 15 and 20).
PRESETS = {"d1": 1.0, "d2": 5.0, "d3": 10.0, "d4": 20.0}

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
    latency: Sequence[float] = LATENCY,
    memory: Sequence[float] = MEMORY,
) -> Profiles:
    """Phones: log-normal speeds and links about their medians; latency and memory uniform between two ends.

    A spread is the ratio between the best and the worst of the fleet; 1 makes all alike.
    """
    check_count("devices", n)
    check("compute", compute, 0 < read_number(compute) < math.inf, "give a median above 0, in ms per sample")
    check("down", down, 0 < read_number(down) < math.inf, "give a median above 0, in bits per second")
    check_up_share(up_share)
    for name, spread in (("compute_spread", compute_spread), ("link_spread", link_spread)):
        check(
            name, spread, 1 <= read_number(spread) < math.inf, "give best / worst, at least 1 (1: all alike)"
        )
    rates = _deal_quantiles(derive(key, 2), n, down, link_spread)
    return Profiles(
        compute=_deal_quantiles(derive(key, 1), n, compute, compute_spread),
        up=rates * up_share,
        down=rates,
        latency=draw_between("latency", derive(key, 3), n, latency),
        memory=draw_between("memory", derive(key, 4), n, memory),
    ).check()


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
    check_count("devices", n)
    columns = {"compute": compute, "up": up, "down": down, "latency": latency, "memory": memory}
    return Profiles(**{name: repeat_value(name, n, value) for name, value in columns.items()}).check()


def mix(
    n: int,
    key: int,
    *,
    preset: str | None = None,
    slowdown: float | None = None,
    slow_share: float = 0.5,
    compute: float = MEDIAN_COMPUTE,
    up: float = MEDIAN_DOWN * UP_SHARE,
    down: float = MEDIAN_DOWN,
    latency: float = 0.05,
    memory: float = 4 * GIB,
) -> Profiles:
    """Fast devices, alike, and slow ones that compute `slowdown` times as long; who is slow is drawn by key.

    Links are all alike: ClassTer's ratios are of training time.
    """
    check_share("slow_share", slow_share, "slow devices")
    if preset is not None and slowdown is not None:
        raise ConfigError(f"fleet.preset = {preset!r} and fleet.slowdown = {slowdown!r}: give one of them")
    if preset is not None and preset not in PRESETS:
        raise ConfigError(f"fleet.preset = {preset!r}: no such preset; {nearest(preset, tuple(PRESETS))}")
    times = slowdown if preset is None else PRESETS[preset]
    known = ", ".join(f"{name}: {factor:g}" for name, factor in PRESETS.items())
    fix = f"give slow / fast time a sample, at least 1, or a preset ({known})"
    check("slowdown", times, 1 <= read_number(times) < math.inf, fix)
    profiles = uniform(n, compute=compute, up=up, down=down, latency=latency, memory=memory)
    profiles.compute[permute(key, n)[: round(n * slow_share)]] *= read_number(times)
    return profiles.check()


def repeat_value(name: str, n: int, value: float) -> Column:
    """One number for everybody."""
    check(name, value, not math.isnan(read_number(value)), "give one number for all devices")
    return np.full(n, float(value))


def draw_between(name: str, key: int, n: int, pair: Sequence[float]) -> Column:
    """Numbers spread evenly between two ends, by hash."""
    low, high = read_ends(name, pair)
    return low + (high - low) * uniforms(key, np.arange(n))


def _deal_quantiles(key: int, n: int, median: float, spread: float) -> Column:
    """The quantiles of a log-normal cut at both ends, dealt by hash: so the extremes are `spread` apart."""
    ranks = np.linspace(0, 1, n) if n > 1 else np.array([0.5])
    ladder: Column = median * spread ** (np.interp(ranks, _CDF, _GRID) / (2 * _CUT))
    return ladder[permute(key, n)]
