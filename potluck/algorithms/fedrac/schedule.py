"""Fed-RAC's schedule: whose turn it is to train, who leads, and who teaches whom."""

from collections.abc import Sequence
from typing import Final

TOGETHER: Final = "together"  # the lane of tiers that train in the same rounds


def find_turns(left: Sequence[int], done: Sequence[int], head_start: int | None, chained: bool) -> list[int]:
    """The tiers that train now; `left`: rounds that each still has, 0 for one without members.

    The richest that has members leads. The others follow when it has finished, or after a head start of so
    many of its rounds; `chained`: one after another.
    """
    going = [tier for tier, rounds in enumerate(left) if rounds > 0]
    leader = find_leader(left, done)
    if chained or not going:
        return going[:1]
    waits = left[leader] > 0 and (head_start is None or done[leader] < head_start)
    return [leader] if waits else going


def find_leader(left: Sequence[int], done: Sequence[int]) -> int:
    """The richest tier that trains or has trained."""
    return next((tier for tier in range(len(left)) if left[tier] or done[tier]), 0)


def find_teacher(tier: int, done: Sequence[int], chained: bool) -> int | None:
    """Who teaches a tier: the leader, or in a chain the next richer one that has trained; None: nobody."""
    above = [other for other in range(tier) if done[other]]
    if not above:
        return None
    return above[-1] if chained else above[0]


def count_rounds(left: Sequence[int], done: Sequence[int], chained: bool, at_once: bool = False) -> int:
    """Rounds one after another: the leader's and those of the follower that had most; of a chain, all.

    `at_once`: tiers train in the same rounds.
    """
    if at_once:
        return max(done)
    if chained:
        return sum(done)
    leader = find_leader(left, done)
    return done[leader] + max((n for tier, n in enumerate(done) if tier != leader), default=0)
