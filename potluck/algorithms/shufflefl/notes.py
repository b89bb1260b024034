"""How ShuffleFL's notes read in a report."""

from potluck.core.notes import Notes

NOTES = Notes({
    "rows_moved": "rows that moved between its devices in a round",
    "planning_seconds": "seconds that planning took",
    "computing_seconds": "seconds that a device of it computed, in the mean",
    "communication_seconds": "seconds that a device of it sent and received, in the mean",
    "waiting_seconds": "seconds that a device of it waited for the others, in the mean",
    "limit": "seconds that the median user needs, within which all train",
    "trained": "share of its training that it had time for",
    "objective_before": "cost of a round before rows move",
    "objective_after": "cost of a round after rows have moved",
    "alpha": "seconds that balance of labels is worth",
    "beta": "time expected, over that of its last round",
})  # fmt: skip
