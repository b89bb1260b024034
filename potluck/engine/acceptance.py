"""Which runs are refused before they begin: those that a federation can't carry."""

from potluck.core.errors import ConfigError, require
from potluck.core.rule import Doubts, Fits, Rule, Runnable, Tiered
from potluck.data import read_shift
from potluck.engine.point import find_relays, find_topology, place_algorithms
from potluck.engine.schedule import EvaluateAt
from potluck.federation import Federation
from potluck.rules import Rounds
from potluck.rules.as_one import require_foldable
from potluck.rules.wrap import find_training, unwrap


def check(federation: Federation, algorithm: Runnable, evaluate: EvaluateAt) -> None:
    """Refuse a run that this federation can't carry; a rule is asked too, if it has a say."""
    devices, clients = federation.devices, federation.partition.clients
    if clients != devices:
        raise ConfigError(f"fleet of {devices} devices for {clients} clients: give as many")
    phases = [federation.shifts, *(change.shifts for change in federation.changes)]
    for shift in map(read_shift, evaluate.shifts):
        fix = f"no rows are laid out for {shift}; give Federation.shifts, by data.arrange(..., levels=)"
        require(all(shift in known for known in phases), "evaluate.shifts", list(evaluate.shifts), fix)
    if evaluate.weighed:
        known = any(len(federation.partition.rows(client, "validation")) for client in range(clients))
        fix = "no device has validation rows to fit on; raise data.validation, such as to 0.1"
        require(known, "layers", ["prior"], fix)
    rule = algorithm.rule if isinstance(algorithm, Rounds) else algorithm  # perhaps it has its loop already
    if isinstance(rule, Fits):
        rule.fits(federation)
    place_algorithms(algorithm, find_topology(algorithm, federation.fleet))
    _check_passing(federation, algorithm)


def find_doubt(federation: Federation, algorithm: Runnable) -> str | None:
    """What the rule at the top says of itself, if it can't do there what it is for."""
    topology = find_topology(algorithm, federation.fleet)
    return ask_doubt(algorithm, len(topology.children(topology.root)))


def ask_doubt(algorithm: Runnable, members: int) -> str | None:
    """The same, with so many right below the cloud."""
    rule = algorithm.at("cloud") if isinstance(algorithm, Tiered) else algorithm
    rule = rule.rule if isinstance(rule, Rounds) else rule
    rule = unwrap(rule) if isinstance(rule, Rule) else rule
    return rule.find_doubt(members) if isinstance(rule, Doubts) else None


def _check_passing(federation: Federation, algorithm: Runnable) -> None:
    """Refuse training above who can't pass it on, or whose members' answers can't become one."""
    if not isinstance(algorithm, Tiered):
        return
    tiers = ("cloud", *algorithm.tiers)
    for tier, rule in find_relays(algorithm).items():
        for upper in tiers[: tiers.index(tier)]:
            for job in find_training(algorithm.at(upper)):
                rule.check_job(job)
                form = federation.models[job.model].init(0)
                require_foldable(job, form, f"{tier}s")
