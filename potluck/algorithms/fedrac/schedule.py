"""Leader and followers (Fed-RAC): whose turn it is, who teaches whom, and how sure the teacher is."""

from collections.abc import Sequence
from math import exp

from potluck.algorithms.fedrac.claims import Device
from potluck.core.job import Net
from potluck.fleet import compute_seconds, swapping
from potluck.models.footprint import inference_bytes
from potluck.rules.nested import known


def turns(left: Sequence[int], done: Sequence[int], head_start: int | None, chained: bool) -> list[int]:
    """The tiers that train now; `left`: rounds that each still has, 0 for one without members.

    The richest that has members leads. The others follow when it has finished, or after a head start of so
    many of its rounds; `chained`: one after another.
    """
    going = [tier for tier, rounds in enumerate(left) if rounds > 0]
    lead = leader(left, done)
    if chained or not going:
        return going[:1]
    waits = left[lead] > 0 and (head_start is None or done[lead] < head_start)
    return [lead] if waits else going


def leader(left: Sequence[int], done: Sequence[int]) -> int:
    """The richest tier that trains or has trained."""
    return next((tier for tier in range(len(left)) if left[tier] or done[tier]), 0)


def teacher(tier: int, left: Sequence[int], done: Sequence[int], chained: bool) -> int | None:
    """Who teaches a tier: the leader, or in a chain the next richer one that has trained; None: nobody."""
    above = [other for other in range(tier) if done[other]]
    if not above:
        return None
    return above[-1] if chained else above[0]


def elapsed(left: Sequence[int], done: Sequence[int], chained: bool) -> int:
    """Rounds one after another: the leader's and those of the follower that had most; of a chain, all."""
    if chained:
        return sum(done)
    lead = leader(left, done)
    return done[lead] + max((n for tier, n in enumerate(done) if tier != lead), default=0)


def confidence(loss: float, members: int, share: float) -> float:
    """How far to trust a leader: its probability of the right class, less so if its tier has few members.

    `loss`: its mean cross-entropy; `share`: members that an even division would give it.
    """
    return exp(-max(0.0, loss)) * min(1.0, members / share)


def features(net: Net) -> int:
    """How many numbers a model's head sees."""
    shapes = known(net).shapes
    return next(shape[1] for name in net.head_names if len(shape := shapes[name]) == 2)


def streaming(device: Device, net: Net) -> float:
    """How many times longer a teacher's pass takes on a device: 1, or more if its weights don't fit."""
    return swapping(inference_bytes(net), device.memory)


def lesson_seconds(device: Device, net: Net) -> float:
    """What a teacher costs a device, once: its download, and its pass over all rows."""
    passing: float = compute_seconds(device.rows * net.ops, device.compute)
    return 8 * net.nbytes / device.down + streaming(device, net) * passing
