"""The search's two loops, compiled by numba (extra `fast`).

They stand beside those in numpy (`walk`), which need no extra, for their speed: over the 33 users of `python
-m bench planner` they take 1.5 s of CPU against 6.7 s, 3 to 17 times less for a user, and find the same 33
plans. Sums run in another order than numpy's, so between moves that are worth the same to the last bits they
may choose another one, and end at another plan of about the same worth.
"""

import functools
import importlib
from collections.abc import Callable
from typing import NamedTuple

from potluck.algorithms.shufflefl.planner.loops import descend, exchange
from potluck.core.errors import ConfigError


class Loops(NamedTuple):
    """Both loops of the search."""

    descend: Callable[..., tuple[int, float]]
    exchange: Callable[..., tuple[int, int, int, int, int, float, int]]


@functools.cache
def compile_loops() -> Loops:
    """Compiled when first used."""
    try:
        numba = importlib.import_module("numba")
    except ImportError:
        raise ConfigError(
            "compiled = True: numba isn't installed; pip install 'potluck[fast]', or leave compiled out"
        ) from None
    return Loops(numba.njit(cache=True)(descend), numba.njit(cache=True)(exchange))
