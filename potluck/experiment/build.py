"""From the tables of an experiment to its federation: data, who holds them, devices, models, training."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from potluck import data, fleet
from potluck.core.errors import ConfigError, PotluckError
from potluck.core.job import ModelSpec, Nets
from potluck.core.keys import derive
from potluck.core.room import require_room
from potluck.experiment import accountant
from potluck.experiment.schema.data_tables import Groups, Shift
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.fleet import Devices
from potluck.experiment.schema.settings import SOURCE_KEYS, Data, Training, dump_all
from potluck.experiment.schema.table import Table
from potluck.federation import Federation
from potluck.jobs import SGD, Adam, Private, Train
from potluck.models import Models
from potluck.simulate.run_state import read_memories

Memories = Mapping[tuple[int, Hashable], Any]  # by device and slot

# Streams of the run's seed.
_DIVIDE, _FLEET, _ONLINE, _SERVER, _JITTER, _ARRANGE, _ATTACK = 1, 2, 3, 4, 5, 6, 7
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
DEVICE_BYTES = 300  # of the arrays that hold a device: what it can do, whose it is, what it has
_DIVIDED_BY = (
    *("alpha", "classes_per_client", "law", "skew", "rows_per_client", "users", "devices_per_user"),
    *("smallest", "largest", "validation", "test"),
)


def build_federation(experiment: Experiment, pool: data.Pool | None = None) -> Federation:
    """Data (those of the pool, if given), who holds them, devices and models of a resolved experiment."""
    d, f, seed = experiment.data, experiment.fleet, experiment.seed
    require_room(DEVICE_BYTES * (d.clients or 0), "data.clients", d.clients, "lower it")
    pool, partition = deal_rows(experiment, load_rows(experiment) if pool is None else pool)
    devices = _assign_users(build_fleet(f, partition.clients, seed), f, partition.user)
    if f.attack is not None:  # after the data have said who belongs to which edge
        devices = fleet.place_attackers(devices, derive(seed, _ATTACK), **_dump_set(f.attack))
    inputs = None if pool.x.is_floating_point() else pool.x.dtype
    models = Models(pool.shape, pool.classes, _DTYPES[experiment.run.dtype], inputs)
    levels = [make_shift(each) for each in experiment.evaluate.shifts]
    federation = _arrange(d, pool, partition, devices, models, derive(seed, _ARRANGE), levels)
    return (
        federation
        if f.memories is None
        else replace(federation, memories=_read_memories(f.memories, len(devices)))
    )


def load_rows(experiment: Experiment) -> data.Pool:
    """All rows of a resolved experiment's source."""
    d = experiment.data
    return data.load(d.source, root=_find_root(d), **_list_source_options(d))


def deal_rows(experiment: Experiment, pool: data.Pool) -> tuple[data.Pool, data.Partition]:
    """The rows of a pool that a resolved experiment uses, and who holds them at the start."""
    d, seed = experiment.data, experiment.seed
    pool = data.choose_tests(pool, d.test_from)
    if d.validation_from == "users":  # first: a limit is on what is trained on
        pool = data.set_validators(pool, d.validation)
    if d.limit is not None:
        pool = data.limit_rows(pool, d.limit)
    if d.without is not None:
        pool = data.drop_class(pool, d.without)
    if pool.x.is_floating_point():
        pool = replace(pool, x=pool.x.to(_DTYPES[experiment.run.dtype]))
    if d.server is not None:
        pool = data.reserve_rows(pool, d.server, derive(seed, _SERVER))
        pool = data.stock_server(pool, d.server_from or "data", derive(seed, _SERVER), _find_root(d))
    return pool, _divide_rows(d, pool, derive(seed, _DIVIDE))


def _find_root(d: Data) -> Path | None:
    return None if d.root is None else Path(d.root)


def _read_memories(place: str, devices: int) -> Memories:
    """What the devices of another run remember; of these, a rule names those that it recalls."""
    try:
        found = read_memories(Path(place))
    except (OSError, PotluckError) as error:
        raise ConfigError(f"fleet.memories = {place!r}: no run to take memories from ({error})") from None
    if any(node >= devices for node, _ in found):
        raise ConfigError(f"fleet.memories = {place!r}: a run of more devices than these {devices}")
    return found


