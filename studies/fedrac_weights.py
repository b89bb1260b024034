"""How Fed-RAC weighs speed, rate and memory (its Table IV).

`potluck study fedrac_weights --scale paper` takes UCI HAR, MNIST and 20 runs of about 15 s of one core, about
3 minutes with `--jobs 2`.
"""

import numpy as np
from _fedrac import F1, HAR, MNIST, PERFORMANCE, PHONES, QUICK, SERVED, fedrac

from potluck.algorithms.fedrac.results import find_trained
from potluck.experiment.runs import Run
from potluck.experiment.study import Arm, Measure, Scale, Study, overlay
from potluck.fleet import fedrac40


def unnormalised() -> list[float]:
    """Weights by which normalised distances are those of plain GHz, Mbit/s and GB, but for a factor."""
    known = fedrac40(PHONES)
    plain = np.stack([1 / known.compute, known.down / 1e6, known.memory / 2**30], axis=1)
    plain[:, 0] *= 3.2 / plain[:, 0].max()  # the fastest phone's GHz
    squares = np.square(np.ptp(plain, axis=0))
    shares: list[float] = (squares / squares.sum()).tolist()
    return shares


def weigh(name: str, weights: list[float]) -> Arm:
    tables = {"fewer": 0, "smallest": 3, "weights": weights}
    return fedrac(name, k=None, clustering=tables, by_class=True)


def clusters(run: Run) -> float:
    """As many as the Dunn index says."""
    index = next(r["value"]["index"] for r in run.lines if r["metric"] == "tiers")
    return float(max(index, key=lambda count: index[count]))


STUDY = Study(
    title="Fed-RAC: how resources are weighed",
    question="Clusters depend on what speed, rate and memory count for. How many are there, and how good are "
    "their models?",
    arms=[
        weigh("0.4, 0.4, 0.2", [0.4, 0.4, 0.2]),
        weigh("1/3 each", [1 / 3, 1 / 3, 1 / 3]),
        weigh("0.2, 0.2, 0.6", [0.2, 0.2, 0.6]),
        weigh("0.3, 0.3, 0.4", [0.3, 0.3, 0.4]),
        weigh("unnormalised", unnormalised()),
    ],
    scenarios={
        "activities": {},
        "digits": overlay(MNIST, {"algorithms": {"fedrac": {"rounds": 20}}}),
    },
    measures=(
        Measure("clusters", clusters),
        Measure("tiers with members", lambda run: float(len(find_trained(run)))),
        PERFORMANCE,
        F1,
        SERVED,
    ),
    notes="Without normalising, rates count 98.5 %. The paper has 5, 6, 4, 4 and 4 clusters in this order, "
    "and 97.7, 97.4, 97.3, 97.5 and 97.1 % on digits, 93.5, 92.5, 91.9, 92.2 and 91.6 % on activities.",
    quick=Scale(
        overlay(QUICK, {"algorithms": {"fedrac": {"rounds": 2}}}), seeds=(1,), scenarios=("activities",)
    ),
    paper=Scale(
        overlay(HAR, {"run": {"executor": "stacked"}, "algorithms": {"fedrac": {"rounds": 30}}}),
        seeds=(1, 2),
    ),
)
