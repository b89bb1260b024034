"""Many updates into one."""

from collections.abc import Callable, Sequence

import torch

from potluck.core.messages import Reply
from potluck.core.trees import Tree, weighted_sum


def by_weight(replies: Sequence[Reply]) -> list[float]:
    """As many votes as samples."""
    return [r.weight for r in replies]


def equally(replies: Sequence[Reply]) -> list[float]:
    """One vote each."""
    return [1.0] * len(replies)


def fold(
    replies: Sequence[Reply],
    entry: str = "delta",
    weigh: Callable[[Sequence[Reply]], list[float]] = by_weight,
) -> Tree | None:
    """The weighted mean of one entry of the replies' bodies, in task order; None without any weight."""
    weights = torch.tensor(weigh(replies), dtype=torch.float64)
    total = float(weights.sum())
    if total <= 0:
        return None
    return weighted_sum([r.body[entry] for r in replies], weights / total)
