"""Local rounds while the cloud is silent, where each device knows one class (Figure 5).

`potluck study maverick_drift --scale paper` takes Fashion-MNIST and 36 runs of 80 rounds at a rate of 0.01,
the paper's: a higher one throws such a model from class to class. What is told is the mean over the looks of
the second half of a run.
"""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from _maverick import QUICK, TABLE
from maverick_rounds import STUDY as EVEN

from potluck.experiment.runs import Run
from potluck.experiment.study import Measure, overlay

ONE_CLASS = {
    "data": {"partition": "shards", "classes_per_client": 1, "clients": 10},
    "robust": {"kind": "adaptive_krum", "attackers": 0},  # two devices can't judge each other
}

CALM = {
    "data": {"limit": 2_000},
    "train": {"lr": 0.01},
    "stop": {"rounds": 80},
}


def late(view: str, *, last_edge: bool) -> Callable[[Run], float | None]:
    """A view's mean accuracy in the second half of a run, below the last edge or below the others."""

    def found(run: Run) -> float | None:
        devices = run.devices
        if devices is None:
            return None
        edges = dict(zip(devices["nodes"], devices["edge"], strict=True))
        last = max(edges.values())
        half = run.summary["rounds"] / 2
        seen = [
            r["value"]
            for r in run.lines
            if r["metric"] == "accuracy" and r.get("view") == view and "node" in r and r["round"] > half
            if (edges[r["node"]] == last) is last_edge
        ]
        return fmean(seen) if seen else None

    return found


STUDY = replace(
    EVEN,
    title="Maverick: uneven local rounds where devices know one class each",
    question="Five edges with two devices each, every device with a class of its own. The last edge holds "
    "more local rounds: does it drag the cloud's model to its classes, and does Maverick resist?",
    measures=(
        Measure("global, last edge's devices", late("global", last_edge=True), "share", "more", paired=True),
        Measure("global, the others", late("global", last_edge=False), "share", "more", paired=True),
        Measure("edge, last edge's devices", late("edge", last_edge=True), "share", "more"),
        Measure("edge, the others", late("edge", last_edge=False), "share", "more"),
    ),
    quick=replace(EVEN.quick, experiment=overlay(QUICK, {"fleet": {"edges": 5}}, ONE_CLASS)),
    paper=replace(
        EVEN.paper,
        experiment=overlay(TABLE, ONE_CLASS, CALM),
    ),
)
