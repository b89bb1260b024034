"""How ClassTer's notes read in a report, those of its asynchronous variant among them."""

from potluck.core.notes import Figure, Notes

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
            "Look for dark rows: classes whose detectors are trained less often than the others'.",
            each="class",
            number="imbalance",
        ),
    ),
)
