"""How much of the maximum allowable response time (MAR) every tier of Fed-RAC may use.

The print's chained formula leaves out a term and the time of the last tier; here the times add up.
"""

from collections.abc import Sequence

import numpy as np

from potluck.algorithms.fedrac.clustering.resources import Floats, Ints
from potluck.algorithms.fedrac.costs import Costs
from potluck.core.errors import require

SLACK = 1.2  # of the time that is taken if none is given: rates and speeds are known to about as much


def share_time(
    total: float, tiers: int, kappa: float = 0.5, chained: bool = False, at_once: bool = False
) -> Floats:
    """Seconds [tiers] for all rounds of each: a tier has `kappa` times the time of the next poorer one.

    Followers train side by side after the leader (Eq. 9), or each tier teaches the next one (`chained`).
    Where all train in the same rounds (`at_once`), each has all of it.
    """
    require(
        0 < kappa < 1, "kappa", kappa, "a richer tier has a share of the next one's time: between 0 and 1"
    )
    require(total > 0, "time", total, "give the seconds that all tiers have together, above 0")
    require(tiers >= 1, "tiers", tiers, "there is at least one")
    if at_once:
        return np.full(tiers, float(total))
    times: Floats = kappa ** np.arange(tiers - 1, -1, -1, dtype=np.float64)
    # A leader alone has no follower to wait for.
    together = times.sum() if chained or tiers == 1 else times[0] + times[-1]
    seconds: Floats = times * (total / together)
    return seconds


def estimate_time(
    costs: Costs,
    labels: Ints,
    epochs: Ints,
    rounds: Sequence[int],
    kappa: float,
    chained: bool,
    at_once: bool = False,
    reserve: bool = False,
) -> float:
    """The least time in which everybody could train in the tier of its label, and some slack.

    `reserve`: and the last tier's model besides.
    """
    shares = share_time(1.0, int(labels.max()) + 1, kappa, chained, at_once)
    total, last = 0.0, len(costs.compute[0]) - 1
    for tier, share in enumerate(shares.tolist()):
        mine = labels == tier
        seconds = epochs[tier] * costs.rows[mine] * costs.compute[mine, tier] + costs.link[mine, tier]
        if reserve and tier < last:
            seconds += epochs[last] * costs.rows[mine] * costs.compute[mine, last] + costs.link[mine, last]
        total = max(total, float(seconds.max(initial=0.0)) * rounds[tier] / share)
    return SLACK * total
