"""Who was judged anomalous (`[robust]`), and how that fits who really was, from a run's records.

A run whose devices or data are spoilt says so first of all (`attackers`, else `flippers`). Judgements are
counted, not devices: who is caught in two rounds of three counts twice as found and once as missed. Attackers
that begin later count as such all along.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from potluck.metrics import Record


class Odd(NamedTuple):
    """Devices whose updates were refused at one merge."""

    round: int
    time: float
    group: Any
    nodes: list[int]


def anomalies(run: Any) -> list[Odd]:
    """Who was judged odd when, and by which lane, cohort or aggregator."""
    return [
        Odd(r["round"], r["time"], r.get("group"), r["value"])
        for r in run.lines
        if r["metric"] == "anomalous"
    ]


def culprits(records: Iterable[Record]) -> set[int] | None:
    """Devices that are known to attack or, if that isn't known, to flip labels; None: nothing is known."""
    told = {r["metric"]: set(r["value"]) for r in records if r["metric"] in ("attackers", "flippers")}
    return told.get("attackers", told.get("flippers"))


def precision(run: Any) -> float | None:
    """The share of refused updates that came from culprits; None if none was refused or none is known."""
    truth, refused = culprits(run.lines), [node for at in anomalies(run) for node in at.nodes]
    return None if truth is None or not refused else sum(node in truth for node in refused) / len(refused)


def recall(run: Any) -> float | None:
    """The share of culprits' updates that were refused, of those that were judged at all."""
    truth = culprits(run.lines) or set()
    judged = [node for r in run.lines if r["metric"] == "guarded" for node in r["value"]["judged"]]
    due = sum(node in truth for node in judged)
    found = sum(node in truth for at in anomalies(run) for node in at.nodes)
    return found / due if due else None
