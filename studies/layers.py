"""Crowds that are unequal in two ways: each system alone, and both as layers around FedAvg.

`potluck study layers --scale paper` takes UCI HAR, `layers_sizes` MNIST with its writers, `layers_edges`
Fashion-MNIST: 20 runs each, 60 in all, trials counted.

The design, written down before the first run:

- Three crowds. *Users and groups*: 21 people of UCI HAR, each with two to five devices whose activities
  differ by Dirichlet(0.1); half of the people name the activities otherwise. *Sizes and groups*: MNIST's
  writers, cut into devices of about 28 rows, whose memory differs ten times: many of them can't hold what
  training the whole perceptron takes, so they compute longer; half of them see digits upside down. *Edges
  and groups*: Fashion-MNIST by Dirichlet(0.3) among 40 devices below 20 edges, near to their edge (5 to 20
  ms) and far from the cloud (0.4 to 0.8 s); half of the edges name the garments otherwise. Nobody is told
  of groups. Perceptrons of 50 hidden units, so that runs take seconds.
- Arms: FedAvg; the system for either inequality, in Potluck's mode (ShuffleFL, HeteroFL or FedEdge; Auxo);
  and the stack of both layers. Users, edges and devices a round are such that as many devices train in all
  arms: nearly all of UCI HAR's and of Fashion-MNIST's, 30 of MNIST's. Auxo may have two cohorts. Gateways
  plan moves by `fill`, which costs the computer least, and edges train one round between two models of the
  cloud, alone and in the stack; all else is at its default (so users are capped but below cohorts).
- Tuned alike: learning rates 0.05 and 0.2, each once, with seed 11, for half as long, judged on validation
  rows. Three seeds. Runs end at the same virtual second.
- What counts: devices' mean accuracy on their own test rows at that second, of the view that a system is
  used by; below edges that go on that is the edge's model, and of others their only one. It is the
  mean of the last three looks, since accuracy jumps. The mean over all looks says who is there first.
- Expected: the stack is ahead of FedAvg and of either system alone by three points or more in two crowds
  of three. Where it isn't, the page says so.
"""

from dataclasses import replace
from statistics import fmean
from typing import Any

from _tuning import try_rates

from potluck import metrics
from potluck.experiment.runs import Run
from potluck.experiment.study import TRAFFIC, Arm, Measure, Results, Scale, Study, overlay
from potluck.report import cohorts
from potluck.report.columns import tell_points
from potluck.report.reproduction import make_markdown_table, make_tables

STACK = "stack"
LAST = 3  # looks
AHEAD = 0.03
ONCE: dict[str, Any] = {"cohorts": 2}


def read_curve(run: Run) -> list[float]:
    """The accuracy of what devices use, at every look."""
    view = "edge" if metrics.series(run.lines, "accuracy_mean", "edge") else metrics.headline(run.lines)
    return [point.value for point in metrics.series(run.lines, "accuracy_mean", view)]


def measure_end(run: Run) -> float | None:
    found = read_curve(run)[-LAST:]
    return fmean(found) if found else None


def measure_mean(run: Run) -> float | None:
    found = read_curve(run)
    return fmean(found) if found else None


def measure_agreement(run: Run) -> float | None:
    fits = cohorts.measure_final_agreement(run, seen=False)
    return None if fits is None else fits.rand


END = Measure("accuracy", measure_end, "share", "more", paired=True)
MEASURES = (
    END,
    Measure("mean over the run", measure_mean, "share", "more"),
    Measure("cohorts", cohorts.count_cohorts),
    Measure("adjusted Rand index", measure_agreement, "number", "more"),
    Measure("device-seconds", "device_seconds", "seconds", "less"),
    TRAFFIC,
)


def page(results: Results) -> str:
    """All measures, then how far the stack is ahead of each."""
    ours = results.values(END, STACK, "")
    others = [arm.name for arm in results.plan.arms if arm.name != STACK]
    apart = [metrics.paired_difference(ours, results.values(END, arm, "")) for arm in others]
    table = make_markdown_table(["", "the stack less it"], [others, [tell_points(each) for each in apart]])
    means = [each.mean for each in apart if each.mean is not None]
    said = "is" if means and min(means) >= AHEAD else "isn't"
    return f"{make_tables(results)}\n\n{table}\n\nThe stack {said} ahead of all others by 3 points or more."


def stack(clients: int, other: str, settings: dict[str, Any]) -> Arm:
    """Cohorts and another layer around FedAvg."""
    tables: dict[str, Any] = {"cohorts": {**ONCE, "clients": clients}, other: settings}
    return Arm(STACK, "fedavg", changes={"layers": [other, "cohorts"], "layer": tables})


def auxo(clients: int) -> Arm:
    return Arm("Auxo", "auxo", {**ONCE, "clients": clients})


