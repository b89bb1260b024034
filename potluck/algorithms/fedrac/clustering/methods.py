"""Fed-RAC's clusters of participants with like resources, and how many of them: Procedure 1, and compaction.

The print takes k = argmax + 1, which holds if the first candidate, two clusters, is number 1; and calls
compaction k < m where it merges k clusters into fewer. The number found depends on how well k-means does: the
paper's k = 5 for its 40 phones is what some starts give; of the best clusters, four have the greatest index.

Density-based methods (the paper's Table II) don't take a number of clusters: their setting is varied, and of
those settings that give a number the best by the Dunn index counts. Each noise point then joins the cluster
of the point nearest to it, as everyone has to train somewhere.
"""

import math
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from potluck.algorithms.fedrac.clustering.dunn import dunn
from potluck.algorithms.fedrac.clustering.kmeans import STARTS, kmeans
from potluck.algorithms.fedrac.clustering.resources import Floats, Ints, Resources
from potluck.authoring import nearest, require, value

Method = Literal["kmeans", "dbscan", "optics"]
_DENSE = 2  # points, itself included, that make a place dense: more would leave small clusters to noise
_RADII = 256  # settings of dbscan that are tried at most
_SLOPES = 100  # settings of optics


@value(eq=False)
class Clusters:
    """Who belongs where, richest cluster first."""

    labels: Ints  # [participants] 0 is the cluster with the highest mean score
    index: dict[int, float]  # Dunn index of every number of clusters that was tried

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return int(self.labels.max()) + 1


def find_clusters(
    resources: Resources,
    method: Method = "kmeans",
    seed: int = 0,
    starts: int = STARTS,
    most: int | None = None,
) -> Clusters:
    """Clusters in the number, from 2 to the root of N (or `most`), of greatest Dunn index; ties: fewer."""
    n, distinct = _check_input(resources, method, starts)
    require(most is None or most >= 2, "most", most, "try two clusters at least")
    top = min(math.isqrt(n), distinct, most or n)
    if method == "kmeans":
        tried = {k: kmeans(resources.points, k, seed, starts) for k in range(2, top + 1)}
    else:
        found = _cluster_by_density(resources.points, method)
        tried = {k: found[k] for k in sorted(found) if k <= top}
        require(bool(tried), "method", method, f"it finds no 2 to {top} clusters here; take 'kmeans'")
    index = {k: dunn(resources.points, labels) for k, labels in tried.items()}
    greatest = max(index.values())
    best = min(k for k, reached in index.items() if reached >= greatest * (1 - 1e-12))  # inf stays inf
    return Clusters(rank_clusters(tried[best], resources.scores), index)


def cluster(
    resources: Resources, count: int, method: Method = "kmeans", seed: int = 0, starts: int = STARTS
) -> Clusters:
    """So many clusters, richest first: also how k clusters are compacted to fewer, by clustering again."""
    n, distinct = _check_input(resources, method, starts)
    fix = f"of {n} participants {distinct} differ: make 2 to {distinct} clusters"
    require(2 <= count <= distinct, "clusters", count, fix)
    if method == "kmeans":
        labels = kmeans(resources.points, count, seed, starts)
    else:
        found = _cluster_by_density(resources.points, method)
        require(
            count in found, "clusters", count, f"{method} finds {sorted(found)}; take 'kmeans' for others"
        )
        labels = found[count]
    return Clusters(rank_clusters(labels, resources.scores), {count: dunn(resources.points, labels)})


def merge_small(labels: Ints, least: int = 5) -> Ints:
    """Clusters with fewer than `least` members join the next richer one, the richest the next poorer one.

    From the poorest up, so that two small ones which together are big enough stay a cluster. Do it before the
    models are sized: those who join a richer cluster may have less memory.
    """
    require(least >= 1, "least", least, "a cluster has one member at least")
    merged = labels.copy()
    for label in range(int(labels.max()), 0, -1):
        members = merged == label
        if 0 < members.sum() < least:
            merged[members] = label - 1
    first = merged == 0
    if first.sum() < least:
        merged[first] = min(merged[~first], default=0)
    return np.unique(merged, return_inverse=True)[1].astype(np.int64)


def rank_clusters(labels: Ints, scores: Floats) -> Ints:
    """The same clusters, numbered by their mean scores, from the highest."""
    names, which = np.unique(labels, return_inverse=True)
    means = np.bincount(which, scores) / np.bincount(which)
    _, first = np.unique(which, return_index=True)
    order = np.lexsort((first, -means))  # equal means: who comes first
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return rank[which]


def _check_input(resources: Resources, method: str, starts: int) -> tuple[int, int]:
    """How many participants there are, and how many that differ."""
    require(method in get_args(Method), "method", method, nearest(method, get_args(Method)))
    require(starts >= 1, "starts", starts, f"start k-means once at least, better {STARTS} times")
    n, unit = len(resources.points), float(np.abs(resources.points).max()) or 1.0
    # Points closer than this are one to k-means, which centres them first.
    distinct = len(np.unique(np.round(resources.points / unit, 9), axis=0))
    require(n >= 4, "participants", n, "clusters are 2 to the root of their number: have four at least")
    same = "all have the same resources, so there is nothing to cluster: let devices differ"
    require(distinct >= 2, "participants", n, same)
    return n, distinct


def _cluster_by_density(points: Floats, method: Method) -> dict[int, Ints]:
    """The best labels by the Dunn index for every number of clusters that some setting gives."""
    found: dict[int, tuple[float, Ints]] = {}
    for raw in _try_radii(points) if method == "dbscan" else _try_slopes(points):
        count = int(raw.max()) + 1
        if count < 2:
            continue
        labels = _join_noise(points, raw)
        worth = dunn(points, labels)
        if count not in found or worth > found[count][0]:
            found[count] = worth, labels
    return {count: labels for count, (_, labels) in found.items()}


def _try_radii(points: Floats) -> Iterator[Ints]:
    from sklearn.cluster import DBSCAN

    far = np.linalg.norm(points[:, None] - points[None], axis=-1)
    # Distances that are equal but for rounding are one radius, which reaches all of them.
    shares = np.unique(np.round(far / far.max(), 9))
    radii = (shares + 1e-9) * far.max()  # the first is for those who are the same
    for radius in radii[np.unique(np.linspace(0, len(radii) - 1, _RADII).astype(int))]:
        yield np.asarray(DBSCAN(eps=radius, min_samples=_DENSE).fit_predict(points), np.int64)


def _try_slopes(points: Floats) -> Iterator[Ints]:
    from sklearn.cluster import OPTICS, cluster_optics_xi

    # The order of points is the same for all slopes; those that are the same divide by 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        scan = OPTICS(min_samples=_DENSE).fit(points)
    for slope in np.arange(1, _SLOPES) / _SLOPES:
        with np.errstate(divide="ignore", invalid="ignore"):
            labels, _ = cluster_optics_xi(
                reachability=scan.reachability_,
                predecessor=scan.predecessor_,
                ordering=scan.ordering_,
                min_samples=_DENSE,
                xi=slope,
            )
        yield np.asarray(labels, np.int64)


def _join_noise(points: Floats, labels: Ints) -> Ints:
    sure = np.flatnonzero(labels >= 0)
    far = np.linalg.norm(points[:, None] - points[None, sure], axis=-1)
    return np.where(labels >= 0, labels, labels[sure[far.argmin(1)]])
