"""One run, ready to go: made once from its experiment, and checked. Nothing here writes."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from potluck import algorithms, data, fleet
from potluck.core import codec
from potluck.core.errors import ConfigError, PotluckError, error_context, require
from potluck.core.job import ModelSpec
from potluck.core.rule import Recalls, Runnable, Tiered
from potluck.engine.acceptance import check
from potluck.engine.judges import place_judge
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import ExecutionPlan, Executor
from potluck.experiment import training_room
from potluck.experiment.build import Memories, build_federation, build_training, make_shift
from potluck.experiment.claimed_run import ClaimedRun
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import SOURCE_KEYS, dump_given
from potluck.federation import Federation
from potluck.layers import (
    FITTED,
    complete_base,
    complete_layers,
    drop_fitted,
    find_weighed,
    require_offered,
    stacked,
)
from potluck.models import Models
from potluck.rules.guard import guard
from potluck.simulate import Simulation


@dataclass(frozen=True, eq=False)
class Setting:
    """One run, ready to go: the experiment to the last default and the objects made from it."""

    experiment: Experiment
    federation: Federation
    models: Models  # the federation's
    algorithm: Runnable
    identity: str  # of everything that decides what a run computes

    @property
    def evaluate(self) -> EvaluateAt:
        e, weighed = self.experiment.evaluate, find_weighed(self.experiment.layers, self.experiment.layer)
        return EvaluateAt(e.rounds, e.seconds, e.panel, e.on, tuple(map(make_shift, e.shifts)), weighed)

    def start(
        self, plan: ExecutionPlan, folder: Path | None = None, on_shrink: Callable[[int], None] | None = None
    ) -> ClaimedRun:
        """The run at its beginning."""
        terms, evaluate = self._terms(plan), self.evaluate
        return ClaimedRun(
            self.federation, self.algorithm, evaluate=evaluate, folder=folder, on_shrink=on_shrink, **terms
        )

    def start_trial(self, plan: ExecutionPlan, executor: Executor | None) -> Simulation:
        """The same without evaluations, to measure how its first tasks are computed."""
        return Simulation(self.federation, self.algorithm, executor=executor, **self._terms(plan))

    def resume(self, plan: ExecutionPlan, folder: Path, on_shrink: Callable[[int], None]) -> ClaimedRun:
        """The run of a folder, where its newest snapshot left it."""
        terms, evaluate = self._terms(plan), self.evaluate
        return ClaimedRun.resume(
            self.federation, self.algorithm, evaluate=evaluate, folder=folder, on_shrink=on_shrink, **terms
        )

    def _terms(self, plan: ExecutionPlan) -> "_Terms":
        e = self.experiment
        return {
            "seed": e.seed,
            "stop": StopAt(e.stop.rounds, e.stop.seconds, e.stop.device_seconds, e.stop.target),
            "plan": plan,
            "snapshot_every": e.run.snapshot_every,
            "identity": self.identity,
        }


class _Terms(TypedDict):
    seed: int
    stop: StopAt
    plan: ExecutionPlan
    snapshot_every: float
    identity: str


def prepare(
    experiment: Experiment,
    algorithm: Runnable | None = None,
    federation: Federation | None = None,
    pool: data.Pool | None = None,
) -> Setting:
    """Build everything that can be wrong; a rule or a pool made in Python takes the experiment's place."""
    with error_context(experiment.source):
        if pool is not None:
            experiment = name_pool(experiment, pool)
        full, rule = resolve_run(experiment, algorithm), make_rule(experiment, algorithm)
        training = experiment.training(full.algorithm) if algorithm is None else None
        if training is not None:
            training_room.check_steps(training)
        mark = b"" if algorithm is None else _mark(algorithm)
        if federation is None:
            federation = build_federation(full, pool)
        rule = place_judge(rule, federation.fleet)
        if federation.memories:
            federation = replace(federation, memories=_recall(rule, federation.memories))
        if full.data.source == "python":  # what no file tells
            mark += data.fingerprint(federation.pool)
        models = federation.models
        if not isinstance(models, Models):
            raise ConfigError(f"federation.models = {models!r}: give potluck.models.Models")
        net = models[ModelSpec(full.model.name, full.model.width, full.model.depth)]
        if training is not None:
            training_room.check_batch(training, net)
        identity = hashlib.sha256(full.without_log().to_toml().encode() + mark).hexdigest()
        setting = Setting(full, federation, models, rule, identity)
        _check_tiers(full, rule, federation.fleet)
        with parameter_context(setting):
            check(federation, rule, setting.evaluate)
        return setting


