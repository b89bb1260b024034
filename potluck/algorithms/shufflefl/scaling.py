"""How much a user's balance counts: more for users who are fast, so that slow ones work on their latency.

The paper prints the ratios of `slowdown` the other way up, which would make a user who has become slower seem
faster; here they follow its text, by which time grows with `compute` and falls with rates.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from potluck.algorithms.shufflefl.planner.problem import (
    Floats,
    Problem,
    count_held,
    find_imbalances,
    latency,
    stay,
)
from potluck.core.errors import require
from potluck.fleet.cost import TRAINING_FACTOR


def compute_share(rows: int, went: int) -> float:
    """The part of a user's time that computing takes, judged by its rows and by those that went.  # kappa"""
    require(rows >= 1, "rows", rows, "a user without rows has no time to divide")
    require(went >= 0, "went", went, "give 0 or more")
    return TRAINING_FACTOR * rows / (TRAINING_FACTOR * rows + went)


def slowdown(part: float, compute: tuple[Floats, Floats], rates: tuple[Floats, Floats]) -> float:
    """Expected time now over that of the last time; pairs are (then, now), of every device.  # beta

    `part` is what `computing` says; rates are means of up and down, in bits per second.
    """
    for name, of in (("compute", compute), ("rates", rates)):
        good = all(len(x) and np.all(np.asarray(x) > 0) for x in of)
        require(good, name, [np.asarray(x).tolist() for x in of], "give more than 0 for every device")
    slower = float(np.mean(compute[1]) / np.mean(compute[0]))
    return part * slower + (1 - part) * float(np.mean(rates[0]) / np.mean(rates[1]))


def scale_alphas(alpha: float, expected: Mapping[int, float | None]) -> dict[int, float]:
    """Each user's own alpha, from the seconds that it is expected to take; None: not known, like the mean."""
    known = {user: seconds for user, seconds in expected.items() if seconds is not None}
    for user, seconds in known.items():
        require(0 < seconds < np.inf, f"expected[{user}]", seconds, "give more than 0 seconds")
    mean = float(np.mean(list(known.values()))) if known else 1.0
    return {user: alpha * mean / (mean if seconds is None else seconds) for user, seconds in expected.items()}


def find_level(problems: Sequence[Problem]) -> float:
    """An alpha by which latency and imbalance count alike while nothing is moved; mean over users.

    The paper gives none, only this purpose. Users in balance have no say; if all are, it is 1.
    """
    found = []
    for problem in problems:
        plan = stay(problem.counts)
        far = float(find_imbalances(problem, count_held(plan)).max())
        if far > 1e-9:
            found.append(float(latency(problem, plan).max()) / far)
    return float(np.mean(found)) if found else 1.0
