"""From the [data] table to who holds what: divided, given to devices, and changed as the table says."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck import data, fleet
from potluck.core.errors import ConfigError, PotluckError
from potluck.core.job import Nets
from potluck.experiment.schema.fleet import Devices
from potluck.experiment.schema.settings import Data, dump_all
from potluck.federation import Federation

_DIVIDED_BY = (
    *("alpha", "classes_per_client", "law", "skew", "rows_per_client", "users", "devices_per_user"),
    *("smallest", "largest", "validation", "test"),
)


def divided(d: Data, pool: data.Pool, key: int) -> data.Partition:
    """Who holds what at the start."""
    with _under("data"):
        return data.divide(pool, d.partition, d.clients, key, **_how(d))


def belonging(devices: fleet.Fleet, f: Devices, user: NDArray[np.int32] | None) -> fleet.Fleet:
    """The fleet with devices of the data's users, who are shared out among the edges, if there are any."""
    if user is None:
        return devices
    if f.users is not None:
        raise ConfigError(
            f"fleet.users = {f.users}: the data say whose each device is; leave it out, or set data.users"
        )
    if f.edges is None:
        return replace(devices, user=user)
    count = int(user.max()) + 1
    if f.edges > count:
        raise ConfigError(f"fleet.edges = {f.edges}: at most {count}: each edge needs a user of its own")
    return replace(devices, user=user, edge=(user.astype(np.int64) * f.edges // count).astype(np.int32))


def populated(
    d: Data,
    pool: data.Pool,
    partition: data.Partition,
    devices: fleet.Fleet,
    models: Nets,
    key: int,
    levels: Sequence[float] = (),
) -> Federation:
    """The federation: groups, shift and changes as the table says. Which group is whose, the fleet knows.

    `levels` are shares of shift at which it can be tested beside the table's.
    """
    with _under("data"):
        laid = data.arranged(
            pool,
            partition,
            key,
            groups=None if d.groups is None else data.Groups(**dump_all(d.groups)),
            shift=d.shift,
            levels=levels,
            changes=[data.Change(**dump_all(change)) for change in d.changes],
            flip=None if d.flip is None else data.Flip(**dump_all(d.flip)),
            user=devices.user,
            kind=d.partition,
            **_how(d),
        )
    if laid.group is not None:
        devices = replace(devices, group=laid.group)
    first, *later = laid.phases
    return Federation(
        laid.pool,
        first.partition,
        devices,
        models,
        tuple(later),
        laid.test_group,
        laid.flips,
        shifts=first.shifts,
    )


def _how(d: Data) -> dict[str, Any]:
    return {key: getattr(d, key) for key in _DIVIDED_BY}


@contextmanager
def _under(table: str) -> Iterator[None]:
    """Name the table in errors about a key, of those who don't know that they are called from a file."""
    try:
        yield
    except PotluckError as error:
        named = re.sub(rf"^(?!{table}\.)(?=[\w.]+ (?:= |is missing))", f"{table}.", str(error))
        raise type(error)(named) from None
