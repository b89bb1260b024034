"""Clustering participants by what they send, round by round, without remembering anybody.

Updates of different rounds can't well be compared, since they start from different models. So centres are
those of one round: the means of participants whose side is known from before, who lend it to the others.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from potluck.core.trees import Params
from potluck.rules.vectors import bound_numbers

Points = NDArray[np.float64]  # [participants, coordinates]
Sides = NDArray[np.int64]  # [participants]; UNKNOWN where nobody knows
UNKNOWN = -1


def stack_updates(updates: Sequence[Params], names: Sequence[str] | None = None) -> Tensor:
    """Updates as rows [participants, parameters]; of these parameters only, if they are named."""
    return torch.stack([bound_numbers(torch.cat([u[n].flatten() for n in names or u])) for u in updates])


def normalise(rows: Tensor, centre: bool = False) -> Tensor:
    """Rows of length 1, so that who has more data isn't farther away; from their mean, if asked."""
    rows = rows - rows.mean(0) if centre else rows
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp_min(1e-12)


def find_coordinates(rows: Tensor, most: int | None = None) -> Points:
    """The same points in as many dimensions as there are points: all distances stay, and all means.

    With `most`, only the directions in which the points (centred before) spread most: principal components.
    """
    table = rows.double()
    if most is not None:
        table = table - table.mean(0)
    values, vectors = torch.linalg.eigh((table @ table.T).cpu())
    points: Points = (vectors * values.clamp_min(0).sqrt()).flip(1).numpy()
    return points if most is None else points[:, :most]


def find_sides(points: Points, before: Sides, sides: int, rng: np.random.Generator) -> Sides:
    """Sides from nothing: k-means, the best of ten starts; named so as to agree with what is known."""
    if len(points) < sides:
        return before
    from sklearn.cluster import KMeans  # here: it takes a second to import

    found = KMeans(sides, n_init=10, random_state=int(rng.integers(2**31))).fit(points).labels_
    agreed = np.array(
        [[((found == k) & (before == name)).sum() for name in range(sides)] for k in range(sides)]
    )
    _, names = linear_sum_assignment(-agreed)
    return np.asarray(names[found], np.int64)


def measure_gap(rows: Tensor, side: Sides, centre: Tensor) -> float:
    """How much space there is between neighbouring sides, on average: 1 if nobody is between, 0 if all even.

    Along the line from one centroid to another, members are as far apart as the two sides explain. If they
    filled the line evenly, shares a and b of them on either side would explain 3ab; what varies by degrees,
    however strongly, explains no more. Centroids are to be those of others, whose noise is another.
    """
    spaces, weights = list[float](), list[int]()
    for a in range(len(centre)):
        near = [_measure_space(rows, side, centre, a, b) for b in range(len(centre)) if b != a]
        if known := [space for space in near if space is not None]:
            spaces.append(min(known))
            weights.append(int((side == a).sum()))
    return float(np.average(spaces, weights=weights)) if spaces else -1.0


def _measure_space(rows: Tensor, side: Sides, centre: Tensor, a: int, b: int) -> float | None:
    """The same between two; None if one has too few to tell."""
    line = (centre[b] - centre[a]).double()
    here, there = ((rows[torch.from_numpy(side == k)].double() @ line).numpy() for k in (a, b))
    if min(len(here), len(there)) < 2:
        return None
    share, whole = len(here) / (len(here) + len(there)), np.concatenate([here, there]).var()
    within = share * here.var() + (1 - share) * there.var()
    even = 3 * share * (1 - share)
    return float((1 - within / max(whole, 1e-30) - even) / (1 - even))


def find_centres(points: Points, known: Sides, sides: int) -> Points | None:
    """The mean of every side's known members; None if one has none here."""
    if any(not (known == k).any() for k in range(sides)):
        return None
    return np.stack([points[known == k].mean(0) for k in range(sides)])


def find_nearest(points: Points, middle: Points) -> Sides:
    """The closest centre of each."""
    far = ((points[:, None] - middle[None]) ** 2).sum(-1)
    return np.asarray(far.argmin(1), np.int64)


def find_likest(rows: Tensor, centre: Tensor) -> Sides:
    """Of each row the closest centroid."""
    near = rows @ centre.T - centre.square().sum(1) / 2
    return near.argmax(1).numpy()


def match_centres(before: Tensor, now: Tensor) -> Sides:
    """Which old centre each new one continues: the matching of greatest cosine, each from their mean."""
    old, new = (normalise(c, centre=True) for c in (before, now))
    here, there = linear_sum_assignment(-(new @ old.T).double().numpy())
    return np.asarray(there[np.argsort(here)], np.int64)


def average_sides(rows: Tensor, side: Sides, sides: int, otherwise: Tensor | None = None) -> Tensor:
    """The mean of every side; of one that is empty, what is given or the mean of all."""
    at = torch.from_numpy(side)
    out = []
    for k in range(sides):
        if (side == k).any():
            out.append(rows[at == k].mean(0))
        else:
            out.append(rows.mean(0) if otherwise is None else otherwise[k])
    return torch.stack(out)


def spread(points: Points, sides: Sides | None = None) -> float:
    """The sum of squared distances to the mean, of all or within each side."""  # J
    if sides is None:
        return float(((points - points.mean(0)) ** 2).sum()) if len(points) else 0.0
    return sum(spread(points[sides == k]) for k in np.unique(sides))


def measure_fit(points: Points, known: NDArray[np.bool_], b: float = 1.0) -> Points | None:
    """How well each fits the known members: 1 at their mean, below 0 for outliers; None with too few."""
    if known.sum() < 2:
        return None
    far = np.linalg.norm(points - points[known].mean(0), axis=1)
    scale = far.mean() + b * far.std()  # over all participants; population deviation
    return np.asarray(1 - far / max(scale, 1e-12))


def cohens_kappa(table: NDArray[np.float64]) -> float:
    """Of a confusion table: 1 if all agree, 0 if no more than by chance."""
    total = table.sum()
    if total == 0:
        return 0.0
    chance = float((table.sum(0) * table.sum(1)).sum() / total**2)
    return float((np.trace(table) / total - chance) / (1 - chance)) if chance < 1 else 0.0


def count_changes(old: Sides, new: Sides, sides: int) -> NDArray[np.float64]:
    """How many went from each side to each."""
    table = np.zeros((sides, sides))
    known = old != UNKNOWN
    np.add.at(table, (old[known], new[known]), 1)
    return table


def compare_fits(rows: Tensor, like: Tensor) -> Tensor:
    """How much nearer each is to what members of each cohort look like than to any other [rows, cohorts].

    Above 0 for the nearest alone: that others are farther still doesn't make one fit. In units of the round's
    typical nearness, so that models that have learnt more don't speak more softly.
    """
    far = torch.cdist(rows, like).square()
    least = far.topk(2, dim=1, largest=False).values
    nearer = torch.where(far > least[:, :1], least[:, :1], least[:, 1:]) - far
    return nearer / nearer.max(1).values.mean().clamp_min(1e-12)
