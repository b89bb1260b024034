"""30 % of the devices attack: every robust aggregation, around FedAvg.

`potluck study robust --scale paper` (flipped signs), or `robust_strong` (those three times as long, and
crafted updates), takes Fashion-MNIST and 32 runs, all at one rate.
"""

from dataclasses import replace
from typing import Any

from _maverick import PRECISION, RECALL

from potluck.experiment.study import ACCURACY, WORST, Arm, Measure, Scale, Study

QUICK: dict[str, Any] = {
    "data": {"source": "digits", "clients": 20, "alpha": 0.5},
    "model": {"name": "linear"},
    "train": {"batch": 10, "lr": 0.1},
    "stop": {"rounds": 4},
    "evaluate": {"rounds": 4},
    "run": {"executor": "stacked"},
}
TABLE: dict[str, Any] = {
    "data": {"source": "fashion-mnist", "limit": 10_000, "clients": 50, "alpha": 0.5},
    "model": {"name": "mlp"},
    "fleet": {"source": "mobile"},
    "train": {"batch": 32, "epochs": 1, "lr": 0.05},
    "stop": {"rounds": 60},
    "evaluate": {"rounds": 10},
    "run": {"executor": "stacked", "graphs": False},
}
MEASURES = (
    ACCURACY,
    WORST,
    Measure("global test", "global_accuracy", "share", "more"),
    PRECISION,
    RECALL,
)


def judged(name: str, **robust: Any) -> Arm:
    return Arm(name, "fedavg", {"clients": 20}, {"robust": robust} if robust else {})


def attacked(kind: str, **more: Any) -> dict[str, Any]:
    return {"fleet": {"attack": {"kind": kind, "share": 0.3, **more}}}


ARMS = [
    judged("no judge"),
    judged("Krum", kind="krum", share=0.3),
    judged("Multi-Krum", kind="multi_krum", share=0.3),
    judged("Adaptive-Krum", kind="adaptive_krum"),
    judged("Adaptive-Krum, gap", kind="adaptive_krum", mode="gap"),
    judged("trimmed mean", kind="trimmed_mean", share=0.3),
    judged("median", kind="median"),
    judged("norm clipping", kind="clip"),
]

STUDY = Study(
    title="Robust aggregation: 30 % sign-flippers",
    question="FedAvg with 20 of 50 devices a round, labels dealt by Dirichlet(0.5). Whose mean survives "
    "flipped signs, and what does judging cost when nobody attacks?",
    arms=ARMS,
    scenarios={"honest": {}, "sign flip": attacked("sign_flip")},
    measures=MEASURES,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2)),
)

STUDIES = {
    "strong": replace(
        STUDY,
        title="Robust aggregation: 30 % strong attackers",
        question="The same crowd; attackers flip signs and triple the length, or send what Fang et al. "
        "craft.",
        scenarios={"sign flip x 3": attacked("sign_flip", scale=3.0), "Fang": attacked("fang")},
    )
}
