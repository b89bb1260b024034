"""What the models of Fed-RAC's tiers cost devices: seconds of training, of sending and of a lesson."""

from collections.abc import Sequence

import numpy as np

from potluck.algorithms.fedrac.claims import Device
from potluck.algorithms.fedrac.clustering.resources import Floats, Ints
from potluck.authoring import ModelSpec, Net, Nets, require, value
from potluck.fleet import TRAINING_FACTOR, compute_seconds, slow_by_swapping
from potluck.models import as_model
from potluck.models.footprint import inference_bytes


@value(eq=False)
class Costs:
    """Participants, and what the tiers' models would cost them."""

    scores: Floats  # [participants] they choose in the order of these, from the highest
    rows: Ints  # [participants] n_i
    memory: Floats  # [participants] bytes a_i that training may take
    compute: Floats  # [participants, tiers] seconds for training one row in one epoch
    link: Floats  # [participants, tiers] seconds for fetching and returning the model

    def __post_init__(self) -> None:
        n, tiers = len(self.scores), np.shape(self.compute)[-1]
        for name, column, shape in (
            ("rows", self.rows, (n,)),
            ("memory", self.memory, (n,)),
            ("compute", self.compute, (n, tiers)),
            ("link", self.link, (n, tiers)),
        ):
            require(np.shape(column) == shape, f"{name}.shape", np.shape(column), f"should be {shape}")
            require(bool((column >= 0).all()), name, column.tolist(), "give 0 or more")
        require(bool((self.rows >= 1).all()), "rows", self.rows.tolist(), "who takes part has a row at least")


def estimate_costs(
    devices: Sequence[Device],
    scores: Floats,
    models: Nets,
    specs: Sequence[ModelSpec],
    rounds: Sequence[int],
    teachers: Sequence[ModelSpec | None],
    hints: bool,
) -> Costs:
    """What each tier's model would cost each participant; a teacher's cost is spread over the rounds.

    `hints`: a map between features is trained and sent with a follower's model.
    """
    nets, ops, sizes = [models[spec] for spec in specs], list[int](), list[int]()
    for net, spec in zip(nets, teachers, strict=True):
        numbers = count_features(net) * count_features(models[spec]) if hints and spec is not None else 0
        ops.append(TRAINING_FACTOR * (net.ops + numbers))
        sizes.append(net.nbytes + numbers * (net.nbytes // as_model(net).size))
    compute = [[compute_seconds(each, d.compute) for each in ops] for d in devices]
    link = np.array([[2 * d.latency + 8 * size * (1 / d.down + 1 / d.up) for size in sizes] for d in devices])
    for tier, spec in enumerate(teachers):
        if spec is not None:
            link[:, tier] += [lesson_seconds(d, models[spec]) / rounds[tier] for d in devices]
    return Costs(
        scores,
        np.array([d.rows for d in devices], np.int64),
        np.array([d.memory for d in devices], np.float64),
        np.array(compute, np.float64),
        link,
    )


def lesson_seconds(device: Device, net: Net) -> float:
    """What a teacher costs a device, once: its download, and its pass over all rows."""
    passing: float = compute_seconds(device.rows * net.ops, device.compute)
    return 8 * net.nbytes / device.down + streaming_factor(device, net) * passing


def streaming_factor(device: Device, net: Net) -> float:
    """How many times longer a teacher's pass takes on a device: 1, or more if its weights don't fit."""
    return slow_by_swapping(inference_bytes(net), device.memory)


def count_features(net: Net) -> int:
    """How many numbers a model's head sees."""
    shapes = as_model(net).shapes
    return next(shape[1] for name in net.head_names if len(shape := shapes[name]) == 2)
