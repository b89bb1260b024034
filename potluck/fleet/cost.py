"""How long things take on the virtual clock.

The duration of a task is a transfer down, its computing and a transfer up. Rates and speeds are arguments:
what makes them vary from task to task belongs before the call.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError
from potluck.core.keys import derive, uniforms
from potluck.fleet.profiles import COLUMNS, Column, Fleet, Profiles
from potluck.fleet.topology import CLOUD, Topology

REFERENCE_OPS = 416_520  # multiply-accumulates of one forward pass of LeNet-5 on 28x28, padded by 2
TRAINING_FACTOR = 3  # forward passes that training on a sample costs: forward, and twice that backward
SWAP = 20.0  # how many times longer bytes take from a phone's flash (about 1 GB/s) than from its memory

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


def slow_by_swapping(needs: float, memory: float) -> float:
    """How many times longer work takes that needs so many bytes: what memory lacks is fetched from flash."""
    return 1.0 + (SWAP - 1.0) * max(0.0, 1.0 - memory / needs) if needs > 0 else 1.0


def slow_all_by_swapping(needs: float, memory: Column) -> Column:
    """The same on many devices, to the last bit."""
    return 1.0 + (SWAP - 1.0) * np.maximum(0.0, 1.0 - memory / needs) if needs > 0 else np.ones_like(memory)


def list_machines(fleet: Fleet, topology: Topology, *, claimed: bool = False) -> Profiles:
    """Profiles of every node of a topology: a fleet's devices, then aggregators: `SERVER`s but for its tiers.

    A device's link is the fleet's own unless `fleet.links` says how far away its parent's tier is: then
    it lies evenly between the two ends, by hash, and at the same place in the ranges of all tiers.
    """
    if len(fleet) != topology.devices:
        raise ConfigError(
            f"fleet of {len(fleet)} devices, topology of {topology.devices}: build both from one"
        )
    profiles = fleet.claimed if claimed else fleet.true
    table = {name: np.empty(topology.total) for name in COLUMNS}
    for name, column in table.items():
        own, true = getattr(profiles, name), getattr(fleet.true, name)
        column[: topology.devices] = own
        for tier in (CLOUD, *topology.tiers):
            nodes = topology.members(tier)
            column[nodes.start : nodes.stop] = fleet.tiers.get(tier, {}).get(name, SERVER[name])
            if name in fleet.links.get(tier, {}):
                low, high = fleet.links[tier][name]
                below = topology.devices_below(tier)
                place = uniforms(derive(fleet.key, COLUMNS.index(name)), below)
                column[below] = low + (high - low) * place
                if own is not true:  # a lie keeps its proportion
                    column[below] *= np.divide(own, true, out=np.ones(len(own)), where=true > 0)[below]
    return Profiles(**table).check()
