"""Data: where rows come from (sources) and who holds them (partition)."""

from potluck.data.holding import Cut, Held, Partition, Procedural, Split
from potluck.data.partition import KINDS, by_user, dirichlet, divide, iid, procedural, shards
from potluck.data.pool import Pool, reserved
from potluck.data.sources import SOURCES, load

__all__ = [
    "KINDS",
    "SOURCES",
    "Cut",
    "Held",
    "Partition",
    "Pool",
    "Procedural",
    "Split",
    "by_user",
    "dirichlet",
    "divide",
    "iid",
    "load",
    "procedural",
    "reserved",
    "shards",
]
