"""How much of the maximum allowable response time (MAR) every tier may use.

The print's chained formula leaves out a term and the time of the last tier; here the times add up.
"""

import numpy as np

from potluck.algorithms.fedrac.clustering.resources import Floats
from potluck.core.errors import require


def share_time(total: float, tiers: int, kappa: float = 0.5, chained: bool = False) -> Floats:
    """Seconds [tiers] for all rounds of each: a tier has `kappa` times the time of the next poorer one.

    Followers train side by side after the leader (Eq. 9), or each tier teaches the next one (`chained`).
    """
    require(
        0 < kappa < 1, "kappa", kappa, "a richer tier has a share of the next one's time: between 0 and 1"
    )
    require(total > 0, "time", total, "give the seconds that all tiers have together, above 0")
    require(tiers >= 1, "tiers", tiers, "there is at least one")
    times: Floats = kappa ** np.arange(tiers - 1, -1, -1, dtype=np.float64)
    # A leader alone has no follower to wait for.
    together = times.sum() if chained or tiers == 1 else times[0] + times[-1]
    seconds: Floats = times * (total / together)
    return seconds
