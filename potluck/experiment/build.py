"""From an experiment to what a simulation needs. Nothing here writes: bad input leaves nothing behind."""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from potluck import algorithms, data, fleet
from potluck.core import codec
from potluck.core.errors import ConfigError, PotluckError, error_context
from potluck.core.job import ModelSpec
from potluck.core.keys import derive
from potluck.core.rule import Recalls
from potluck.engine.memories import remembered
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import ExecutionPlan
from potluck.experiment import accountant
from potluck.experiment.crowd import belonging, divided, populated
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.fleet import Devices
from potluck.experiment.schema.settings import Table, Training, dump_all, dump_given
from potluck.federation import Federation
from potluck.jobs import SGD, Adam, Private, Train
from potluck.models import Models
from potluck.rules.guard import guard
from potluck.simulate import Simulation

Memories = Mapping[tuple[int, Hashable], Any]  # by device and slot

# Streams of the run's seed.
_DIVIDE, _FLEET, _ONLINE, _SERVER, _JITTER, _ARRANGE, _ATTACK = 1, 2, 3, 4, 5, 6, 7


@dataclass(frozen=True, eq=False)
class Setting:
    """One run, ready to go: the experiment to the last default and the objects made from it."""

    experiment: Experiment
    federation: Federation
    algorithm: Any
    identity: str  # of everything that decides what a run computes

    def keywords(self, plan: ExecutionPlan) -> dict[str, Any]:
        """What a simulation is told, beside its federation, its algorithm and its folder."""
        e, look = self.experiment, self.experiment.evaluate
        return dict(
            seed=e.seed,
            stop=StopAt(e.stop.rounds, e.stop.seconds, e.stop.device_seconds, e.stop.target),
            evaluate=EvaluateAt(look.rounds, look.seconds, look.panel, look.on, tuple(look.shifts)),
            plan=plan,
            snapshot_every=e.run.snapshot_every,
            identity=self.identity,
        )


def prepare(
    experiment: Experiment,
    algorithm: Any = None,
    federation: Federation | None = None,
    pool: data.Pool | None = None,
) -> Setting:
    """Build everything that can be wrong; a rule or a pool made in Python takes the experiment's place."""
    with error_context(experiment.source):
        if pool is not None:
            experiment = _of_pool(experiment, pool)
        full, rule = settled(experiment, algorithm)
        mark = b"" if algorithm is None else _mark(algorithm)
        if federation is None:
            federation = build_federation(full, pool)
        if federation.memories:
            federation = replace(federation, memories=_recall(rule, federation.memories))
        if full.data.source == "python":  # what no file tells
            mark += data.fingerprint(federation.pool)
        federation.models[ModelSpec(full.model.name, full.model.width, full.model.depth)]
        identity = hashlib.sha256(full.to_toml().encode() + mark).hexdigest()
        setting = Setting(full, federation, rule, identity)
        _check_tiers(full.algorithm, rule, federation.fleet)
        with parameter_context(setting):
            Simulation(federation, rule, **setting.keywords(ExecutionPlan()))  # a trial: it asks the rule
        return setting


@contextmanager
def parameter_context(setting: Setting) -> Iterator[None]:
    """Name the file, and the whole key of a parameter that an algorithm only refuses now."""
    e, name = setting.experiment, setting.experiment.algorithm
    with error_context(e.source), error_context(f"algorithms.{name}", e.algorithms.get(name, {})):
        yield


def _check_tiers(name: str, rule: Any, devices: fleet.Fleet) -> None:
    """Refuse an algorithm that needs users or edges where no device belongs to any."""
    fixes = {"user": "fleet.users, or data.users of partition 'user_devices'", "edge": "fleet.edges"}
    for tier in getattr(rule, "tiers", ()):
        if tier in devices.groups and devices.groups[tier].max() < 0:
            raise ConfigError(
                f"algorithm = {name!r}: needs {tier}s between devices and cloud, and no device belongs to "
                f"one; set {fixes.get(tier, f'fleet.{tier}s')}, or take another algorithm"
            )


def settled(experiment: Experiment, algorithm: Any = None) -> tuple[Experiment, Any]:
    """The experiment as its run's folder tells it, to the last default, and the rule alone."""
    with error_context(experiment.source):
        for name in experiment.algorithms:  # so that a typo shows even if it isn't this one's turn
            experiment.training(name)
            algorithms.check(name, **_parameters(experiment, name))
        if algorithm is not None:
            name, table, rule = type(algorithm).__name__, {}, algorithm
        else:
            name = algorithms.canonical(experiment.algorithm)
            rule, own = _make(experiment, name)
            table = {name: own}
        if experiment.robust is not None:
            rule = guard(rule, experiment.robust.part())
        return experiment.with_values(algorithm=name, algorithms=table, tune=None).resolve(), rule


