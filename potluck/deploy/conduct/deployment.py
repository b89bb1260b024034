"""From an experiment and a roster to a run's terms: the file that the simulator runs, on devices that are.

[data] and [fleet] describe a world that a simulator makes up; here it is given, and they are set aside. So is
[log], which follows simulated runs only.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from potluck.core.codec import Limits
from potluck.core.errors import ConfigError, error_context, require
from potluck.core.job import ModelSpec
from potluck.core.rule import Algorithm, Fits, Rule, Tiered
from potluck.deploy import parcels
from potluck.deploy.conduct.terms import Rows, Terms
from potluck.deploy.members.roster import TYPES, Facts, Roster
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.experiment.prepare import make_rule, resolve_run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.fleet import Devices
from potluck.experiment.schema.settings import Data, dump_all
from potluck.layers import FITTED
from potluck.models import Models
from potluck.rules import Rounds, as_algorithm


@dataclass(frozen=True, eq=False)
class Deployment:
    """One run, ready to go."""

    experiment: Experiment
    roster: Roster
    terms: Terms
    models: Models
    identity: str  # of everything that decides what a run computes
    start_with: int
    patience: float
    timeout: float
    set_aside: tuple[str, ...]  # tables of the experiment that mean nothing here


def settle(experiment: Experiment, roster: Roster, server: Mapping[str, int]) -> Deployment:
    """Build everything that can be wrong. `server`: the server's own rows, by part."""
    with error_context(experiment.source):
        full, rule = resolve_run(experiment), make_rule(experiment)
        _refuse(full, rule)
        floats = "float32" if roster.tokens else roster.federation.dtype
        if full.run.dtype != floats:
            raise ConfigError(f"run.dtype = {full.run.dtype!r}: the federation's is {floats!r}; write that")
        inner = rule.rule if isinstance(rule, Rounds) else rule
        with error_context(f"algorithms.{full.algorithm}", full.algorithms.get(full.algorithm, {})):
            if isinstance(inner, Fits):
                inner.fits(Facts(roster, server.get("train", 0)))
        assert isinstance(rule, Rule | Algorithm)
        models = make_models(roster)
        models[ModelSpec(full.model.name, full.model.width, full.model.depth)]
        common = roster.federation
        d, e, s = full.deploy, full.evaluate, full.stop
        terms = Terms(
            as_algorithm(rule),
            models,
            Rows(tuple(common.shape), common.classes, TYPES[common.dtype]),
            roster.size,
            full.seed,
            StopAt(s.rounds, s.seconds, s.device_seconds, s.target),
            EvaluateAt(e.rounds, e.seconds, e.panel, e.on),
            Limits(d.largest, parcels.BODY.tensors, parcels.BODY.depth, parcels.BODY.items),
            roster.number_users(),
            server,
        )
        given = experiment.model_fields_set
        aside = tuple(table for table in ("data", "fleet", "log") if table in given)
        start_with = len(roster.devices) if d.start_with is None else d.start_with
        if not 1 <= start_with <= roster.size:
            most = f"the federation has {roster.size} devices"
            raise ConfigError(f"deploy.start_with = {start_with}: {most}; give 1 to {roster.size}")
        identity = _identify(full, roster)
        return Deployment(full, roster, terms, models, identity, start_with, d.patience, d.timeout, aside)


def make_models(roster: Roster) -> Models:
    """The models of a federation, the same on every machine."""
    dtype = torch.float32 if roster.tokens else TYPES[roster.federation.dtype]
    shape, classes = tuple(roster.federation.shape), roster.federation.classes
    return Models(shape, classes, dtype, torch.int64 if roster.tokens else None)


def _refuse(experiment: Experiment, rule: object) -> None:
    """What isn't there yet on real devices."""
    name = experiment.algorithm
    fitted = [each for each in experiment.layers if each in FITTED]
    fix = f"{' and '.join(fitted)} can't be deployed yet, since devices score each by itself; leave it out"
    require(not fitted, "layers", experiment.layers, fix)
    if isinstance(rule, Tiered) and rule.tiers:
        raise ConfigError(
            f"algorithm = {name!r}: needs {', '.join(rule.tiers)}s between devices and server, which can't "
            "be deployed yet; take a flat one, or simulate it with `potluck run`"
        )
    for key, training in (
        ("train", experiment.train),
        (f"algorithms.{name}.train", experiment.training(name)),
    ):
        if training.privacy is not None:
            raise ConfigError(
                f"{key}.privacy = {dict(training.privacy)!r}: its noise is drawn from a seed that the server "
                "knows, so it would protect nobody here; leave it out"
            )
    if experiment.evaluate.shifts:
        raise ConfigError(
            f"evaluate.shifts = {dump_all(experiment.evaluate)['shifts']}: needs rows that no device has, "
            "of a global test set; leave it out"
        )


def _identify(experiment: Experiment, roster: Roster) -> str:
    """By what decides a run's results; names of devices, and who they are, don't."""
    c = roster.federation
    common = (c.shape, c.classes, c.dtype, c.mean, c.std, roster.size)
    without = experiment.without_log().model_copy(update={"data": Data(), "fleet": Devices()})
    return hashlib.sha256(f"{without.to_toml()}{common}".encode()).hexdigest()