def resolve_run(experiment: Experiment, algorithm: Runnable | None = None) -> Experiment:
    """The experiment as its run's folder tells it, to the last default; nothing is built."""
    with error_context(experiment.source):
        experiment.check_layers()
        for name in experiment.algorithms:  # so that a typo shows even if it isn't this one's turn
            experiment.training(name)
            algorithms.check(name, **_parameters(experiment, name))
        found: dict[str, codec.Json] = {"tune": None}
        if algorithm is not None:
            name, given, layers = type(algorithm).__name__, {}, _keep_served(experiment)
            table = None
        else:
            name, layers = algorithms.canonical(experiment.algorithm), experiment.layers
            given, rounds = _parameters(experiment, name), experiment.stop.rounds
            table = complete_base(
                name, {each: experiment.layer.get(each, {}) for each in layers}, rounds, given
            )
            if train := experiment.algorithms.get(name, {}).get("train"):
                table["train"] = train
        around: codec.Json = {**complete_layers(layers, experiment.layer, name, given)}
        found["algorithms"] = {} if table is None else {name: table}
        found |= {"algorithm": name, "layers": [*layers], "layer": around}
        return experiment.model_copy(update=found).resolve()


def make_rule(experiment: Experiment, algorithm: Runnable | None = None) -> Runnable:
    """The rule of an experiment, or the one that takes its place, with its updates judged if it says so."""
    with error_context(experiment.source):
        rounds = experiment.stop.rounds
        if algorithm is None:
            name = algorithms.canonical(experiment.algorithm)
            local = build_training(experiment, experiment.training(name))
            require_offered(name, experiment.layers)  # here with those that no rule has, as the file says it
            layers = {each: experiment.layer.get(each, {}) for each in drop_fitted(experiment.layers)}
            algorithm = stacked(name, local, _parameters(experiment, name), rounds, **layers)
        else:
            algorithms.check_made(algorithm)
            algorithm = algorithms.follow_run(algorithm, rounds)
        return algorithm if experiment.robust is None else guard(algorithm, experiment.robust.part())


@contextmanager
def parameter_context(setting: Setting) -> Iterator[None]:
    """Name the file, and the whole key of a parameter that an algorithm only refuses now."""
    e, name = setting.experiment, setting.experiment.algorithm
    with error_context(e.source), error_context(f"algorithms.{name}", e.algorithms.get(name, {})):
        yield


def _check_tiers(full: Experiment, rule: Runnable, devices: fleet.Fleet) -> None:
    """Refuse an algorithm or a layer that needs users or edges where no device belongs to any."""
    fixes = {"user": "fleet.users, or data.users of partition 'user_devices'", "edge": "fleet.edges"}
    for tier in rule.tiers if isinstance(rule, Tiered) else ():
        if tier in devices.groups and devices.groups[tier].max() < 0:
            layered = f"{tier}s" in full.layers
            who = f"layers = {full.layers}" if layered else f"algorithm = {full.algorithm!r}"
            other = "leave the layer out" if layered else "take another algorithm"
            raise ConfigError(
                f"{who}: needs {tier}s between devices and cloud, and no device belongs to "
                f"one; set {fixes.get(tier, f'fleet.{tier}s')}, or {other}"
            )


def _recall(rule: Runnable, memories: Memories) -> Memories:
    """Those of another run's memories that mean something to a rule."""
    slots = rule.recalls if isinstance(rule, Recalls) else ()
    return {(node, slot): kept for (node, slot), kept in memories.items() if slot in slots}


def name_pool(experiment: Experiment, pool: data.Pool) -> Experiment:
    """The experiment without what it says of its source: its file must not promise other data."""
    d = experiment.data
    way = data.PARTITIONS.find(d.partition, "data.partition")
    own = data.list_options(d.source) if d.source in data.SOURCES else []
    kept = {
        key: value
        for key, value in dump_given(d).items()
        if key not in ("root", *SOURCE_KEYS, *own) or key in way.own
    }
    path = f"{pool.name}@{data.fingerprint(pool).hex()[:12]}"  # other rows are another experiment
    return experiment.with_values(data={**kept, "source": "python", "path": path})


def _keep_served(experiment: Experiment) -> list[str]:
    """The layers that a rule made in Python may have: others stand around a name."""
    kept = [name for name in experiment.layers if name in FITTED]
    fix = "stand around an algorithm that is named; make them in Python, by potluck.layers.stacked(...)"
    require(kept == experiment.layers, "layers", experiment.layers, fix)
    return kept


def _parameters(experiment: Experiment, name: str) -> dict[str, object]:
    return {key: value for key, value in experiment.algorithms.get(name, {}).items() if key != "train"}


def _mark(algorithm: Runnable) -> bytes:
    try:
        return codec.encode(algorithm)
    except PotluckError:  # made of more than values; its class is all that can be told
        return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}".encode()
