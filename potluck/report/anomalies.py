"""Who was judged anomalous (`[robust]`), and how that fits who really was, from a run's records.

A run whose devices or data are spoilt says so first of all (`attackers`, else `flippers`). Judgements are
counted, not devices: who is caught in two rounds of three counts twice as found and once as missed. Attackers
that begin later count as such all along.
"""

from collections.abc import Iterable
from typing import NamedTuple

import plotly.graph_objects as go

from potluck.core.records import Group, Record
from potluck.experiment import Run
from potluck.report.canvas import make_figure, pick_shade, pick_time_unit

KINDS = {
    "refused, rightly": (pick_shade(0), "circle"),
    "refused, wrongly": (pick_shade(1), "x"),
    "missed": (pick_shade(4), "circle-open"),
    "refused": (pick_shade(2), "circle"),
}


class Anomaly(NamedTuple):
    """Devices whose updates were refused at one merge."""

    round: int
    time: float
    group: Group | None
    nodes: list[int]


def read_anomalies(run: Run) -> list[Anomaly]:
    """Who was judged odd when, and by which lane, cohort or aggregator."""
    return [
        Anomaly(r["round"], r["time"], r.get("group"), r["value"])
        for r in run.lines
        if r["metric"] == "anomalous"
    ]


def find_culprits(records: Iterable[Record]) -> set[int] | None:
    """Devices that are known to attack or, if that isn't known, to flip labels; None: nothing is known."""
    known = {r["metric"]: set(r["value"]) for r in records if r["metric"] in ("attackers", "flippers")}
    return known.get("attackers", known.get("flippers"))


def know_culprits(run: Run) -> set[int] | None:
    """The same of a run: nobody, where devices are simulated and none was told to lie."""
    found, e = find_culprits(run.lines), run.experiment
    honest = not run.deployed and e.fleet.attack is None and e.data.flip is None
    return set() if found is None and honest else found


def measure_precision(run: Run) -> float | None:
    """The share of refused updates that came from culprits; None if none was refused or none is known."""
    truth, refused = find_culprits(run.lines), [node for at in read_anomalies(run) for node in at.nodes]
    return None if truth is None or not refused else sum(node in truth for node in refused) / len(refused)


def measure_recall(run: Run) -> float | None:
    """The share of culprits' updates that were refused, of those that were judged at all."""
    truth = find_culprits(run.lines) or set()
    judged = [node for r in run.lines if r["metric"] == "guarded" for node in r["value"]["judged"]]
    due = sum(node in truth for node in judged)
    found = sum(node in truth for at in read_anomalies(run) for node in at.nodes)
    return found / due if due else None


def draw_judgements(run: Run) -> go.Figure | None:
    """Updates that were refused and, of known culprits, those that weren't; None if none were judged."""
    truth, odd = know_culprits(run), read_anomalies(run)
    judged = [r for r in run.lines if r["metric"] == "guarded"]
    if not odd and not judged:
        return None
    size, unit = pick_time_unit(run.summary["virtual_seconds"])
    points: dict[str, list[tuple[float, int]]] = {kind: [] for kind in KINDS}
    for at in odd:
        for node in at.nodes:
            kind = "refused" if truth is None else f"refused, {'rightly' if node in truth else 'wrongly'}"
            points[kind].append((at.time, node))
    caught = {(at.time, at.group, node) for at in odd for node in at.nodes}
    for r in judged:
        for node in r["value"].get("judged", ()):
            if node in (truth or ()) and (r["time"], r.get("group"), node) not in caught:
                points["missed"].append((r["time"], node))
    figure = make_figure(f"virtual time ({unit})", "device")
    for kind, (shade, symbol) in KINDS.items():
        if points[kind]:
            figure.add_scatter(
                x=[time / size for time, _ in points[kind]],
                y=[node for _, node in points[kind]],
                name=f"{kind} ({len(points[kind])})",
                mode="markers",
                marker={"color": shade, "symbol": symbol, "size": 8},
                hovertemplate="device %{y} at %{x:.3g}<extra>" + kind + "</extra>",
            )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(
        range=[0, 1.02 * max((t for each in points.values() for t, _ in each), default=0) / size]
    )
    return figure if figure.data else None
