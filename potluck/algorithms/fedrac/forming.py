"""From participants' resources to tiers (Fed-RAC): clusters, their models, their time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from potluck.algorithms.fedrac.budgets import share_time
from potluck.algorithms.fedrac.claims import Device
from potluck.algorithms.fedrac.clustering.methods import Method, cluster, find_clusters, merge_small
from potluck.algorithms.fedrac.clustering.resources import Floats, Ints, Resources
from potluck.algorithms.fedrac.costs import Crowd
from potluck.algorithms.fedrac.schedule import features, lesson_seconds
from potluck.algorithms.fedrac.sizing import least_scale, scales
from potluck.core.errors import ConfigError
from potluck.core.job import ModelSpec, Nets
from potluck.core.messages import Node
from potluck.fleet import TRAINING_FACTOR, compute_seconds
from potluck.jobs import Train
from potluck.models.footprint import training_bytes
from potluck.rules.nested import known

By = Literal["width", "depth"]
SMALLEST = 1e-3  # scale of a model, below which none is tried
SLACK = 1.2  # of the time that is taken if none is given: rates and speeds are known to about as much


def gathered(
    resources: Resources, tiers: int | None, fewer: int, smallest_tier: int, method: Method, seed: int
) -> tuple[Ints, dict[int, float]]:
    """Each participant's cluster, the richest first, and the Dunn indices of the numbers that were tried."""
    if not resources.points.any():  # nothing that has a weight tells them apart
        return np.zeros(len(resources.scores), np.int64), {}
    index: dict[int, float] = {}
    if tiers is None:
        found = find_clusters(resources, method, seed)
        index, tiers = found.index, max(2, found.count - fewer)
    if tiers == 1:
        return np.zeros(len(resources.scores), np.int64), index
    return merge_small(cluster(resources, tiers, method, seed).labels, smallest_tier), index


def scaled(spec: ModelSpec, scale: float, by: By) -> ModelSpec:
    """A smaller variant of a model."""
    return replace(spec, **{by: getattr(spec, by) * scale})


def bytes_of(models: Nets, spec: ModelSpec, local: Train, batch: int | None = None) -> int:
    """Memory that training a model takes."""
    return training_bytes(models[spec], local.optim, batch or local.batch)


def unable(memory: Mapping[Node, float], models: Nets, local: Train, alpha: float, by: By) -> list[Node]:
    """Devices that can't hold even the smallest model."""
    need = bytes_of(models, scaled(local.model, least_scale(alpha, SMALLEST), by), local)
    return [node for node, there in memory.items() if there < need]


def refuse(nodes: Sequence[Node], memory: Mapping[Node, float]) -> None:
    """Name devices that can train nothing."""
    if nodes:
        said = ", ".join(f"{node} ({memory[node]:,.0f} bytes)" for node in nodes[:5])
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        raise ConfigError(
            f"devices {said}{more}: too little memory to train even the smallest model; "
            "lower model.width or train.batch, or leave them out by algorithms.fedrac.leave_out = true"
        )


def sized(
    memory: Floats, labels: Ints, models: Nets, local: Train, alpha: float, by: By
) -> tuple[ModelSpec, ...]:
    """A model for each tier, small enough for the least memory in it."""
    least = [float(memory[labels == tier].min()) for tier in range(int(labels.max()) + 1)]

    def size(scale: float) -> float:
        return bytes_of(models, scaled(local.model, scale, by), local)

    found = scales(alpha, least, size, SMALLEST)
    return tuple(scaled(local.model, float(scale), by) for scale in found)


def costs(
    devices: Sequence[Device],
    scores: Floats,
    models: Nets,
    specs: Sequence[ModelSpec],
    rounds: Sequence[int],
    teachers: Sequence[ModelSpec | None],
    hints: bool,
) -> Crowd:
    """What each tier's model would cost each participant; a teacher's cost is spread over the rounds.

    `hints`: a map between features is trained and sent with a follower's model.
    """
    nets, ops, sizes = [models[spec] for spec in specs], list[int](), list[int]()
    for net, spec in zip(nets, teachers, strict=True):
        numbers = features(net) * features(models[spec]) if hints and spec is not None else 0
        ops.append(TRAINING_FACTOR * (net.ops + numbers))
        sizes.append(net.nbytes + numbers * (net.nbytes // known(net).size))
    compute = [[compute_seconds(each, d.compute) for each in ops] for d in devices]
    link = np.array([[2 * d.latency + 8 * size * (1 / d.down + 1 / d.up) for size in sizes] for d in devices])
    for tier, spec in enumerate(teachers):
        if spec is not None:
            link[:, tier] += [lesson_seconds(d, models[spec]) / rounds[tier] for d in devices]
    return Crowd(
        scores,
        np.array([d.rows for d in devices], np.int64),
        np.array([d.memory for d in devices], np.float64),
        np.array(compute, np.float64),
        link,
    )


def response_time(
    crowd: Crowd, labels: Ints, epochs: Ints, rounds: Sequence[int], kappa: float, chained: bool
) -> float:
    """The least time in which everybody could train as its own cluster does, and some slack."""
    shares = share_time(1.0, int(labels.max()) + 1, kappa, chained)
    total = 0.0
    for tier, share in enumerate(shares.tolist()):
        mine = labels == tier
        seconds = epochs[tier] * crowd.rows[mine] * crowd.compute[mine, tier] + crowd.link[mine, tier]
        total = max(total, float(seconds.max()) * rounds[tier] / share)
    return SLACK * total