def build_federation(experiment: Experiment, pool: data.Pool | None = None) -> Federation:
    """Data (those of the pool, if given), who holds them, devices and models of a resolved experiment."""
    d, f, seed = experiment.data, experiment.fleet, experiment.seed
    options = {key: value for key in data.list_options() if (value := getattr(d, key, None)) is not None}
    dtype = {"float32": torch.float32, "float64": torch.float64}[experiment.run.dtype]
    root = None if d.root is None else Path(d.root)
    if pool is None:
        pool = data.load(d.source, root=root, **options)
    if d.validation_from == "users":  # first: a limit is on what is trained on
        pool = data.with_validators(pool, d.validation)
    if d.limit is not None:
        pool = data.limited(pool, d.limit)
    if d.without is not None:
        pool = data.without(pool, d.without)
    if pool.x.is_floating_point():
        pool = replace(pool, x=pool.x.to(dtype))
    if d.server is not None:
        pool = data.reserved(pool, d.server, derive(seed, _SERVER))
        pool = data.stocked(pool, d.server_from or "data", derive(seed, _SERVER), root)
    partition = divided(d, pool, derive(seed, _DIVIDE))
    devices = belonging(build_fleet(f, partition.clients, seed), f, partition.user)
    if f.attack is not None:  # after the data have said who belongs to which edge
        devices = fleet.attacked(devices, derive(seed, _ATTACK), **_said(f.attack))
    inputs = None if pool.x.is_floating_point() else pool.x.dtype
    models = Models(pool.shape, pool.classes, dtype, inputs)
    levels = experiment.evaluate.shifts
    federation = populated(d, pool, partition, devices, models, derive(seed, _ARRANGE), levels)
    return (
        federation
        if f.memories is None
        else replace(federation, memories=_memories(f.memories, len(devices)))
    )


def _memories(place: str, devices: int) -> Memories:
    """What the devices of another run remember; of these, a rule names those that it recalls."""
    try:
        found = remembered(Path(place))
    except (OSError, PotluckError) as error:
        raise ConfigError(f"fleet.memories = {place!r}: no run to take memories from ({error})") from None
    if any(node >= devices for node, _ in found):
        raise ConfigError(f"fleet.memories = {place!r}: a run of more devices than these {devices}")
    return found


def _recall(rule: Any, memories: Memories) -> Memories:
    """Those of another run's memories that mean something to a rule."""
    slots = rule.recalls if isinstance(rule, Recalls) else ()
    return {(node, slot): kept for (node, slot), kept in memories.items() if slot in slots}


def _of_pool(experiment: Experiment, pool: data.Pool) -> Experiment:
    """The experiment without what it says of its source: its file must not promise other data."""
    kept = {
        key: value
        for key, value in dump_given(experiment.data).items()
        if key not in ("root", *data.list_options())
    }
    return experiment.with_values(data={**kept, "source": "python", "path": pool.name})


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
        tier: {name: ends if isinstance(ends, list) else [ends, ends] for name, ends in _said(link).items()}
        for tier, link in f.links.items()
    }
    return fleet.build(
        f.source,
        n,
        derive(seed, _FLEET),
        users=f.users,
        edges=f.edges,
        availability=online[f.availability](),
        tiers={name: _said(tier) for name, tier in f.tiers.items()},
        links=links,
        jitter=None if j is None else fleet.Jitter(derive(seed, _JITTER), j.every, j.rates, j.compute),
        claims=[_said(claim) for claim in f.claims],
        stragglers=None if f.stragglers is None else _said(f.stragglers),
        forget=f.forget or 0.0,
        **f.options(),
    )


def _said(table: Table) -> dict[str, Any]:
    return {name: value for name, value in dump_all(table).items() if value is not None}


def local_training(experiment: Experiment, training: Training) -> Train:
    """What devices do, as the experiment describes it."""
    if training.privacy is not None:
        accountant.check()
    m, lr = experiment.model, training.lr or 0.0
    optim = Adam(lr) if training.optimizer == "adam" else SGD(lr, training.momentum, training.weight_decay)
    return Train(
        ModelSpec(m.name, m.width, m.depth),
        optim=optim,
        batch=training.batch,
        epochs=training.epochs or 1,
        steps=training.steps,
        privacy=None if training.privacy is None else Private(**dump_all(training.privacy)),
    )


def _make(experiment: Experiment, name: str) -> tuple[Any, dict[str, Any]]:
    """A rule, and its table with every default that a file can hold."""
    table = _parameters(experiment, name)
    rule = algorithms.make(name, local_training(experiment, experiment.training(name)), **table)
    train = experiment.algorithms.get(name, {}).get("train")
    return rule, algorithms.complete(name, **table) | ({"train": train} if train else {})


def _parameters(experiment: Experiment, name: str) -> dict[str, Any]:
    return {key: value for key, value in experiment.algorithms.get(name, {}).items() if key != "train"}


def _mark(algorithm: Any) -> bytes:
    try:
        return codec.encode(algorithm)
    except PotluckError:  # made of more than values; its class is all that can be told
        return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}".encode()
