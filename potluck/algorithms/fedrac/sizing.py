"""How big the models of Fed-RAC's tiers are: alpha times the one above, and smaller where memory asks for it.

The print has M_{i-1} = alpha M_i, which would make poorer tiers' models bigger; its next line, and here, have
M_i = alpha M_{i-1}. Alpha acts on the width, as in the authors' notebook, or on the depth.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from potluck.algorithms.fedrac.clustering.resources import Floats, Ints
from potluck.algorithms.fedrac.settings import Dimension, FedRACSettings
from potluck.authoring import ConfigError, ModelSpec, Nets, Node, Train, require
from potluck.models.footprint import training_bytes

SMALLEST = 1e-3  # scale of a model, below which none is tried
FEWEST = 3  # tiers where somebody can't hold the whole model: between all and least there is something


def find_scales(
    alpha: float, memory: Sequence[float] | Floats, size: Callable[[float], float], smallest: float = SMALLEST
) -> Floats:
    """Scales [tiers], of width or depth: alpha^f, smaller by alphas until training fits the tier's memory.

    `memory` [tiers] is the least of each tier's members, in bytes; `size` says what training a model of some
    scale takes, in real bytes (half the width has about a quarter of the parameters). No model is bigger than
    that of a richer tier.
    """
    require(
        0 < alpha < 1, "alpha", alpha, "a tier's model is a share of the next richer one's: between 0 and 1"
    )
    found: list[float] = []
    for tier, limit in enumerate(memory):
        scale = min([alpha**tier, *found[-1:]])
        while size(scale) > limit:
            if scale * alpha < smallest:
                raise ConfigError(
                    f"memory of tier {tier} = {limit:,.0f} bytes: its model needs {size(scale):,.0f} even at "
                    f"scale {scale:.3g}; choose a smaller model or batch, or leave its smallest devices out"
                )
            scale *= alpha
        found.append(scale)
    return np.array(found)


def spread_scales(
    alpha: float, tiers: int, memory: Sequence[float] | Floats, size: Callable[[float], float]
) -> Floats:
    """Scales [tiers] where devices train what they can: the first is the largest that anybody can hold.

    The last is one that everybody can hold, `memory` being everybody's; those between lie at even steps of
    alpha. A small device among rich ones makes nobody's model smaller so.
    """
    ends = [find_scales(alpha, [limit], size)[0] for limit in (max(memory), min(memory))]
    first, last = (round(math.log(end, alpha)) for end in ends)
    last = max(last, first + tiers - 1)
    steps = np.rint(np.linspace(first, last, tiers)) if tiers > 1 else np.array([last])
    scales: Floats = alpha**steps
    return scales


def find_least_scale(alpha: float, smallest: float = SMALLEST) -> float:
    """The last scale that `find_scales` tries."""
    scale = 1.0
    while scale * alpha >= smallest:
        scale *= alpha
    return scale


def find_models(s: FedRACSettings, memory: Floats, labels: Ints, models: Nets) -> tuple[ModelSpec, ...]:
    """A model for each tier: for the least memory in its cluster, or spread over what devices can hold."""
    tiers = int(labels.max()) + 1

    def size(scale: float) -> float:
        return measure_bytes(models, scale_model(s.local.model, scale, s.sizes.by), s.local)

    if s.admission.judge == "able":
        if s.clustering.k is None and size(1.0) > memory.min():
            tiers = max(tiers, FEWEST)
        found = spread_scales(s.sizes.alpha, tiers, memory, size)
    else:
        least = [float(memory[labels == tier].min()) for tier in range(tiers)]
        found = find_scales(s.sizes.alpha, least, size)
    return tuple(scale_model(s.local.model, float(scale), s.sizes.by) for scale in found)


def find_unable(s: FedRACSettings, memory: Mapping[Node, float], models: Nets) -> list[Node]:
    """Devices that can't hold even the smallest model."""
    smallest = scale_model(s.local.model, find_least_scale(s.sizes.alpha), s.sizes.by)
    need = measure_bytes(models, smallest, s.local)
    return [node for node, there in memory.items() if there < need]


def refuse_unable(nodes: Sequence[Node], memory: Mapping[Node, float]) -> None:
    """Name devices that can train nothing."""
    if nodes:
        unable = ", ".join(f"{node} ({memory[node]:,.0f} bytes)" for node in nodes[:5])
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        raise ConfigError(
            f"devices {unable}{more}: too little memory to train even the smallest model; "
            "lower model.width or train.batch, or leave them out by algorithms.fedrac.sizes.leave_out = true"
        )


def scale_model(spec: ModelSpec, scale: float, by: Dimension) -> ModelSpec:
    """A smaller variant of a model."""
    return (
        replace(spec, width=spec.width * scale) if by == "width" else replace(spec, depth=spec.depth * scale)
    )


def read_scale(spec: ModelSpec, by: Dimension) -> float:
    """The width or depth of a model."""
    return spec.width if by == "width" else spec.depth


def measure_bytes(models: Nets, spec: ModelSpec, local: Train, batch: int | None = None) -> int:
    """Memory that training a model takes."""
    return training_bytes(models[spec], local.optim, batch or local.batch)
