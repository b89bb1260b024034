"""Partitions by name: `divide(pool, "dirichlet", 20, key)`, or a way of one's own that was registered."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypedDict

from potluck.core import entry_points
from potluck.core.codec import Json
from potluck.core.errors import ConfigError, DataError, call_named, nearest
from potluck.core.registry import Registry, pick_parameters
from potluck.data.holding import Cut, Partition
from potluck.data.partition.label_shards import shards
from potluck.data.partition.users import by_user, split_users, user_devices
from potluck.data.partition.ways import dirichlet, iid, procedural, quantity
from potluck.data.pool import Pool

Deal = Callable[..., Partition]


class Way(NamedTuple):
    """A way to divide rows."""

    deal: Deal
    takes: frozenset[str]  # of the settings
    counts_clients: bool  # how many there are is up to the data, so that a number needn't be given
    own: tuple[str, ...] = ()  # its options beside these settings


class Settings(TypedDict, total=False):
    """What `divide` takes beside pool, kind, clients and key."""

    alpha: float
    classes_per_client: int | None
    law: str
    skew: float
    rows_per_client: int
    users: int | None
    devices_per_user: Sequence[int]
    smallest: int
    largest: int
    validation: float
    test: float
    own: Mapping[str, Json]


_CUT = ("smallest", "validation", "test")  # of the settings: a way is given them as a `Cut`
_OFFERED = (
    *("pool", "clients", "key", "cut"),
    *(name for name in Settings.__annotations__ if name not in (*_CUT, "own")),
)
PARTITIONS: Registry[Way] = Registry("partition", partial(entry_points.call_all, "potluck.data"))


def register(name: str, deal: Deal, *, counts_clients: bool = False) -> None:
    """Make a way to divide rows among devices known by `name`.

    `deal`: a function that returns a `Partition`, best made by `potluck.data.from_rows`. It is called with
    those of these keywords that it has as parameters: `pool` (the rows), `clients` (how many devices), `key`
    (the source of all that it draws), `cut` (how a device's rows are cut into train, validation and test
    rows), and the settings of [data] that are set (`alpha`, ...). Its further parameters, each with a
    default, become keys of [data].
    `counts_clients`: the function finds out by itself how many devices there are, and `clients` may be None.
    """
    if not callable(deal):
        raise ConfigError(f"partition {name!r}: register a function that divides a pool, not {deal!r}")
    takes = pick_parameters(f"partition {name!r}: its function", deal, _OFFERED)
    own = tuple(
        p.name
        for p in inspect.signature(deal).parameters.values()
        if p.name not in _OFFERED and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    )
    PARTITIONS.add(name, Way(deal, takes, counts_clients, own), deal)


def divide(
    pool: Pool,
    kind: str,
    clients: int | None,
    key: int,
    *,
    alpha: float = 0.5,
    classes_per_client: int | None = None,
    law: str = "lognormal",
    skew: float = 1.0,
    rows_per_client: int = 28,
    users: int | None = None,
    devices_per_user: Sequence[int] = (2, 6),
    smallest: int = 5,
    largest: int = 50,
    validation: float = 0.1,
    test: float = 0.2,
    own: Mapping[str, Json] | None = None,
) -> Partition:
    """Divide the non-test rows among clients, each of which gets train, validation and test rows.

    `pool`: the rows. `kind`: the name of the way. `key`: the source of all that is drawn. `smallest`: the
    fewest rows of a client. `validation`, `test`: shares of a client's rows.
    A kind reads the parameters it has and no others: `alpha` is dirichlet's and user_devices', `largest`
    procedural's, `classes_per_client` shards' (2 unless told) and procedural's (all unless told), `law` and
    `skew` quantity's, `rows_per_client` split_users', `users` and `devices_per_user` user_devices'.
    `clients` may be None for by_user and split_users (everybody), and must be for user_devices. Where users
    were set apart to validate, their rows are everybody's validation rows, in even shares. `own` holds
    options that a registered way has beside all these.
    """
    cut = Cut(validation, test, smallest, pool.validating, pool.order)
    way = PARTITIONS.find(kind, "partition")
    if clients is None and not way.counts_clients:
        raise ConfigError(f"clients is missing: {kind} needs a number of clients")
    if clients is not None and "clients" not in way.takes:
        raise ConfigError(
            f"clients = {clients}: {kind} makes a client of every device of every user; "
            "leave it out, or say how many users by users"
        )
    settings = {
        "alpha": alpha,
        "classes_per_client": classes_per_client,
        "law": law,
        "skew": skew,
        "rows_per_client": rows_per_client,
        "users": users,
        "devices_per_user": devices_per_user,
        "largest": largest,
    }
    said = {name: value for name, value in settings.items() if value is not None}
    offered = {"pool": pool, "clients": clients, "key": key, "cut": cut, **said}
    own = own or {}
    for name, value in own.items():
        if name not in way.own:
            hint = nearest(name, way.own) if way.own else "it has none of its own"
            raise ConfigError(f"{name} = {value!r}: {kind} has no such option; {hint}")
    taken = {name: value for name, value in offered.items() if name in way.takes}
    made = call_named(f"partition = {kind!r}", way.deal, **taken, **own)
    if not isinstance(made, Partition):
        raise DataError(f"partition = {kind!r}: its function gave a {type(made).__name__}, not a Partition")
    return made


_ALL: tuple[Deal, ...] = iid, dirichlet, shards, quantity, procedural, by_user, split_users, user_devices
for _deal in _ALL:
    register(_deal.__name__, _deal, counts_clients=_deal in (by_user, split_users, user_devices))
