"""What the studies of Maverick have in common: the crowd, the arms, and what is told of them.

Fashion-MNIST, 50 clients of about 200 images below five edges, LeNet-5. Devices are 5 to 20 ms from their
edge, edges 75 to 150 ms from the cloud. Maverick and FedEdge are as published, but for what an arm says.
Every method is looked at under the same three views: each device's own model after its last local training,
its edge's, and the cloud's, all on the device's own test rows. Means are over devices that don't attack.

The paper trains at 0.01, on 1,200 images a device; on 200 hardly anything is learnt so in 60 rounds. Where
rates aren't tuned it is 0.1, where FedEdge's validation rows are within two points of their best (at 0.3).
Rounds to a target are the first looks that reach it; there is a look every sixth round (where runs have 40
rounds, every fourth).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from _tuning import try_rates

from potluck import metrics
from potluck.algorithms.fededge import PUBLISHED as FEDEDGE
from potluck.algorithms.maverick import PUBLISHED as MAVERICK
from potluck.experiment.runs import Run
from potluck.experiment.study import TRAFFIC, Arm, Measure, Study, overlay
from potluck.report import anomalies

TABLE: dict[str, Any] = {
    "data": {"source": "fashion-mnist", "limit": 10_000, "clients": 50, "alpha": 0.5, "smallest": 20},
    "model": {"name": "lenet5"},
    "fleet": {
        "source": "mobile",
        "edges": 5,
        "links": {"edge": {"latency": [0.005, 0.02]}, "cloud": {"latency": [0.075, 0.15]}},
        "tiers": {"edge": {"latency": 0.1}},
    },
    "train": {"batch": 64, "epochs": 1, "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
    "stop": {"rounds": 60},
    "evaluate": {"rounds": 6},
    "run": {"executor": "stacked", "graphs": False},
}
QUICK: dict[str, Any] = {
    "data": {"source": "digits", "clients": 10, "alpha": 0.5},
    "model": {"name": "mlp", "width": 0.1},
    "fleet": {"source": "uniform", "edges": 2},
    "train": {"batch": 16, "epochs": 1, "lr": 0.1},
    "stop": {"rounds": 3},
    "evaluate": {"rounds": 3},
    "run": {"executor": "stacked"},
}
POISON: dict[str, Any] = {"fleet": {"attack": {"kind": "fang", "per_edge": 3}}}  # of ten
QUICK_POISON: dict[str, Any] = {"fleet": {"attack": {"kind": "fang", "per_edge": 1}}}
JUDGED: dict[str, Any] = {"robust": {"kind": "adaptive_krum"}}
TRUSTED: dict[str, Any] = {"robust": {"kind": "adaptive_krum", "attackers": 0}}  # everybody is let through
SHORT: dict[str, Any] = {"stop": {"rounds": 40}, "evaluate": {"rounds": 4}}
ROUNDS = 2  # local rounds between two global models, of every edge


def maverick(name: str = "Maverick", tuned_as: str | None = None, **more: Any) -> Arm:
    return Arm(name, "maverick", {**MAVERICK, "local_rounds": ROUNDS, **more}, tuned_as=tuned_as)


def fededge(name: str = "FedEdge", tuned_as: str | None = None, **more: Any) -> Arm:
    return Arm(name, "fededge", {**FEDEDGE, "local_rounds": ROUNDS, **more}, tuned_as=tuned_as)


def columns(**more: Any) -> list[Arm]:
    """The paper's six; `more` is of all that have edges which judge."""
    return [
        fededge(**more),
        maverick(**more),
        Arm("HybridFL", "hierfl"),  # the paper means the plain hierarchy by this name
        fededge("FedProx in FedEdge", inner={"kind": "fedprox", "mu": 0.01}, **more),
        fededge("FedPVR in FedEdge", inner={"kind": "fedpvr"}, **more),
        fededge("MOON in FedEdge", inner={"kind": "moon"}, **more),
    ]


def view(name: str, metric: str = "accuracy_mean") -> Callable[[Run], float | None]:
    """A view's last mean accuracy on devices' own test rows."""

    def found(run: Run) -> float | None:
        points = metrics.series(run.lines, metric, name)
        return points[-1].value if points else None

    return found


def whole(run: Run) -> float | None:
    """The cloud's model on the whole test set."""
    return view("global", "global_accuracy")(run)


def rounds_to(name: str, target: float) -> Callable[[Run], float | None]:
    """The round in which a view was first seen to reach a target."""

    def found(run: Run) -> float | None:
        points = metrics.series(run.lines, "accuracy_mean", name)
        return next((float(p.round) for p in points if p.value >= target), None)

    return found


PERSONAL = Measure("personal", view("personal"), "share", "more", paired=True)
EDGE = Measure("edge", view("edge"), "share", "more", paired=True)
GLOBAL = Measure("global", view("global"), "share", "more", paired=True)
WHOLE = Measure("global, whole test set", whole, "share", "more")
VIEWS = (PERSONAL, EDGE, GLOBAL, WHOLE)
PRECISION = Measure("precision", anomalies.measure_precision, "share", "more")
RECALL = Measure("recall", anomalies.measure_recall, "share", "more")
SOON = Measure("rounds to 70 % (edge)", rounds_to("edge", 0.7), "number", "less")
EFFORT = Measure("device-seconds", "device_seconds", "seconds", "less")


def among(
    study: Study, title: str, question: str, quick: Mapping[str, Any], paper: Mapping[str, Any]
) -> Study:
    """A study's arms among other devices; who is odd isn't told, where it isn't judged or nobody is."""
    return replace(
        study,
        title=title,
        question=question,
        measures=(*VIEWS, SOON, EFFORT, TRAFFIC),
        quick=replace(study.quick, experiment=overlay(QUICK, quick)),
        paper=replace(study.paper, experiment=overlay(TABLE, paper)),
    )


def with_data(study: Study, title: str, question: str, data: Mapping[str, Any]) -> Study:
    """A study on other data."""
    return replace(
        study,
        title=title,
        question=question,
        quick=replace(study.quick, experiment=overlay(study.quick.experiment, {"data": data})),
        paper=replace(study.paper, experiment=overlay(study.paper.experiment, {"data": data})),
    )


def full(study: Study, title: str, question: str) -> Study:
    """A study at the paper's full size: all 60,000 images, 1,200 a device, rates from the paper's upwards."""
    size = {"data": {"limit": 60_000}, "train": {"lr": 0.01}}
    paper = replace(
        study.paper,
        experiment=overlay(study.paper.experiment, size),
        tune=try_rates([0.01, 0.03, 0.1], 0.5),
    )
    return replace(study, title=title, question=question, paper=paper)
