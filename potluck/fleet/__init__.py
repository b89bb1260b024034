"""Who takes part: what devices can do, when they are there, who is above them, how long things take."""

from potluck.fleet.attack import ATTACKS, FLAWS, Attack, attacked
from potluck.fleet.availability import Always, Availability, DayNight, OnOff
from potluck.fleet.cost import (
    REFERENCE_OPS,
    SERVER,
    TRAINING_FACTOR,
    compute_seconds,
    machines,
    swapping,
    transfer_seconds,
)
from potluck.fleet.generate import mix, mobile, uniform
from potluck.fleet.intervals import Intervals
from potluck.fleet.jitter import Jitter
from potluck.fleet.measured import fedrac40, table, trace
from potluck.fleet.profiles import COLUMNS, Fleet, Profiles
from potluck.fleet.sources import SOURCES, boast, build
from potluck.fleet.topology import CLOUD, DEVICE, Topology

__all__ = [
    "ATTACKS",
    "CLOUD",
    "COLUMNS",
    "DEVICE",
    "FLAWS",
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
    "attacked",
    "boast",
    "build",
    "compute_seconds",
    "fedrac40",
    "machines",
    "mix",
    "mobile",
    "swapping",
    "table",
    "trace",
    "transfer_seconds",
    "uniform",
]
