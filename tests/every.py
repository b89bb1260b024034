"""Every algorithm at the size of a test."""

import dataclasses
from functools import cache

from federations import LOCAL

from potluck import algorithms
from potluck.core.errors import ConfigError
from potluck.jobs import SGD

FEW = {"clients": 4, "force": (1, 3), "buffer": 3}  # parameters that algorithms share, at the size of a test
FEW |= {"eps1": 100.0, "eps2": 0.0, "min_round": 1}  # CFL splits as soon as it may
FEW |= {"first_rounds": 1, "groups": 2, "pretrain_scale": 2, "pretrain_steps": 2}  # FL+HC and FlexCFL
FEW |= {"syncs": 2}  # FedGS
FEW |= {"rounds": 8}  # DM-PFL goes through all of its phases
FEW |= {"tier_count": 2, "interval": 2, "edges": 2, "edge_rounds": 1}  # TiFL and SHARE
# Tables of settings, some of whose names others have too; Fed-RAC: two tiers.
TIERED = {"clustering": {"smallest": 1, "fewer": 0}, "schedule": {"head_start": 2}}
TABLES = {"fedrac": TIERED | {"verification": {"remeasure": 3}}}
NAMES = algorithms.names()
EDGED = ("fededge", "hierfl", "hybridfl", "maverick")  # their rounds take devices of all edges


@cache
def parameters(name):
    return {p.name for p in algorithms.describe(name).parameters}


@cache
def make(name, local=LOCAL, **params):
    """The algorithm with momentum where it allows it."""
    few = FEW | {"clients": 5} if name in EDGED else FEW  # Krum needs so many
    params = {k: v for k, v in few.items() if k in parameters(name)} | TABLES.get(name, {}) | params
    try:
        return algorithms.make(name, local, **params)
    except ConfigError:
        plain = dataclasses.replace(local, optim=SGD(local.optim.lr))
        return algorithms.make(name, plain, **params)