def build_fleet(f: Devices, n: int, seed: int) -> fleet.Fleet:
    """The devices that a table describes."""
    key, j = derive(seed, _ONLINE), f.jitter
    online: dict[str, Callable[[], fleet.Availability]] = {
        "always": fleet.Always,
        "on_off": lambda: fleet.OnOff(key, f.period, f.share),
        "day_night": lambda: fleet.DayNight(key, f.night, f.zones, f.night_spread, f.period),
        "intervals": lambda: fleet.Intervals.read(f.intervals or ""),
    }
    links = {
        tier: {
            name: ends if isinstance(ends, list) else [ends, ends] for name, ends in _dump_set(link).items()
        }
        for tier, link in f.links.items()
    }
    return fleet.build(
        f.source,
        n,
        derive(seed, _FLEET),
        users=f.users,
        edges=f.edges,
        availability=online[f.availability](),
        tiers={name: _dump_set(tier) for name, tier in f.tiers.items()},
        links=links,
        jitter=None if j is None else fleet.Jitter(derive(seed, _JITTER), j.every, j.rates, j.compute),
        claims=[_dump_set(claim) for claim in f.claims],
        stragglers=None if f.stragglers is None else _dump_set(f.stragglers),
        forget=f.forget or 0.0,
        **f.options(),
    )


def _dump_set(table: Table) -> dict[str, Any]:
    """Without the keys that say nothing."""
    return {name: value for name, value in dump_all(table).items() if value is not None}


def build_training(experiment: Experiment, training: Training) -> Train:
    """What devices do, as the experiment describes it."""
    if training.privacy is not None:
        accountant.check_installed()
    m, lr = experiment.model, training.lr or 0.0
    optim = Adam(lr) if training.optimizer == "adam" else SGD(lr, training.momentum, training.weight_decay)
    return Train(
        ModelSpec(m.name, m.width, m.depth),
        optim=optim,
        clip=training.clip,
        batch=training.batch,
        epochs=training.epochs or 1,
        steps=training.steps,
        privacy=None if training.privacy is None else Private(**dump_all(training.privacy)),
    )


def _divide_rows(d: Data, pool: data.Pool, key: int) -> data.Partition:
    """Who holds what at the start."""
    with _name_table("data"):
        return data.divide(pool, d.partition, d.clients, key, **_list_division(d))


def _assign_users(devices: fleet.Fleet, f: Devices, user: NDArray[np.int32] | None) -> fleet.Fleet:
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


def _arrange(
    d: Data,
    pool: data.Pool,
    partition: data.Partition,
    devices: fleet.Fleet,
    models: Nets,
    key: int,
    levels: Sequence[data.Shift] = (),
) -> Federation:
    """The federation: groups, shift and changes as the table says. Which group is whose, the fleet knows.

    `levels` are shifts at which it can be tested beside the table's.
    """
    trigger = None if devices.attack is None else devices.attack.trigger
    if trigger is not None:
        trigger.check(pool)
    with _name_table("data"):
        laid = data.arrange(
            pool,
            partition,
            key,
            groups=None if d.groups is None else _make_groups(d.groups),
            shift=make_shift(d.shift),
            levels=levels,
            changes=[data.Change(**dump_all(change)) for change in d.changes],
            flip=None if d.flip is None else data.Flip(**dump_all(d.flip)),
            trigger=trigger,
            poisoned=devices.attackers,
            user=devices.user,
            edge=devices.edge,
            kind=d.partition,
            **_list_division(d),
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
        triggered=first.triggered,
    )


def _make_groups(given: Groups) -> data.Groups:
    own = {name: value for name, value in dump_all(given).items() if name != "within"}
    return data.Groups(**own, within=None if given.within is None else data.Groups(**dump_all(given.within)))


def make_shift(given: float | Shift) -> data.Shift:
    """The shift that a share or a table describes."""
    return data.Shift(**dump_all(given)) if isinstance(given, Shift) else data.Shift(given)


def _list_source_options(d: Data) -> dict[str, Any]:
    """Those of the source; and what other sources have, which it will refuse."""
    way = data.PARTITIONS.find(d.partition, "data.partition")
    own = data.list_options(d.source) if d.source in data.SOURCES else []
    others = [key for key in SOURCE_KEYS if key not in (*own, *way.own)]
    return {key: value for key in (*own, *others) if (value := d.read(key)) is not None}


def _list_division(d: Data) -> dict[str, Any]:
    """What rows are divided by."""
    way = data.PARTITIONS.find(d.partition, "data.partition")
    own = {key: value for key in way.own if (value := d.read(key)) is not None}
    return {key: getattr(d, key) for key in _DIVIDED_BY} | {"own": own}


@contextmanager
def _name_table(table: str) -> Iterator[None]:
    """Name the table in errors about a key, of those who don't know that they are called from a file."""
    try:
        yield
    except PotluckError as error:
        text = re.sub(rf"^(?!{table}\.)(?=[\w.]+ (?:= |is missing))", f"{table}.", str(error))
        raise error.retell(text) from error.__cause__
