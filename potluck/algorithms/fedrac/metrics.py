"""Fed-RAC's measures of a whole: performance over tiers, and the rounds until all are good enough."""

from collections.abc import Sequence


def overall(performance: Sequence[float]) -> float:
    """The plain mean over tiers, whatever their sizes."""
    return sum(performance) / len(performance)


def rounds_to(curve: Sequence[float], goal: float) -> int | None:
    """The first round, counted from 1, that reaches a goal; None if none does."""
    return next((at for at, reached in enumerate(curve, 1) if reached >= goal), None)


def total_rounds(rounds: Sequence[int | None]) -> int | None:
    """TRR: the leader's rounds and those of the slowest follower, as followers train side by side.

    None if some tier never got there.
    """
    got = [count for count in rounds if count is not None]
    if len(got) < len(rounds):
        return None
    return got[0] + max(got[1:], default=0)
