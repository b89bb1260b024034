"""From parts of rows to whole ones, so that none is lost and none is made."""

import numpy as np

from potluck.algorithms.shufflefl.planner.problem import Floats, Ints


def round_rows(parts: Floats, totals: Ints) -> Ints:
    """Whole numbers near `parts` whose last axis adds up to `totals`: the largest remainders get the rest.

    Equal remainders: the lower index first. What doesn't add up to its total is first scaled to it; where
    there is nothing to scale, all places get alike.
    """
    goal = totals[..., None]
    kept = np.maximum(parts, 0.0)
    most = kept.max(-1, keepdims=True)
    kept = np.divide(kept, most, out=np.ones_like(kept), where=most > 0)  # tiny ones would overflow below
    kept = kept * (goal / kept.sum(-1, keepdims=True))
    whole = np.floor(kept + 1e-9).astype(np.int64)  # 2.9999999999 is a 3 that went through arithmetic
    left = goal - whole.sum(-1, keepdims=True)
    order = np.argsort(-np.round(kept - whole, 9), axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1, kind="stable")
    return np.asarray(whole + (rank < left))
