"""TiFL's tiers: devices that take about as long as each other, and how often each tier's turn comes."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from potluck.core.messages import Node


def sort_by_speed(seconds: Mapping[Node, float], count: int) -> tuple[tuple[Node, ...], ...]:
    """Tiers as equal in size as can be, the fastest first; fewer where devices are fewer."""
    order = sorted(seconds, key=lambda node: (seconds[node], node))
    count = min(count, len(order))
    if count == 0:
        return ()
    return tuple(tuple(order[i] for i in part) for part in np.array_split(np.arange(len(order)), count))


def share_credits(rounds: int, count: int) -> tuple[int, ...]:
    """Of each tier: its share of the rounds, as equal as can be and in all as many; but one at least."""
    ends = [k * rounds // count for k in range(count + 1)]  # the slowest first, as in that code
    return tuple(max(1, after - before) for before, after in pairwise(ends))[::-1]


def find_chances(accuracy: Sequence[float], has_credit: Sequence[bool]) -> tuple[float, ...]:
    """Of each tier: by rank, the least accurate first, n of n(n+1)/2, then n-1, ...; 0 without credit."""
    ranked = [t for t in sorted(range(len(accuracy)), key=lambda t: (accuracy[t], t)) if has_credit[t]]
    n = len(ranked)
    found = {t: (n - rank) / (n * (n + 1) / 2) for rank, t in enumerate(ranked)}
    return tuple(found.get(t, 0.0) for t in range(len(accuracy)))
