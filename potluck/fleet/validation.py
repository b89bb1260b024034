"""Settings of a fleet that are refused: key, value and fix in one line."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from potluck.core.errors import DataError, require
from potluck.data.sources.files import join_paths, list_places


def check(name: str, value: object, good: bool, fix: str) -> None:
    """Refuse a setting of the fleet that isn't good."""
    require(good, f"fleet.{name}", value, fix)


def check_count(name: str, count: int) -> None:
    whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
    check(name, count, whole and count >= 1, "give a whole number, at least 1")


def check_share(name: str, share: float, what: str) -> None:
    check(name, share, 0 < read_number(share) < 1, f"give the share of {what}, in (0, 1)")


def check_up_share(share: float) -> None:
    check("up_share", share, 0 < read_number(share) <= 1, "give the up rate as a share of down, in (0, 1]")


def read_ends(name: str, pair: object) -> tuple[float, float]:
    """The lowest and the highest of a range."""
    fix = "give two finite numbers, [lowest, highest]"
    found = [read_number(end) for end in pair] if isinstance(pair, Sequence) else []
    check(name, pair, len(found) == 2, fix)
    low, high = found
    check(name, pair, -math.inf < low <= high < math.inf, fix)
    return low, high


def read_number(value: object) -> float:
    """A number as it is, anything else as NaN, which passes no comparison."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    return float(value)


def find_file(name: str, path: str, origin: str) -> Path:
    """A file of the fleet, below $POTLUCK_DATA, ./data or here; `origin` says where it can be had."""
    tried = list_places(None, path)
    for place in tried:
        if place.is_file():
            return place
    raise DataError(f"fleet.{name} = {path!r}: no such file (looked for {join_paths(tried)}); {origin}")
