"""How ClassTer's notes read in a report, those of its asynchronous variant among them."""

from collections.abc import Sequence

from potluck.core.notes import Crowd, Figure, Notes
from potluck.core.records import Record
from potluck.core.units import percent, times
from potluck.metrics import noted, series


def tell_learning(records: Sequence[Record]) -> str:
    """How often detectors were trained and distilled, and what devices were served in the end."""
    updates, distilled = noted(records, "updates", list), len(noted(records, "distilled", dict))
    if not updates:
        return ""
    told = f"Detectors of {len(updates[-1])} classes were trained {times(sum(updates[-1]))}"
    told += f" and distilled into a general model {times(distilled)}" if distilled else " and never distilled"
    if judged := noted(records, "judged", dict):
        one, other = percent(judged[-1]["detectors"]), percent(judged[-1]["general"])
        told += f"; on rows kept back these were last right about {one}, the general model about {other}"
    return f"{told}. {_tell_served(records)}"


def _tell_served(records: Sequence[Record]) -> str:
    """Devices have a score of the general model only where they are served it."""
    own, ends = series(records, "personal"), series(records, "accuracy_mean")
    last = [share.value for share in own if ends and share.time == ends[-1].time]
    if not last:
        return "In the end devices were served the detectors."
    share = sum(last) / len(last)
    also = f"; their own last layers answered {percent(share)} of all rows" if share else ""
    return f"In the end devices were served the general model{also}."


NOTES = Notes(
    {
        "converged": "updates after which its detector had converged",
        "calibration mean": "mean of its detector's outputs",
        "calibration deviation": "deviation of its detector's outputs",
        "judged detectors": "share of rows kept back that its detectors are right about",
        "judged general": "share of them that the general model is right about",
        "judged served": "whether the general model is served from then on (1) or the detectors (0)",
        "staleness": "updates by others while a device trained",
        "share": "weight of an update",
        "critical": "whether progress still speeds up (1) or not (0)",
    },
    (
        Figure(
            "counts",
            "updates",
            "How often classes were trained",
            "Look for dark rows: classes whose detectors are trained less often than that of the class "
            "trained most. Imbalance is how far the least trained one is below the mean, as a share of it.",
            each="class",
            number="imbalance",
        ),
    ),
    tell_learning,
    Crowd("classes", "For devices that hold few classes, and meet others when their model is used."),
    group="class",
)
