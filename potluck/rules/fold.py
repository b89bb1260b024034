"""Many updates into one."""

from collections.abc import Callable, Sequence

import torch

from potluck.core.messages import Reply
from potluck.core.replies import list_weights, stack_entry
from potluck.core.trees import Tree, sum_rows


def by_weight(replies: Sequence[Reply]) -> list[float]:
    """The votes of `replies`: as many as each has samples."""
    return list_weights(replies)


def equally(replies: Sequence[Reply]) -> list[float]:
    """The votes of `replies`: one each."""
    return [1.0] * len(replies)


def fold(
    replies: Sequence[Reply],
    entry: str = "delta",
    weigh: Callable[[Sequence[Reply]], list[float]] = by_weight,
) -> Tree | None:
    """The weighted mean of an `entry` of the bodies of `replies`, in task order; None without any weight.

    `weigh`: how many votes each reply has.
    """
    weights = torch.tensor(weigh(replies), dtype=torch.float64)
    total = float(weights.sum())
    if total <= 0:
        return None
    return sum_rows(stack_entry(replies, entry), weights / total)
