"""Data: where rows come from (sources), who holds them (partition), and how that changes (arrange)."""

from potluck.data.arrange import Arrangement, Phase, arranged
from potluck.data.aside import list_stocks, stocked
from potluck.data.changes import CHANGE_KINDS, Change
from potluck.data.flip import FLIP_KINDS, Flip
from potluck.data.groups import GROUP_KINDS, Groups
from potluck.data.holding import Cut, Held, Partition, Procedural, Split
from potluck.data.partition.external import columns, from_flwr, from_rows
from potluck.data.partition.label_shards import shards
from potluck.data.partition.registry import PARTITIONS, divide
from potluck.data.partition.registry import register as register_partition
from potluck.data.partition.users import by_user, split_users, user_devices
from potluck.data.partition.ways import LAWS, dirichlet, iid, procedural, quantity
from potluck.data.pool import Pool, assemble, fingerprint, limited, reserved, with_validators, without
from potluck.data.sources import builtin as builtin  # registers the sources of the package
from potluck.data.sources.registry import SOURCES, list_options, load
from potluck.data.sources.registry import register as register_source
from potluck.data.sources.torch_dataset import from_dataset

__all__ = [
    "CHANGE_KINDS",
    "FLIP_KINDS",
    "GROUP_KINDS",
    "LAWS",
    "PARTITIONS",
    "SOURCES",
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
    "assemble",
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
    "list_options",
    "list_stocks",
    "load",
    "procedural",
    "quantity",
    "register_partition",
    "register_source",
    "reserved",
    "shards",
    "split_users",
    "stocked",
    "user_devices",
    "with_validators",
    "without",
]
