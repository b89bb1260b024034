"""SHARE's shape of a hierarchy: which devices are edges, and whose edge each device belongs to.

Two things should be small: the seconds of traffic, and how far the labels below an edge are from those of all
devices, by Kullback-Leibler divergence. A set of edges is improved by local search (open one, close one, swap
two); for each set, devices are associated greedily.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from potluck.authoring import Claims, value

Floats = NDArray[np.float64]
TRIES, STEPS = 2_000, 200_000  # sets of edges that are looked at, and devices placed for it, at most


@value
class Shape:
    """Edges, who belongs to each, and what it comes to."""

    hosts: tuple[int, ...]  # places of the devices that are edges
    edge: tuple[int, ...]  # of each device: the place of its host
    traffic: float
    divergence: float  # mean over edges
    cost: float  # both, weighed


def traffic(claims: Claims, nbytes: int) -> tuple[Floats, Floats]:
    """Seconds for a model to go both ways: between devices [n, n], and between each and the cloud [n].

    In units of the mean between two devices, so that they can be weighed against divergences.
    """
    rate_up = np.minimum(claims.up[:, None], claims.down[None, :])
    rate_down = np.minimum(claims.down[:, None], claims.up[None, :])
    near = 8 * nbytes * (1 / rate_up + 1 / rate_down) + 2 * (
        claims.latency[:, None] + claims.latency[None, :]
    )
    np.fill_diagonal(near, 0.0)  # a device that is an edge has no way to go
    far = 8 * nbytes * (1 / claims.up + 1 / claims.down) + 2 * claims.latency
    n = len(far)
    unit = near.sum() / (n * (n - 1)) if n > 1 else float(far[0])
    return near / unit, far / unit


def divergence(counts: Floats, share: Floats) -> Floats:
    """KL of label counts [..., classes] from the shares of all devices, in nats; 0 where there are none."""
    total = counts.sum(-1, keepdims=True)
    own = counts / np.maximum(total, 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(own > 0, own * np.log(own / share), 0.0)
    out: Floats = terms.sum(-1)
    return out


def associate(
    counts: Floats,
    near: Floats,
    far: Floats,
    hosts: Sequence[int],
    capacity: int,
    gamma: float,
    nearness: float,
) -> Shape | None:
    """Every device at the edge where it adds least, those with most rows first; None if they don't fit.

    What a device adds is `nearness` times its traffic and `gamma` times what the mean divergence rises by.
    Devices that are edges belong to themselves.
    """
    n, share = len(counts), counts.sum(0) / max(counts.sum(), 1.0)
    if len(hosts) * capacity < n:
        return None
    edge = np.full(n, -1)
    edge[list(hosts)] = range(len(hosts))
    labels, size = counts[list(hosts)].copy(), np.ones(len(hosts), int)
    far_off = divergence(labels, share)
    for i in sorted((i for i in range(n) if edge[i] < 0), key=lambda i: (-counts[i].sum(), i)):
        rise = (divergence(labels + counts[i], share) - far_off) / len(hosts)
        price = np.where(size < capacity, nearness * near[i, list(hosts)] + gamma * rise, np.inf)
        j = int(price.argmin())
        edge[i], labels[j], size[j] = j, labels[j] + counts[i], size[j] + 1
        far_off[j] = divergence(labels[j], share)
    host_of = np.array(hosts)[edge]
    way = float(far[list(hosts)].sum() + nearness * near[np.arange(n), host_of].sum())
    apart = float(far_off.mean())
    return Shape(tuple(hosts), tuple(host_of.tolist()), way, apart, way + gamma * apart)


def find_shape(
    counts: Floats,
    near: Floats,
    far: Floats,
    edges: int,
    gamma: float,
    nearness: float,
    capacity: int | None = None,
) -> Shape:
    """The best shape that local search finds, of at most so many edges."""
    n = len(counts)
    edges = min(edges, n)
    capacity = ceil(n / edges) if capacity is None else capacity
    # As many edges as are allowed, the best connected: any set will do to begin with.
    first = sorted(np.argsort(far + near.sum(1), kind="stable")[: max(edges, ceil(n / capacity))].tolist())
    best = associate(counts, near, far, first, capacity, gamma, nearness)
    assert best is not None
    tried, most, improved = 0, min(TRIES, max(50, STEPS // n)), True
    while improved and tried < most:
        improved = False
        for hosts in _neighbours(best.hosts, n, edges):
            tried += 1
            found = associate(counts, near, far, hosts, capacity, gamma, nearness)
            if found is not None and found.cost < best.cost - 1e-9:
                best, improved = found, True
                break
            if tried >= most:
                break
    return best


def _neighbours(hosts: Sequence[int], n: int, edges: int) -> list[list[int]]:
    """Sets of edges with one closed, one swapped for another, or one more."""
    others = [i for i in range(n) if i not in hosts]
    closed = [[h for h in hosts if h != gone] for gone in hosts] if len(hosts) > 1 else []
    swapped = [sorted([*(h for h in hosts if h != gone), new]) for gone in hosts for new in others]
    opened = [sorted([*hosts, new]) for new in others] if len(hosts) < edges else []
    return closed + opened + swapped
