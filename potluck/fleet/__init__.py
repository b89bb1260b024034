"""Who takes part: what devices can do, when they are there, who is above them, how long things take."""

from potluck.fleet.availability import Always, Availability, Intervals, OnOff
from potluck.fleet.cost import (
    REFERENCE_OPS,
    SERVER,
    TRAINING_FACTOR,
    compute_seconds,
    machines,
    transfer_seconds,
)
from potluck.fleet.profiles import COLUMNS, Fleet, Profiles
from potluck.fleet.sources import build, mobile, uniform
from potluck.fleet.topology import CLOUD, DEVICE, Topology

__all__ = [
    "CLOUD",
    "COLUMNS",
    "DEVICE",
    "REFERENCE_OPS",
    "SERVER",
    "TRAINING_FACTOR",
    "Always",
    "Availability",
    "Fleet",
    "Intervals",
    "OnOff",
    "Profiles",
    "Topology",
    "build",
    "compute_seconds",
    "machines",
    "mobile",
    "transfer_seconds",
    "uniform",
]
