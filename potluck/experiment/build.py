"""From an experiment to what a simulation needs. Nothing here writes: bad input leaves nothing behind."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from potluck import algorithms, codec, data, fleet
from potluck.contracts import ModelSpec
from potluck.errors import PotluckError
from potluck.experiment.config import Experiment
from potluck.experiment.tables import Training, every
from potluck.jobs import SGD, Adam, Train
from potluck.keys import derive
from potluck.models import Models
from potluck.runtime import EvaluateAt, ExecutionPlan, Simulation, StopAt, World

_DIVIDE, _FLEET, _ONLINE, _SERVER = 1, 2, 3, 4  # streams of the run's seed


@dataclass(frozen=True, eq=False)
class Setting:
    """One run, ready to go: the experiment to the last default and the objects made from it."""

    experiment: Experiment
    world: World
    algorithm: Any
    identity: str  # of everything that decides what a run computes

    def keywords(self, plan: ExecutionPlan) -> dict[str, Any]:
        """What a simulation is told, beside its world, its algorithm and its folder."""
        e = self.experiment
        return dict(
            seed=e.seed,
            stop=StopAt(e.stop.rounds, e.stop.seconds, e.stop.device_seconds, e.stop.target),
            evaluate=EvaluateAt(e.evaluate.rounds, e.evaluate.seconds, e.evaluate.panel),
            plan=plan,
            snapshot_every=e.run.snapshot_every,
            identity=self.identity,
        )


def prepare(experiment: Experiment, algorithm: Any = None, world: World | None = None) -> Setting:
    """Build everything that can be wrong; `algorithm`: a rule made in Python instead of the experiment's."""
    with located(experiment):
        for name in experiment.algorithms:
            _make(experiment, name)  # so that a typo shows even if it isn't this one's turn
        if algorithm is None:
            name = algorithms.canonical(experiment.algorithm)
            rule, table = _make(experiment, name)
            full = experiment.updated(algorithm=name, algorithms={name: table}).resolved()
            mark = b""
        else:
            rule, mark = algorithm, _mark(algorithm)
            full = experiment.updated(algorithm=type(algorithm).__name__, algorithms={}).resolved()
        if world is None:
            world = build_world(full)
        world.models[ModelSpec(full.model.name, full.model.width, full.model.depth)]
        identity = hashlib.sha256(full.to_toml().encode() + mark).hexdigest()
        setting = Setting(full, world, rule, identity)
        Simulation(
            world, rule, **setting.keywords(ExecutionPlan())
        )  # a trial: it checks tiers against the fleet
        return setting


def build_world(experiment: Experiment) -> World:
    """Data, who holds them, devices and models of a resolved experiment."""
    d, f, seed = experiment.data, experiment.fleet, experiment.seed
    options = {key: value for key in ("path", "rows", "dimension", "classes", "normalise")
               if (value := getattr(d, key)) is not None}  # fmt: skip
    dtype = {"float32": torch.float32, "float64": torch.float64}[experiment.run.dtype]
    pool = data.load(d.source, root=None if d.root is None else Path(d.root), limit=d.limit, **options)
    if pool.x.is_floating_point():
        pool = replace(pool, x=pool.x.to(dtype))
    with _under("data"):
        partition = data.divide(
            pool,
            d.partition,
            d.clients,
            derive(seed, _DIVIDE),
            alpha=d.alpha,
            classes_per_client=d.classes_per_client,
            smallest=d.smallest,
            largest=d.largest,
            validation=d.validation,
            test=d.test,
        )
    online: fleet.Availability = fleet.Always()
    if f.availability == "on_off":
        online = fleet.OnOff(derive(seed, _ONLINE), f.period, f.share)
    own = ("source", "users", "edges", "availability", "period", "share")
    devices = fleet.build(
        f.source,
        partition.clients,
        derive(seed, _FLEET),
        users=f.users,
        edges=f.edges,
        availability=online,
        **{key: value for key, value in every(f).items() if key not in own and value is not None},
    )
    inputs = None if pool.x.is_floating_point() else pool.x.dtype
    return World(pool, partition, devices, Models(pool.shape, pool.classes, dtype, inputs))


def local_training(experiment: Experiment, training: Training) -> Train:
    """What devices do, as the experiment describes it."""
    m, lr = experiment.model, training.lr or 0.0
    optim = Adam(lr) if training.optimizer == "adam" else SGD(lr, training.momentum, training.weight_decay)
    return Train(
        ModelSpec(m.name, m.width, m.depth),
        optim=optim,
        batch=training.batch,
        epochs=training.epochs or 1,
        steps=training.steps,
    )


def decide(experiment: Experiment) -> tuple[ExecutionPlan, str]:
    """How a run is to be computed, and why; decided once, since resuming must compute alike."""
    wanted, cores = experiment.run, len(os.sched_getaffinity(0))
    workers = wanted.workers or cores
    if wanted.executor != "auto":
        executor, reason = wanted.executor, "as the experiment says"
    elif workers > 1 and experiment.model.name != "linear":
        executor, reason = "workers", f"{workers} cores, and the model is more than linear"
    else:
        executor, reason = "loop", "one core" if workers == 1 else "a linear model is too small to share out"
    workers = workers if executor == "workers" else 1
    return ExecutionPlan(executor, workers, wanted.chunk, wanted.dtype, str(torch.__version__)), reason


def plan_to_json(plan: ExecutionPlan, reason: str) -> str:
    """The text of plan.json."""
    return json.dumps({**asdict(plan), "reason": reason}, indent=2) + "\n"


def plan_from_json(text: str) -> ExecutionPlan:
    """What `plan_to_json` wrote."""
    content = json.loads(text)
    content.pop("reason", None)
    return ExecutionPlan(**content)


def _make(experiment: Experiment, name: str) -> tuple[Any, dict[str, Any]]:
    """A rule, and its table with every default that a file can hold."""
    table = dict(experiment.algorithms.get(name, {}))
    train = table.pop("train", None)
    local = local_training(experiment, experiment.training(name))
    rule, told = algorithms.make(name, local, **table), algorithms.complete(name, local, **table)
    return rule, {**told, "train": train} if train else told


def _mark(algorithm: Any) -> bytes:
    try:
        return codec.encode(algorithm)
    except PotluckError:  # made of more than values; its class is all that can be told
        return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}".encode()


@contextmanager
def _under(table: str) -> Iterator[None]:
    """Name the table in errors about a key, of those who don't know that they are called from a file."""
    try:
        yield
    except PotluckError as error:
        raise type(error)(re.sub(r"^(?=\w+ = )", f"{table}.", str(error))) from None


@contextmanager
def located(experiment: Experiment) -> Iterator[None]:
    """Name the file in every error."""
    try:
        yield
    except PotluckError as error:
        if str(error).startswith(f"{experiment.source}: "):
            raise
        raise type(error)(f"{experiment.source}: {error}") from None
