"""What is refused: runs that a federation can't carry."""

from typing import Any

from potluck.core.errors import ConfigError, require
from potluck.engine.schedule import EvaluateAt
from potluck.federation import Federation


def check_run(federation: Federation, algorithm: Any, evaluate: EvaluateAt) -> None:
    """Refuse a run that this federation can't carry; a rule is asked too, if it has a say."""
    devices, clients = federation.devices, federation.partition.clients
    if clients != devices:
        raise ConfigError(f"fleet of {devices} devices for {clients} clients: give as many")
    phases = [federation.shifts, *(change.shifts for change in federation.changes)]
    for share in evaluate.shifts if evaluate.on == "test" else ():
        fix = f"no rows are laid out for {share:g}; give Federation.shifts, by data.arranged(..., levels=)"
        require(all(share in known for known in phases), "evaluate.shifts", list(evaluate.shifts), fix)
    asked: list[Any] = [algorithm, getattr(algorithm, "rule", None)]  # perhaps it has its loop already
    for rule in asked:
        if hasattr(rule, "fits"):
            rule.fits(federation)
