"""A user's last participation: how much longer will it take now?"""

import numpy as np

from potluck.algorithms.shufflefl.device import DeviceGauge
from potluck.algorithms.shufflefl.scaling import compute_share, slowdown
from potluck.authoring import Node, value


@value
class Past:
    """A user's last participation, to compare with."""

    found: dict[Node, DeviceGauge]
    rows: int
    went: int  # of these, those that moved


def expect_slowdown(past: Past | None, found: dict[Node, DeviceGauge]) -> float:
    """How much longer a user should take than the last time, by its devices that were there both times."""
    both = [] if past is None else [n for n in found if n in past.found]
    if past is None or not both or not past.rows:
        return 1.0
    then, now = [past.found[n] for n in both], [found[n] for n in both]
    compute = np.array([d.compute for d in then]), np.array([d.compute for d in now])
    rates = np.array([d.rate for d in then]), np.array([d.rate for d in now])
    return slowdown(compute_share(past.rows, past.went), compute, rates)
