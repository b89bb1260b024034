"""What moves change, as arrays: the formulas that `walk` prices them with."""

import math

import numpy as np
from numpy.typing import NDArray

from potluck.algorithms.shufflefl.planner.problem import Floats


def xlogx(x: Floats) -> Floats:
    return x * np.log(np.where(x > 0, x, 1.0))


def soften(x: Floats, width: float) -> float:
    """The maximum; with a width, above it by at most that times ln n."""
    top = float(x.max())
    return top + width * math.log(float(np.exp((x - top) / width).sum())) if width else top


def find_shifts(path: Floats, work: Floats) -> Floats:
    """[from, is, goes, device] seconds that moving one row adds."""
    n = len(work)
    shift = np.zeros((n, n, n, n))
    for source in range(n):
        for place in range(n):
            added = np.zeros(n)
            added[place] += work[place] + path[source, place]
            if source != place:
                added[source] += path[source, place]
            shift[source, place, :] -= added
            shift[source, :, place] += added
    return shift


def find_jumps(rows: Floats, fixed: Floats) -> Floats:
    """[is, goes, device] seconds that go with a device's last row, and come with the first."""
    n = len(rows)
    jumps = np.zeros((n, n, n))
    for device in range(n):
        jumps[device, :, device] -= fixed[device] * (rows[device] == 1)
        jumps[:, device, device] += fixed[device] * (rows[device] == 0)
    return jumps


def find_training(rows: Floats) -> NDArray[np.bool_]:
    """[is, goes, device] whether it has rows after a move of one."""
    n = len(rows)
    there = np.tile(rows > 0, (n, n, 1))
    for device in range(n):
        there[device, :, device] = rows[device] > 1
        there[:, device, device] = True
    return there


def deviate(took: Floats, there: NDArray[np.bool_] | None) -> Floats:
    """The deviation along the last axis, of all devices or of some."""
    return np.asarray(took.std(-1) if there is None else took.std(-1, where=there))
