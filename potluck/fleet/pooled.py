"""What aggregators claim: they stand in for those below them, and can do what these can."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from potluck.fleet.cost import list_machines
from potluck.fleet.profiles import Fleet, Profiles
from potluck.fleet.topology import Topology


def list_claims(fleet: Fleet, topology: Topology, machines: Profiles, moving: Collection[str]) -> Profiles:
    """What every node of a topology says of itself; `machines`: what they are."""
    claimed = machines if fleet.claimed is fleet.true else list_machines(fleet, topology, claimed=True)
    return pool_claims(claimed, topology, moving) if topology.tiers else claimed


def pool_claims(claimed: Profiles, topology: Topology, moving: Collection[str]) -> Profiles:
    """The same, but what aggregators below the cloud claim is made of their members'; links are their own.

    Work takes as long as at the slowest member, but in tiers of `moving`, where rows go to whoever has time,
    speeds add up. A model must fit into the least memory.
    """
    compute, memory = claimed.compute.copy(), claimed.memory.copy()
    for tier in reversed(topology.tiers):
        nodes = topology.members(tier)
        below, above = topology.list_below(tier)
        place = above - nodes.start
        if tier in moving:
            found = 1 / np.bincount(place, 1 / compute[below], len(nodes))
        else:
            found = np.zeros(len(nodes))
            np.maximum.at(found, place, compute[below])
        compute[nodes.start : nodes.stop] = found
        least = np.full(len(nodes), np.inf)
        np.minimum.at(least, place, memory[below])
        memory[nodes.start : nodes.stop] = least
    return replace(claimed, compute=compute, memory=memory)
