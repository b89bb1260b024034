"""How ShuffleFL's notes read in a report."""

from collections.abc import Sequence

from potluck.core.notes import Crowd, Notes
from potluck.core.records import Record
from potluck.core.units import duration, plural
from potluck.metrics import noted

AT_ONCE = 0.05  # seconds, which a tenth doesn't show


def tell_moves(records: Sequence[Record]) -> str:
    """How many rows moved among how many users' devices, and what planning took."""
    plans, planning = noted(records, "rows_moved", int), sum(noted(records, "planning_seconds", float))
    if not plans:
        return ""
    users = len({r.get("group") for r in records if r["metric"] == "rows_moved"})
    told = f"{plural(sum(plans), 'row')} moved among the devices of {plural(users, 'user')}"
    used = f"{sum(n > 0 for n in plans):,} of {plural(len(plans), 'plan')}"
    took = f"in {duration(planning)}" if planning >= AT_ONCE else "at once"
    return f"{told}, in {used}, made {took}."


NOTES = Notes({
    "rows_moved": "rows that moved between its devices in a round",
    "planning_seconds": "seconds that planning took",
    "computing_seconds": "seconds that its devices computed (mean)",
    "communication_seconds": "seconds that its devices sent and received (mean)",
    "waiting_seconds": "seconds that its devices waited for each other (mean)",
    "limit": "seconds that the median user needs, within which all train",
    "trained": "share of its training that it had time for",
    "objective_before": "cost of a round before rows move (seconds)",
    "objective_after": "cost of a round after rows have moved (seconds)",
    "alpha": "seconds that balance of labels is worth",
    "beta": "time expected, over that of its last round",
}, tell=tell_moves, crowd=Crowd(
    "users", "For users with several devices of unequal speed, whose rows are lopsided."
))  # fmt: skip
