"""Whom a tier of Fed-RAC admits: with whom it stays precise and even, by measured losses or by bounds."""

from collections.abc import Sequence

import numpy as np

from potluck.algorithms.fedrac.assignment import Place
from potluck.algorithms.fedrac.bounds import Landscape, drift, inconsistency, precision
from potluck.algorithms.fedrac.clustering.resources import Floats
from potluck.authoring import require, value

GROWTH = 1.2  # of theta from tier to tier, as in the notebook


@value(eq=False)
class Surrogate:
    """By measured losses: their mean is `precision` at most, and none is farther from it than `spread`.

    A participant whose loss isn't known yet (NaN) doesn't count: its resources alone place it. The authors'
    notebook draws these losses at random, which makes the assignment noise.
    """

    losses: Floats  # [participants] recent local losses, as measured
    precision: Floats  # [tiers] delta_f
    spread: Floats  # [tiers] theta_f

    def admits(self, tier: int, members: Sequence[Place]) -> bool:
        losses = self.losses[[place.who for place in members]]
        if np.isnan(losses[-1]):
            return True
        losses = losses[~np.isnan(losses)]
        mean = losses.mean()
        return bool(mean <= self.precision[tier] and np.abs(losses - mean).max() <= self.spread[tier])


@value(eq=False)
class Bound:
    """By the bounds of Eq. 6 and 8; where members' epochs differ, by their mean over rows."""

    land: Landscape
    rounds: Floats  # [tiers] R_f
    lr: float
    precision: Floats  # [tiers] delta_f
    spread: Floats  # [tiers] theta_f

    def admits(self, tier: int, members: Sequence[Place]) -> bool:
        rows = np.array([place.rows for place in members], np.float64)
        shares, rounds = rows / rows.sum(), float(self.rounds[tier])
        epochs = float(shares @ [place.epochs for place in members])
        above = precision(rounds, epochs, self.land, drift(shares, epochs, self.land))
        uneven = inconsistency([place.steps for place in members], shares, self.lr, rounds, self.land)
        return bool(above <= self.precision[tier] and uneven <= self.spread[tier])


def grow_threshold(tiers: int, base: float = 0.03, growth: float = 1.0) -> Floats:
    """A threshold for every tier, `growth` times the one above: in the notebook 1 (delta) and 1.2 (theta)."""
    require(base > 0, "threshold", base, "give a loss above 0")
    require(growth > 0, "growth", growth, "give a factor above 0")
    return base * growth ** np.arange(tiers, dtype=np.float64)
