"""Fewer classes to plan for: those that look alike to a model are moved as one group.

Penultimate features are laid out in the plane by t-SNE; classes whose rows have their means close together
become a group by k-means. A class without rows has no place there: it joins whichever group is smallest. A
group is wanted in proportion to its classes: all groups alike, as they would be if they were classes, would
unbalance the classes.
"""

import math

import numpy as np
from numpy.typing import NDArray

from potluck.algorithms.shufflefl.planner.problem import Floats, Ints
from potluck.core import keys
from potluck.core.errors import require


def count_groups(gamma: float, classes: int) -> int:
    """How many groups a shrinkage makes of classes: at least 2, as in one there is nothing to balance."""
    require(0 < gamma <= 1, "gamma", gamma, "give a share of the classes above 0 and up to 1, such as 0.25")
    return min(classes, max(2, math.floor(gamma * classes + 1e-9)))


def group_classes(features: Floats, labels: Ints, classes: int, gamma: float, key: int) -> Ints:
    """[classes] the group of each class; the same for a key.

    Groups are numbered in order of the first of their classes that has rows. There are no more of them than
    such classes. Classes without rows follow in order, each to the group of fewest classes so far.
    """
    count = count_groups(gamma, classes)
    if count == classes:
        return np.arange(classes)
    seen, at = np.unique(labels, return_inverse=True)
    fix = f"classes are merged by how rows look, and those of {seen.tolist()} alone are there; "
    require(len(seen) > 1, "gamma", gamma, fix + "give rows of 2 classes or more: raise data.server")
    alike = _group_alike(features, at, min(count, len(seen)), key)
    groups = np.full(classes, -1)
    groups[seen] = alike
    sizes = np.bincount(alike)
    for label in np.flatnonzero(groups < 0):
        groups[label] = sizes.argmin()  # the first of the smallest
        sizes[groups[label]] += 1
    return groups


def _group_alike(features: Floats, labels: Ints, count: int, key: int) -> Ints:
    """The group of each label, all of which have rows, numbered in order of first appearance."""
    from sklearn.cluster import KMeans
    from sklearn.manifold import TSNE

    # t-SNE asks for fewer neighbours than there are rows.
    near = min(30.0, (len(features) - 1) / 3)
    seed = keys.derive(key) % 2**32
    plane = TSNE(perplexity=near, init="pca", random_state=seed).fit_transform(
        np.asarray(features, np.float32)
    )
    means = np.stack([plane[labels == label].mean(0) for label in range(labels.max() + 1)])
    found = KMeans(count, n_init=10, random_state=seed).fit(means).labels_
    _, first = np.unique(found, return_index=True)
    names = np.argsort(np.argsort(first))
    return np.asarray(names[found], np.int64)


def merge_counts(counts: Ints, groups: Ints) -> Ints:
    """[devices, groups] rows of each group."""
    out = np.zeros((len(counts), int(groups.max()) + 1), np.int64)
    np.add.at(out.T, groups, counts.T)
    return out


def find_shares(groups: Ints) -> Floats:
    """[groups] the share of each: its classes of all."""
    return np.asarray(np.bincount(groups) / len(groups))


def split_by_class(plan: Ints, counts: Ints, groups: Ints, key: int) -> Ints:
    """A plan of groups as one of classes: the rows of a group that go are drawn from all of it, by key."""
    devices = len(counts)
    out = np.zeros((devices, counts.shape[1], devices), np.int64)
    rng = keys.generator(key)
    for device, group in np.ndindex(devices, plan.shape[1]):
        inside = np.flatnonzero(groups == group)
        left: NDArray[np.int64] = counts[device, inside].copy()
        require(
            int(left.sum()) == int(plan[device, group].sum()),
            f"plan[{device}, {group}]",
            plan[device, group].tolist(),
            f"must add up to the {int(left.sum())} rows that the device has of the group",
        )
        for to in range(devices):
            go = rng.multivariate_hypergeometric(left, int(plan[device, group, to]))
            out[device, inside, to] = go
            left -= go
    return out
