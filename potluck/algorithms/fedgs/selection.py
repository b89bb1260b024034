"""GBP-CS: so many columns of a table of counts whose sum comes close to a target (FedGS's client selection).

Minimises |A x - y| over binary x with a given number of ones. It begins with the columns that weigh most in
the least-squares solution, then exchanges two columns at a time, by the gradient: the chosen one where it is
largest for the other one where it is smallest, as long as the distance falls. So it ends near a best choice,
not always at one; nothing in it is random.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def distance(table: Floats, target: Floats, chosen: NDArray[np.intp]) -> float:
    """How far the sum of some columns is from the target."""
    return float(np.linalg.norm(table[:, chosen].sum(1) - target))


def find_nearest_sum(table: Floats, target: Floats, count: int) -> NDArray[np.intp]:
    """Which columns of table [classes, devices] to add up to come close to target [classes], ascending."""
    devices = table.shape[1]
    if count >= devices:
        return np.arange(devices)
    # Rounded, so that columns of equal weight come in order, whoever computed the inverse.
    weight = np.round(np.linalg.pinv(table) @ target, 9)
    chosen = np.sort(np.argsort(-weight, kind="stable")[:count])
    best = distance(table, target, chosen)
    while count:
        slope = np.round(table.T @ (table[:, chosen].sum(1) - target), 9)
        others = np.setdiff1d(np.arange(devices), chosen, assume_unique=True)
        out, enters = chosen[np.argmax(slope[chosen])], others[np.argmin(slope[others])]
        changed = np.sort(np.append(chosen[chosen != out], enters))
        after = distance(table, target, changed)
        if after >= best:
            break
        chosen, best = changed, after
    return chosen
