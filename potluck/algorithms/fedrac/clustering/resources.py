"""What Fed-RAC's participants have: speed, rate and memory, made comparable and weighed against each other.

The distance between two points is the paper's S: the root of the weighted sum of squared differences. The
authors' notebook has a weighted sum of plain differences instead, and clusters without the weights; here
clusters are found and judged by one distance.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from potluck.authoring import require, value

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NAMES = ("speed", "rate", "memory")  # columns, in the paper's order
WEIGHTS = (0.4, 0.4, 0.2)  # lambda: the best of the paper's Table IV


@value(eq=False)
class Resources:
    """Participants as points, and as one number each."""

    vectors: Floats  # [participants, 3] normalised, unless told otherwise
    points: Floats  # [participants, 3] columns times the roots of their weights
    scores: Floats  # [participants] weighted sums: who is rich
    constant: tuple[str, ...]  # columns in which all participants are alike, which tell nobody apart


def _normalise_columns(vectors: Floats) -> Floats:
    """Every column from 0, its least, to 1, its greatest; a column that is the same for all becomes 0."""
    low = vectors.min(0)
    span = vectors.max(0) - low
    scaled: Floats = (vectors - low) / np.where(span > 0, span, 1.0)
    return scaled


def _find_constant(vectors: Floats) -> tuple[str, ...]:
    """The names of the columns that are the same for all."""
    alike = vectors.min(0) == vectors.max(0)
    return tuple(name for name, same in zip(NAMES, alike, strict=True) if same)


def check_weights(weights: Sequence[float]) -> None:
    """Refuse weights that aren't three shares."""
    given = np.asarray(weights, np.float64)
    good = given.shape == (len(NAMES),) and bool((given >= 0).all()) and abs(float(given.sum()) - 1) < 1e-6
    require(good, "weights", list(weights), f"give {', '.join(NAMES)} shares of 0 or more that add up to 1")


def weigh_resources(vectors: Floats, weights: Sequence[float] = WEIGHTS, normalise: bool = True) -> Resources:
    """Participants [N, 3] (speed, rate, memory: more is better) as points and scores."""
    check_weights(weights)
    given, shares = np.asarray(vectors, np.float64), np.asarray(weights, np.float64)
    require(
        given.ndim == 2 and given.shape[1] == len(NAMES) and len(given) > 0,
        "vectors",
        given.shape,
        f"give every participant its {', '.join(NAMES)}",
    )
    odd = ~(np.isfinite(given) & (given >= 0)).all(1)
    if odd.any():
        who = int(np.argmax(odd))
        require(False, f"vectors[{who}]", given[who].tolist(), "resources are finite, and 0 or more")
    used = _normalise_columns(given) if normalise else given
    return Resources(used, used * np.sqrt(shares), used @ shares, _find_constant(given))