def fedavg(clients: int) -> Arm:
    return Arm("FedAvg", "fedavg", {"clients": clients})


NAMED: dict[str, Any] = {"kind": "permutation", "count": 2}
SMALL: dict[str, Any] = {"name": "mlp", "width": 0.25}
TUNE = try_rates([0.05, 0.2], 0.5, seed=11)
HAR: dict[str, Any] = {
    "data": {
        "source": "har",
        "partition": "user_devices",  # some 71 devices
        "devices_per_user": [2, 5],
        "alpha": 0.1,
        "smallest": 10,
        "groups": {**NAMED, "by": "user"},
    },
    "model": SMALL,
    "fleet": {"source": "mobile"},
    "train": {"batch": 16, "epochs": 1},
    "stop": {"seconds": 480},
    "evaluate": {"seconds": 30},
    "run": {"executor": "loop"},
}
WRITERS: dict[str, Any] = {
    "data": {
        "source": "mnist",
        "partition": "split_users",
        "rows_per_client": 28,
        "groups": {"kind": "rotation", "count": 2},
    },
    "model": SMALL,
    "fleet": {"source": "mobile", "memory": [1e5, 1e6]},  # bytes; the whole model's training takes 0.5 MB
    "train": {"batch": 10, "epochs": 1},
    "stop": {"seconds": 192},
    "evaluate": {"seconds": 12, "panel": 100},
    "run": {"executor": "loop"},
}
FASHION: dict[str, Any] = {
    "data": {
        "source": "fashion-mnist",
        "limit": 2_000,
        "clients": 40,
        "alpha": 0.3,
        "smallest": 15,
        "groups": {**NAMED, "by": "edge"},
    },
    "model": SMALL,
    "fleet": {
        "source": "mobile",
        "link_spread": 20.0,
        "edges": 20,
        "links": {"edge": {"latency": [0.005, 0.02]}, "cloud": {"latency": [0.4, 0.8]}},
    },
    "train": {"batch": 25, "epochs": 1},
    "stop": {"seconds": 120},
    "evaluate": {"seconds": 8},
    "run": {"executor": "loop"},
}
QUICK: dict[str, Any] = {
    "data": {
        "source": "digits",
        "limit": 500,
        "partition": "user_devices",
        "users": 6,
        "devices_per_user": [2, 3],
        "alpha": 0.5,
        "groups": {**NAMED, "by": "user"},
    },
    "model": {"name": "mlp", "width": 0.1},
    "fleet": {"source": "mobile"},
    "train": {"lr": 0.1, "batch": 16, "epochs": 1},
    "stop": {"seconds": 20},
    "evaluate": {"seconds": 10},
    "run": {"executor": "loop"},
}
PLANNED: dict[str, Any] = {"planner": "fill"}
SIZES: dict[str, Any] = {"by": "memory", "rates": [1.0, 0.5, 0.25, 0.125]}
ROUNDED: dict[str, Any] = {"local_rounds": 1}

STUDY = Study(
    title="Layers: people with several devices, and hidden groups of people",
    question="People's devices hold few activities each, and half of the people name them otherwise. Does "
    "who averages a person's devices first tell the groups apart?",
    arms=[
        fedavg(64),
        Arm("ShuffleFL", "shufflefl", {"users": 20, **PLANNED}),
        auxo(64),
        stack(20, "users", PLANNED),
    ],
    measures=MEASURES,
    page=page,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(HAR, seeds=(1, 2, 3), tune=TUNE),
)
STUDIES = {
    "sizes": replace(
        STUDY,
        title="Layers: little memory, and hidden groups",
        question="Devices' memory differs ten times, and half of them see digits upside down. Do cohorts of "
        "models of several widths get further than either?",
        arms=[
            fedavg(30),
            Arm("HeteroFL", "heterofl", {"clients": 30, **SIZES}),
            auxo(30),
            stack(30, "sizes", SIZES),
        ],
        quick=Scale(overlay(QUICK, {"fleet": {"memory": [2e4, 2e5]}}), seeds=(1,)),
        paper=Scale(WRITERS, seeds=(1, 2, 3), tune=TUNE),
    ),
    "edges": replace(
        STUDY,
        title="Layers: a far cloud, and regions that differ",
        question="The cloud is far and edges are near, and half of the regions name the garments otherwise. "
        "Do cohorts of edges get further than edges or cohorts?",
        arms=[
            fedavg(40),
            Arm("FedEdge", "fededge", ROUNDED),
            auxo(40),
            stack(20, "edges", ROUNDED),
        ],
        quick=Scale(overlay(QUICK, {"fleet": {"edges": 3}, "data": {"groups": {"by": "edge"}}}), seeds=(1,)),
        paper=Scale(FASHION, seeds=(1, 2, 3), tune=TUNE),
    ),
}
