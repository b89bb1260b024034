"""How served models do at other shares of shift, from a run's records."""

from typing import Any

from potluck.metrics import headline


def at_shift(run: Any, share: float, key: str = "mean", view: str | None = None) -> float | None:
    """What a view (the headline, unless said) came to at one of `evaluate.shifts`.

    `key`: mean or worst10 of devices' accuracies, or the mean of another score by its name. None if it
    wasn't measured.
    """
    view = headline(run.lines) if view is None else view
    for r in run.lines:
        if r["metric"] == "accuracy_shifted" and r.get("view") == view and r["value"]["shift"] == share:
            found: float | None = r["value"].get(key)
            return found
    return None
