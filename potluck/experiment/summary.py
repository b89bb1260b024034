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
