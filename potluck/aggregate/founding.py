"""From participants' resources to tiers (Fed-RAC): clusters, their models, their time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor, log
from typing import Literal

import numpy as np

from potluck.aggregate.leading import lesson_seconds
from potluck.aggregate.reports import Device
from potluck.aggregate.tiers.assign import Crowd
from potluck.aggregate.tiers.clustering import cluster, find_clusters, merge_small
from potluck.aggregate.tiers.resources import Floats, Ints, Resources
from potluck.aggregate.tiers.sizing import scales
from potluck.contracts import ModelSpec, Nets
from potluck.errors import ConfigError
from potluck.fleet import TRAINING_FACTOR, compute_seconds
from potluck.jobs import Train
from potluck.messages import Node
from potluck.models import Model
from potluck.models.footprint import training_bytes

By = Literal["width", "depth"]
SMALLEST = 1e-3  # scale of a model, below which none is tried
SLACK = 1.2  # of the time that is taken if none is given: rates and speeds are known to about as much


def gathered(
    resources: Resources, tiers: int | None, fewer: int, smallest_tier: int, seed: int
) -> tuple[Ints, dict[int, float]]:
    """Each participant's cluster, the richest first, and the Dunn indices of the numbers that were tried."""
    if len(resources.constant) == len(resources.vectors[0]):  # nothing tells them apart
        return np.zeros(len(resources.scores), np.int64), {}
    index: dict[int, float] = {}
    if tiers is None:
        found = find_clusters(resources, seed=seed)
        index, tiers = found.index, max(2, found.count - fewer)
    labels = (
        cluster(resources, tiers, seed=seed).labels if tiers > 1 else np.zeros_like(resources.scores, int)
    )
    return merge_small(labels, smallest_tier), index


def scaled(spec: ModelSpec, scale: float, by: By) -> ModelSpec:
    """A smaller variant of a model."""
    return replace(spec, **{by: getattr(spec, by) * scale})


def bytes_of(models: Nets, spec: ModelSpec, local: Train, batch: int | None = None) -> int:
    """Memory that training a model takes."""
    net = models[spec]
    assert isinstance(net, Model)
    return training_bytes(net, local.optim, batch or local.batch)


def unable(known: Mapping[Node, Device], models: Nets, local: Train, alpha: float, by: By) -> list[Node]:
    """Devices that can't hold even the smallest model."""
    least = alpha ** floor(log(SMALLEST) / log(alpha))
    need = bytes_of(models, scaled(local.model, least, by), local)
    return [node for node, device in known.items() if device.memory < need]


def refuse(nodes: Sequence[Node], known: Mapping[Node, Device]) -> None:
    """Name devices that can train nothing."""
    if nodes:
        said = ", ".join(f"{node} ({known[node].memory:,.0f} bytes)" for node in nodes[:5])
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        raise ConfigError(
            f"devices {said}{more}: too little memory to train even the smallest model; "
            "choose a smaller model or batch, or set leave_out = true to go on without them"
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
) -> Crowd:
    """What each tier's model would cost each participant; a teacher's cost is spread over the rounds."""
    nets = [models[spec] for spec in specs]
    compute = [[compute_seconds(TRAINING_FACTOR * net.ops, d.compute) for net in nets] for d in devices]
    link = np.array(
        [[2 * d.latency + 8 * net.nbytes * (1 / d.down + 1 / d.up) for net in nets] for d in devices]
    )
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
    tiers = int(labels.max()) + 1
    last = 0.0  # T_m
    for tier in range(tiers):
        mine = labels == tier
        seconds = epochs[tier] * crowd.rows[mine] * crowd.compute[mine, tier] + crowd.link[mine, tier]
        last = max(last, float(seconds.max()) * rounds[tier] / kappa ** (tiers - 1 - tier))
    shares = [kappa ** (tiers - 1 - tier) for tier in range(tiers)]
    total = sum(shares) if chained else shares[0] + (1.0 if tiers > 1 else 0.0)
    return SLACK * last * total
