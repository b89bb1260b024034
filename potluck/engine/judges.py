"""Where a federation's updates are judged: at the lowest aggregators that hear enough different people.

Two to five devices of one person can't judge each other: whoever owns them owns them all. Nor can a few.
"""

from dataclasses import replace

import numpy as np

from potluck.core.rule import Runnable
from potluck.engine.point import find_topology
from potluck.fleet import Fleet, Topology
from potluck.rules.guard import RobustTiers

PEOPLE = 5  # the fewest who can judge one another
USER = "user"  # the tier whose aggregators have devices of one person each


def place_judge(algorithm: Runnable, fleet: Fleet) -> Runnable:
    """The same algorithm, judged where it can be in this fleet, if it is judged between devices and cloud."""
    if not isinstance(algorithm, RobustTiers):
        return algorithm
    topology = find_topology(algorithm, fleet)
    upward = [tier for tier in ("cloud", *topology.tiers) if tier != USER][::-1]
    able = [tier for tier in upward if _count_fewest(tier, topology, fleet) >= PEOPLE]
    return replace(algorithm, tier=able[0] if able else upward[0])


def _count_fewest(tier: str, topology: Topology, fleet: Fleet) -> int:
    """How many people the aggregators of a tier hear, at least."""
    return min(_count_people(node, topology, fleet) for node in topology.members(tier))


def _count_people(node: int, topology: Topology, fleet: Fleet) -> int:
    """Devices of one user are one; so is an aggregator."""
    members = np.asarray(topology.children(node), np.int64)
    devices = members[members < topology.devices]
    users = fleet.user[devices]
    return len(members) - len(devices) + int((users < 0).sum()) + len(np.unique(users[users >= 0]))
