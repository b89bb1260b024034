"""Fed-RAC's k-means, which finds the best clusters, not those of its start: many starts, each polished.

Lloyd's steps alone end at the best five clusters of the paper's 40 phones in 1 of 400 starts, so that the
number of clusters found would depend on the seed. Single points that then change sides where that lessens the
error (Hartigan and Wong, 1979) make it 1 in 14.
"""

import numpy as np

from potluck.algorithms.fedrac.clustering.resources import Floats, Ints

STARTS = 200
_STEPS = 300  # of one start, of either kind, at most
_BLOCK = 1 << 20  # distances held at a time


def kmeans(points: Floats, count: int, seed: int = 0, starts: int = STARTS) -> Ints:
    """The labels [points] of least squared distance to the clusters' means, over all starts."""
    rng = np.random.default_rng(seed)
    centred = points - points.mean(0)
    together = max(1, _BLOCK // (len(points) * count))
    best, least = np.zeros(len(points), np.int64), np.inf
    for first in range(0, starts, together):
        labels = _assign_points(centred, _draw_means(centred, count, min(together, starts - first), rng))
        errors = _move_points(centred, labels, count)
        at = int(errors.argmin())
        if errors[at] < least * (1 - 1e-12):
            best, least = labels[at], errors[at]
    return best


def _draw_means(points: Floats, count: int, starts: int, rng: np.random.Generator) -> Floats:
    """First means [starts, count, columns]: points, each likelier the farther it is from those before it."""
    means = points[rng.integers(len(points), size=starts)][:, None]
    far = np.square(points - means).sum(-1)
    for _ in range(1, count):
        upto = far.cumsum(1)
        # Up to and including, so that no point is drawn whose distance is 0.
        drawn = (upto <= rng.random((starts, 1)) * upto[:, -1:]).sum(1).clip(max=len(points) - 1)
        means = np.concatenate([means, points[drawn][:, None]], 1)
        far = np.minimum(far, np.square(points - means[:, -1:]).sum(-1))
    return means


def _assign_points(points: Floats, means: Floats) -> Ints:
    """Labels [starts, points] of the nearest means, over and over until they stay."""
    starts, count, _ = means.shape
    labels = np.full((starts, len(points)), -1, np.int64)
    moving = np.arange(starts)
    for _ in range(_STEPS):
        nearest = _measure_distances(points, means).argmin(-1)
        changed = (nearest != labels[moving]).any(1)
        labels[moving] = nearest
        moving = moving[changed]
        if not len(moving):
            break
        means, _ = _average_clusters(points, labels[moving], count)
    return labels


def _move_points(points: Floats, labels: Ints, count: int) -> Floats:
    """Move single points, the best first, while that lessens the errors; changes labels, gives the errors."""
    moving = np.arange(len(labels))
    small = 1e-12 * float(np.square(points).sum())
    for _ in range(_STEPS):
        of = labels[moving]
        means, sizes = _average_clusters(points, of, count)
        far, own = _measure_distances(points, means), np.take_along_axis(sizes, of, 1)
        # One that is alone stays; what it leaves would be empty.
        left = np.take_along_axis(far, of[..., None], 2)[..., 0] * (own > 1) * own / np.maximum(own - 1, 1)
        joined = far * (sizes / (sizes + 1))[:, None]
        np.put_along_axis(joined, of[..., None], np.inf, 2)
        gain = (left[..., None] - joined).reshape(len(of), -1)
        move = gain.argmax(1)
        better = gain[np.arange(len(of)), move] > small
        moving, move = moving[better], move[better]
        if not len(moving):
            break
        labels[moving, move // count] = move % count
    means, _ = _average_clusters(points, labels, count)
    errors: Floats = np.square(points - np.take_along_axis(means, labels[..., None], 1)).sum((1, 2))
    return errors


def _measure_distances(points: Floats, means: Floats) -> Floats:
    """Squared, [starts, points, count]."""
    cross = 2 * points @ means.swapaxes(1, 2)
    far: Floats = np.square(means).sum(-1)[:, None] - cross + np.square(points).sum(-1)[:, None]
    return far


def _average_clusters(points: Floats, labels: Ints, count: int) -> tuple[Floats, Floats]:
    """The clusters' means [starts, count, columns] and sizes [starts, count]; of an empty one the middle."""
    member = (labels[:, None] == np.arange(count)[:, None]).astype(np.float64)
    sizes = member.sum(-1)
    return member @ points / np.maximum(sizes, 1)[..., None], sizes
