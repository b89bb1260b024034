"""What is refused: runs that a federation can't carry, and results that must not reach an aggregate."""

from potluck.core.errors import ConfigError, require
from potluck.core.job import Result
from potluck.core.rule import Fits, Runnable
from potluck.core.trees import Tree, finite, same_form
from potluck.engine.point import find_topology, place_algorithms
from potluck.engine.schedule import EvaluateAt
from potluck.federation import Federation
from potluck.rules import Rounds


def check(federation: Federation, algorithm: Runnable, evaluate: EvaluateAt) -> None:
    """Refuse a run that this federation can't carry; a rule is asked too, if it has a say."""
    devices, clients = federation.devices, federation.partition.clients
    if clients != devices:
        raise ConfigError(f"fleet of {devices} devices for {clients} clients: give as many")
    phases = [federation.shifts, *(change.shifts for change in federation.changes)]
    for share in evaluate.shifts if evaluate.on == "test" else ():
        fix = f"no rows are laid out for {share:g}; give Federation.shifts, by data.arrange(..., levels=)"
        require(all(share in known for known in phases), "evaluate.shifts", list(evaluate.shifts), fix)
    rule = algorithm.rule if isinstance(algorithm, Rounds) else algorithm  # perhaps it has its loop already
    if isinstance(rule, Fits):
        rule.fits(federation)
    place_algorithms(algorithm, find_topology(algorithm, federation.fleet))


def find_problem(result: Result, sends: Tree, *, trusted: bool) -> str | None:
    """Why a result must not reach an aggregate; `sends`: the form that its job promised.

    `trusted`: it comes straight from one of our own executors, whose word is taken that its numbers are
    finite. Whatever came over a wire, or was touched since, isn't.
    """
    if result.body is not None or sends:  # not by its truth: a body may be anything
        if sends is not None and not same_form(result.body, sends):
            return "keys, shapes or types differ from what the job promised"
        if not (trusted and result.finite) and not finite(result.body):
            return "NaN or infinite numbers"
    if not (0 <= result.weight < float("inf")):
        return f"weight {result.weight}"
    return None
