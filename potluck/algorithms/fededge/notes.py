"""How FedEdge's notes read in a report; what edges of all kinds note is known there."""

from collections.abc import Sequence

from potluck.core.notes import Notes
from potluck.core.records import Record
from potluck.core.units import plural
from potluck.metrics import noted


def tell_edges(records: Sequence[Record]) -> str:
    """Rounds that edges held instead of waiting, and how many updates they left out."""
    held = noted(records, "local_rounds", int)  # between two answers of an edge
    if not held:
        return ""
    more = sum(held) - len(held)
    answers = plural(len(held), "answer")
    told = f"Edges held {plural(sum(held), 'round')} with their devices for {answers} to the cloud, "
    told += f"{more:,} more than if they had waited for its models" if more else "one for each"
    odd = sum(len(nodes) for nodes in noted(records, "anomalous", list))
    return f"{told}; {plural(odd, 'update')} left out as odd."


VIEWS = {
    "personal": "the device's own model",
    "edge": "that of its edge",
    "global": "the cloud's for all",
}
NOTES = Notes(tell=tell_edges, views=VIEWS)
