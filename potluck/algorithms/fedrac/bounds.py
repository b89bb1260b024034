"""What theory promises of Fed-RAC's tiers: precision after so many rounds, and the error of uneven work.

Eq. 6 is FedAvg's convergence on strongly convex losses (Li et al., ICLR 2020) with all participants; Eq. 8 is
FedNova's first theorem (Wang et al., NeurIPS 2020) for plain local SGD. The print leaves the norm in Eq. 6
empty: it is the distance of the start from the optimum, as in Eq. 7, by which the paper would set rounds;
nobody can measure what that takes, so rounds are given here.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from potluck.algorithms.fedrac.clustering.resources import Floats
from potluck.authoring import require, value


@value
class Landscape:
    """What the bounds assume of the losses; to be estimated, as none of it can be measured exactly."""

    smooth: Annotated[float, "L, of a gradient's change"] = 1.5
    convex: Annotated[float, "mu, of strong convexity"] = 0.7
    noise: Annotated[float, "sigma^2, of a stochastic gradient"] = 1.0
    steep: Annotated[float, "G^2, of a gradient's squared norm"] = 1.0
    start: Annotated[float, "E|w_1 - w*|^2: how far the start is from the optimum"] = 0.0064
    gap: Annotated[float, "b_1: loss at the start above the least"] = 1.0
    unlike: Annotated[float, "h_2^2, by which participants' gradients differ"] = 0.0
    gamma: Annotated[float, "0 where data are IID, as the paper has it"] = 0.0

    def __post_init__(self) -> None:
        require(0 < self.convex < math.inf, "convex", self.convex, "the bounds need mu above 0")
        fix = f"L is no less than mu, convex = {self.convex:g}"
        require(self.convex <= self.smooth < math.inf, "smooth", self.smooth, fix)
        for name in ("noise", "steep", "start", "gap", "unlike", "gamma"):
            given = getattr(self, name)
            require(0 <= given < math.inf, name, given, "give 0 or more")


def drift(shares: Floats | Sequence[float], epochs: float, land: Landscape) -> float:
    """The paper's B: noise that averaging leaves, and what local epochs add."""
    averaged = float(np.square(np.asarray(shares, np.float64)).sum()) * land.noise
    return averaged + 6 * land.smooth * land.gamma + 8 * (epochs - 1) ** 2 * land.steep


def precision(rounds: float, epochs: float, land: Landscape, drift: float) -> float:
    """How far above the least loss a tier may still be (Eq. 6)."""
    return _scale(epochs, land, drift) / (_offset(epochs, land) + rounds * epochs - 1)


def inconsistency(
    steps: Floats | Sequence[float],
    shares: Floats | Sequence[float],
    lr: float,
    rounds: float,
    land: Landscape,
) -> float:
    """Squared gradient that remains where participants take unlike numbers of steps (Eq. 8); 0 if alone.

    For one participant the formula gives more than 0, but there is nobody to be inconsistent with.
    """
    tau, share = np.asarray(steps, np.float64), np.asarray(shares, np.float64)
    if len(tau) == 1:
        return 0.0
    return _uneven(tau, share, lr, rounds, land)


def _uneven(tau: Floats, share: Floats, lr: float, rounds: float, land: Landscape) -> float:
    mean, moved = float(tau.mean()), lr * land.smooth
    slow = 4 * land.gap / (lr * mean * rounds)
    noisy = 4 * moved * land.noise * mean * float((share**2 / tau).sum())  # b_2 / F
    local = 6 * moved**2 * land.noise * float(share @ (tau - 1))  # b_3
    apart = 12 * moved**2 * land.unlike * float((tau * (tau - 1)).max())  # b_4
    return slow + noisy + local + apart


def _offset(epochs: float, land: Landscape) -> float:
    return max(8 * land.smooth / land.convex, epochs)  # beta


def _scale(epochs: float, land: Landscape, drift: float) -> float:
    far = land.convex**2 * _offset(epochs, land) * land.start
    return land.smooth / (2 * land.convex**2) * (4 * drift + far)
