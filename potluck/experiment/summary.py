"""What a run came to, as its summary.json tells it."""

from collections.abc import Iterable, Sequence

from potluck import metrics
from potluck.core.records import Record
from potluck.experiment.accountant import summarise_privacy
from potluck.experiment.judged import Judged
from potluck.experiment.remarks import Remark, find_remarks
from potluck.experiment.schema.experiment import Experiment


class Summary(metrics.Outcome):
    """The content of summary.json."""

    name: str
    algorithm: str
    seed: int
    evaluated_on: str
    wall_seconds: float
    finished: str | None  # when; None: it isn't
    remarks: list[Remark]  # what went wrong, as far as it shows; of a finished run


def summarise_run(
    experiment: Experiment,
    records: Sequence[Record],
    wall: float,
    finished: str | None,
    judged: Judged | None = None,
) -> Summary:
    """Which run it was, what its records come to, and how long it took in real time.

    Without knowing what it is judged by, nothing is remarked: a run that goes on may yet learn.
    """
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
        "remarks": [] if judged is None else find_remarks(records, experiment, judged),
    }


def tell_tested(runs: Iterable[metrics.Outcome]) -> str:
    """Which models the global test is of, in words, of one run or of several seeds; empty without one."""
    counts: dict[tuple[str, bool | None], list[int]] = {}
    for s in runs:
        if s["global_view"] is not None:
            counts.setdefault((s["global_view"], s["global_used"]), []).append(s["global_models"] or 0)
    return ", or ".join(_tell_models(*whose, min(found), max(found)) for whose, found in counts.items())


def _tell_models(view: str, used: bool | None, fewest: int, most: int) -> str:
    if most > 1:
        many = f", {most} models" if fewest == most else f", {fewest} to {most} models"
        how = f"mean over devices of {'the model that each uses' if used else 'shared models'}"
    else:
        many, how = "", f"the {'model that all devices use' if used else 'shared model'}"
    return f"{how} (view {view}{many})" + ("" if used else ", while devices use models of their own")
