"""Who takes part: what devices can do, when they are there, who is above them, how long things take."""

from potluck.fleet.attackers import ATTACKS, COLLUDING, FLAWS, MISREPORTS, Attack, place_attackers
from potluck.fleet.availability import Always, Availability, DayNight, OnOff
from potluck.fleet.builder import SOURCES, boast, build
from potluck.fleet.cost import (
    REFERENCE_OPS,
    SERVER,
    TRAINING_FACTOR,
    compute_seconds,
    list_machines,
    slow_all_by_swapping,
    slow_by_swapping,
    transfer_seconds,
)
from potluck.fleet.generate import mix, mobile, uniform
from potluck.fleet.intervals import Intervals
from potluck.fleet.jitter import Jitter
from potluck.fleet.measurements import fedrac40, table, trace
from potluck.fleet.pooled import list_claims, pool_claims
from potluck.fleet.profiles import COLUMNS, Fleet, Profiles
from potluck.fleet.topology import CLOUD, DEVICE, Topology

__all__ = [
    "ATTACKS",
    "CLOUD",
    "COLLUDING",
    "COLUMNS",
    "DEVICE",
    "FLAWS",
    "MISREPORTS",
    "REFERENCE_OPS",
    "SERVER",
    "SOURCES",
    "TRAINING_FACTOR",
    "Always",
    "Attack",
    "Availability",
    "DayNight",
    "Fleet",
    "Intervals",
    "Jitter",
    "OnOff",
    "Profiles",
    "Topology",
    "boast",
    "build",
    "compute_seconds",
    "fedrac40",
    "list_claims",
    "list_machines",
    "mix",
    "mobile",
    "place_attackers",
    "pool_claims",
    "slow_all_by_swapping",
    "slow_by_swapping",
    "table",
    "trace",
    "transfer_seconds",
    "uniform",
]
