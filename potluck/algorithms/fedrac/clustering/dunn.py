"""The Dunn index of Fed-RAC's clusters: how far apart they are, for how wide they are (Eq. 3 to 5)."""

import math

import numpy as np

from potluck.algorithms.fedrac.clustering.resources import Floats, Ints
from potluck.core.errors import require

_BLOCK = 1 << 20  # distances held at a time


def dunn(points: Floats, labels: Ints) -> float:
    """The least distance between clusters by the greatest diameter of any; infinite if no cluster is wide."""
    require(len(np.unique(labels)) > 1, "labels", labels.tolist(), "the index needs two clusters or more")
    apart, wide = math.inf, 0.0
    rows = max(1, _BLOCK // len(points))
    for first in range(0, len(points), rows):
        some = slice(first, first + rows)
        far = np.linalg.norm(points[some, None] - points[None], axis=-1)
        same = labels[some, None] == labels[None]
        apart = min(apart, float(far.min(where=~same, initial=math.inf)))
        wide = max(wide, float(far.max(where=same, initial=0.0)))
    return apart / wide if wide > 0 else math.inf
