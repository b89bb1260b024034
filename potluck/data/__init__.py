"""Data: where rows come from (sources), who holds them (partition), and how that changes (arrange)."""

from potluck.data.arrange import Arrangement, Phase, arranged
from potluck.data.aside import STOCKS, stocked
from potluck.data.changes import CHANGE_KINDS, Change
from potluck.data.flip import FLIP_KINDS, Flip
from potluck.data.groups import GROUP_KINDS, Groups
from potluck.data.holding import Cut, Held, Partition, Procedural, Split
from potluck.data.partition.external import columns, from_flwr, from_rows
from potluck.data.partition.ways import (
    KINDS,
    LAWS,
    USER_KINDS,
    by_user,
    dirichlet,
    divide,
    iid,
    procedural,
    quantity,
    shards,
    split_users,
    user_devices,
)
from potluck.data.pool import Pool, fingerprint, limited, reserved, with_validators, without
from potluck.data.sources.registry import OPTIONS, SOURCES, load
from potluck.data.sources.torch_dataset import from_dataset

__all__ = [
    "CHANGE_KINDS",
    "FLIP_KINDS",
    "GROUP_KINDS",
    "KINDS",
    "LAWS",
    "OPTIONS",
    "SOURCES",
    "STOCKS",
    "USER_KINDS",
    "Arrangement",
    "Change",
    "Cut",
    "Flip",
    "Groups",
    "Held",
    "Partition",
    "Phase",
    "Pool",
    "Procedural",
    "Split",
    "arranged",
    "by_user",
    "columns",
    "dirichlet",
    "divide",
    "fingerprint",
    "from_dataset",
    "from_flwr",
    "from_rows",
    "iid",
    "limited",
    "load",
    "procedural",
    "quantity",
    "reserved",
    "shards",
    "split_users",
    "stocked",
    "user_devices",
    "with_validators",
    "without",
]
