"""How long things take on the virtual clock.

The duration of a task is a transfer down, its computing and a transfer up. Rates and speeds are arguments:
what makes them vary from task to task belongs before the call.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from potluck.errors import ConfigError, nearest
from potluck.fleet.profiles import COLUMNS, Fleet, Profiles, known_column
from potluck.fleet.topology import CLOUD, Topology

REFERENCE_OPS = 416_520  # multiply-accumulates of one forward pass of LeNet-5 on 28x28, padded by 2
TRAINING_FACTOR = 3  # forward passes that training on a sample costs: forward, and twice that backward

# An aggregation point unless told otherwise: a server beside a good switch.
SERVER: Mapping[str, float] = {
    "compute": 1.0,  # ms per sample: 41 times the median phone
    "up": 1e9,  # bits per second
    "down": 1e9,
    "latency": 0.005,  # seconds
    "memory": 256 * 2.0**30,  # bytes
}

Number = TypeVar("Number", float, NDArray[np.float64])


def compute_seconds(ops: float, compute_ms: Number) -> Number:
    """Seconds for multiply-accumulates, at `compute_ms` for a forward pass of the reference model."""
    return ops / REFERENCE_OPS * compute_ms / 1000


def transfer_seconds(nbytes: float, rate: Number, latency: Number) -> Number:
    """Seconds for bytes to go one way, over a link of `rate` bits per second."""
    return latency + 8 * nbytes / rate


def machines(
    fleet: Fleet,
    topology: Topology,
    tiers: Mapping[str, Mapping[str, float]] = {},
    *,
    claimed: bool = False,
) -> Profiles:
    """Profiles of every node of a topology: a fleet's devices, then aggregators: `SERVER`s but for `tiers`.

    `tiers` may name tiers that this topology doesn't use: one federation serves algorithms of several shapes.
    """
    if len(fleet) != topology.devices:
        raise ConfigError(
            f"fleet of {len(fleet)} devices, topology of {topology.devices}: build both from one"
        )
    known = tuple({CLOUD, *topology.tiers, *fleet.groups})
    for tier, columns in tiers.items():
        if tier not in known:
            raise ConfigError(f"fleet.{tier}: no such tier; {nearest(tier, known)}")
        for name in columns:
            known_column(name)
    profiles = fleet.claimed if claimed else fleet.true
    table = {name: np.empty(topology.total) for name in COLUMNS}
    for name, column in table.items():
        column[: topology.devices] = getattr(profiles, name)
        for tier in (CLOUD, *topology.tiers):
            nodes = topology.members(tier)
            column[nodes.start : nodes.stop] = tiers.get(tier, {}).get(name, SERVER[name])
    return Profiles(**table).checked()
