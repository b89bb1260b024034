"""Data: where rows come from (sources), who holds them (partition), and how that changes (arrange)."""

from potluck.data.arrange import Arrangement, Phase, arrange
from potluck.data.changes import CHANGE_KINDS, Change
from potluck.data.flip import FLIP_KINDS, Flip
from potluck.data.groups import GROUP_KINDS, Groups
from potluck.data.held_out import choose_tests
from potluck.data.holding import Cut, Partition, Procedural, Split, StoredPartition
from potluck.data.partition.external import columns, from_flwr, from_rows
from potluck.data.partition.label_shards import shards
from potluck.data.partition.registry import PARTITIONS, divide
from potluck.data.partition.registry import register as register_partition
from potluck.data.partition.users import by_user, split_users, user_devices
from potluck.data.partition.ways import LAWS, dirichlet, iid, procedural, quantity
from potluck.data.pool import (
    Pool,
    assemble,
    drop_class,
    fingerprint,
    limit_rows,
    reserve_rows,
    set_validators,
)
from potluck.data.row_count import RowCount, count_rows
from potluck.data.server_rows import list_stocks, stock_server
from potluck.data.shift import SHIFT_KINDS, Shift, read_shift
from potluck.data.sources import builtin as builtin  # registers the sources of the package
from potluck.data.sources.registry import SOURCES, list_options, load
from potluck.data.sources.registry import register as register_source
from potluck.data.sources.torch_dataset import from_dataset
from potluck.data.streams import order_of_stream
from potluck.data.trigger import Trigger

__all__ = [
    "CHANGE_KINDS",
    "FLIP_KINDS",
    "GROUP_KINDS",
    "LAWS",
    "PARTITIONS",
    "SHIFT_KINDS",
    "SOURCES",
    "Arrangement",
    "Change",
    "Cut",
    "Flip",
    "Groups",
    "Partition",
    "Phase",
    "Pool",
    "Procedural",
    "RowCount",
    "Shift",
    "Split",
    "StoredPartition",
    "Trigger",
    "arrange",
    "assemble",
    "by_user",
    "choose_tests",
    "columns",
    "count_rows",
    "dirichlet",
    "divide",
    "drop_class",
    "fingerprint",
    "from_dataset",
    "from_flwr",
    "from_rows",
    "iid",
    "limit_rows",
    "list_options",
    "list_stocks",
    "load",
    "order_of_stream",
    "procedural",
    "quantity",
    "read_shift",
    "register_partition",
    "register_source",
    "reserve_rows",
    "set_validators",
    "shards",
    "split_users",
    "stock_server",
    "user_devices",
]
