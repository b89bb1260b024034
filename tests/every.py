"""Every algorithm at the size of a test, in both its modes, and a crowd that can carry all of them."""

import dataclasses
from functools import cache

import pytest
from federations import LOCAL, pool, small

from potluck import algorithms
from potluck.core.errors import ConfigError
from potluck.data import reserve_rows
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.jobs import SGD

FEW = {"clients": 4, "force": (1, 3), "buffer": 3}  # parameters that algorithms share, at the size of a test
FEW |= {"eps1": 100.0, "eps2": 0.0, "min_round": 1}  # CFL splits as soon as it may
FEW |= {"first_rounds": 1, "groups": 2, "pretrain_scale": 2, "pretrain_steps": 2}  # FL+HC and FlexCFL
FEW |= {"restarts": 1}  # IFCA
FEW |= {"syncs": 2}  # FedGS
FEW |= {"rounds": 8}  # DM-PFL goes through all of its phases
FEW |= {"tier_count": 2, "interval": 2, "edges": 2, "edge_rounds": 1}  # TiFL and SHARE
# Tables of settings, some of whose names others have too; Fed-RAC: two tiers, side by side or in turns.
TIERED = {"clustering": {"smallest": 1, "fewer": 0}, "verification": {"remeasure": 3}}
TABLES = {"fedrac": TIERED, "fedrac published": TIERED | {"schedule": {"head_start": 2}}}
NAMES = algorithms.names()
# As they were published, where that is something else: `auxo published`.
PUBLISHED = [f"{name} published" for name in NAMES if algorithms.find_published(name)]
EVERYONE = [*NAMES, *PUBLISHED]
EDGED = ("fededge", "hierfl", "hybridfl", "maverick")  # their rounds take devices of all edges
STOP = StopAt(rounds=20, device_seconds=40)  # about 20 tasks: some rounds, the last one cut short
LONGER = StopAt(rounds=20, device_seconds=120)
OFTEN = EvaluateAt(rounds=2)


def mark(names=EVERYONE):
    """For tests whose published modes are for the night."""
    return [pytest.param(n, marks=pytest.mark.nightly) if n in PUBLISHED else n for n in names]


def split(name):
    """The algorithm, and the parameters that its mode is."""
    algorithm, _, mode = name.partition(" ")
    return algorithm, {"mode": mode} if mode else {}


@cache
def parameters(name):
    return {p.name for p in algorithms.describe(split(name)[0]).parameters}


@cache
def make(name, local=LOCAL, **params):
    """The algorithm with momentum where it allows it."""
    few = FEW | {"clients": 5} if split(name)[0] in EDGED else FEW  # Krum needs so many
    few = {k: v for k, v in few.items() if k in parameters(name)} | TABLES.get(name, {})
    name, mode = split(name)
    params = few | mode | params
    try:
        return algorithms.make(name, local, **params)
    except ConfigError:
        plain = dataclasses.replace(local, optim=SGD(local.optim.lr))
        return algorithms.make(name, plain, **params)


def enough(name):
    return LONGER if split(name)[0] in (*EDGED, "fedgs", "fedrac", "share", "shufflefl", "tifl") else STOP


def crowd(**more):
    # Some algorithms need rows at the server.
    return small(**{"users": 5, "edges": 2, "compute": 4e5, "data": reserve_rows(pool(), 0.05, 1)} | more)


@cache
def federation():
    return crowd()
