"""What the studies of robust aggregation have in common: FedAvg, every judge, and what is told of them."""

from typing import Any

from _maverick import PRECISION, RECALL

from potluck.experiment.study import ACCURACY, WORST, Arm, Measure

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
    judged("Krum", kind="krum"),
    judged("Multi-Krum", kind="multi_krum"),
    judged("Adaptive-Krum", kind="adaptive_krum"),
    judged("Adaptive-Krum, gap", kind="adaptive_krum", mode="gap"),
    judged("trimmed mean", kind="trimmed_mean", share=0.3),
    judged("median", kind="median"),
    judged("norm clipping", kind="clip"),
]
