"""Updates as vectors on the host, and what clustering does with them."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core import keys
from potluck.core.trees import Params, Tree, leaves

Metric = Literal["euclidean", "cosine", "manhattan"]
Vector = NDArray[np.floating]  # on the host, whatever device the models are on


def flatten(update: Params, sketch: int | None = None) -> Vector:
    """An update as one vector; in short, if it is longer than the sketch."""
    flat = bound_numbers(torch.cat([p.detach().reshape(-1) for p in leaves(update)])).cpu()
    if sketch is None or len(flat) <= sketch:
        return np.asarray(flat.numpy())
    order, sign = _hash_places(len(flat), sketch)
    return np.asarray((flat.numpy()[order] * sign.astype(flat.numpy().dtype)).reshape(-1, sketch).sum(0))


def bound_numbers(flat: Tensor) -> Tensor:
    """The same numbers, but none so large that squares and sums of them would be infinite.

    In single precision the bound is about 1e15: no training makes such numbers.
    """
    far = torch.finfo(flat.dtype).max ** 0.4
    return flat.clamp(-far, far)


@lru_cache(maxsize=2)
def _hash_places(length: int, sketch: int) -> tuple[NDArray[np.intp], NDArray[np.int8]]:
    """A count sketch: each number is added to one of the places, by a random sign.

    Products stay the same in the mean, up to about 1/sqrt(sketch) of the lengths. It is the same for all
    devices and runs, so that sketches can be compared.
    """
    rows = -(-length // sketch)
    order = np.zeros(rows * sketch, np.intp)
    order[:length] = keys.permute(1, length)
    sign = np.where(keys.uniforms(2, np.arange(rows * sketch)) < 0.5, -1, 1).astype(np.int8)
    sign[length:] = 0
    return order, sign


def length(update: Tree) -> float:
    """The euclidean norm of all of an update's numbers."""
    return float(sum(float(p.double().square().sum()) for p in leaves(update)) ** 0.5)


def normalise(rows: Vector) -> Vector:
    """Rows of length 1; zeros stay."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def distances(rows: Vector, points: Vector, metric: Metric) -> Vector:
    """[rows, points]; cosine: 1 - cos."""
    if metric == "cosine":
        return 1 - normalise(rows) @ normalise(points).T
    order = 1 if metric == "manhattan" else 2
    return np.stack(
        [np.linalg.norm(rows - point, ord=order, axis=1) for point in points.astype(np.float64)], axis=1
    )


def number_clusters(labels: Iterable[int]) -> NDArray[np.int64]:
    """Clusters numbered as they first appear."""
    first: dict[int, int] = {}
    return np.array([first.setdefault(int(label), len(first)) for label in labels], np.int64)


def mean_rows(rows: Vector, part: NDArray[np.int64]) -> Vector:
    """The mean row of each part."""
    return np.stack([rows[part == k].mean(0) for k in range(int(part.max()) + 1)])
