"""What a run came to, as its summary.json tells it."""

from collections.abc import Sequence

from potluck import metrics
from potluck.core.records import Record
from potluck.experiment.accountant import summarise_privacy
from potluck.experiment.schema.experiment import Experiment


class Summary(metrics.Outcome):
    """The content of summary.json."""

    name: str
    algorithm: str
    seed: int
    evaluated_on: str
    wall_seconds: float
    finished: str | None  # when; None: it isn't


def summarise_run(
    experiment: Experiment, records: Sequence[Record], wall: float, finished: str | None
) -> Summary:
    """Which run it was, what its records come to, and how long it took in real time."""
    outcome = metrics.summarise(records, experiment.stop.target or experiment.evaluate.target)
    if (privacy := summarise_privacy(records)) is not None:
        outcome["privacy"] = privacy
    return {
        "name": experiment.name,
        "algorithm": experiment.algorithm,
        "seed": experiment.seed,
        "evaluated_on": experiment.evaluate.on,
        **outcome,
        "wall_seconds": round(wall, 3),
        "finished": finished,
    }


def tell_tested(s: metrics.Outcome) -> str:
    """Which models the global test is of, in words; empty where there was none."""
    view, models = s["global_view"], s["global_models"]
    if view is None:
        return ""
    several = models is not None and models > 1
    whose = f"view {view}, {models} models" if several else f"view {view}"
    if s["global_used"]:
        each, all_ = "mean over devices of the model that each uses", "the model that all devices use"
        return f"{each if several else all_} ({whose})"
    shared = "mean over devices of shared models" if several else "the shared model"
    return f"{shared} ({whose}), while devices use models of their own"
