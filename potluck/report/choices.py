"""What is shown of a tuning, for a terminal and for pages alike: what was tried, chosen, and left open."""

from typing import NamedTuple

from potluck.core.units import percent
from potluck.experiment import Tuning
from potluck.experiment.tuned_keys import shorten_keys, tell_point, tell_value

JUDGED_BY = "mean accuracy on devices' validation rows"
REHEARSED = ", rehearsed with each other's for the shifts that are scored"
CHOICE_HEAD = ("trials", "chosen", "accuracy", "remarks")
TRIAL_HEAD = ("", "settings", "from", "accuracy")


class ChoiceLine(NamedTuple):
    """One method: how much it tried, what was chosen, what that came to, and what is to be said of it."""

    method: str
    trials: str
    chosen: str
    accuracy: str
    remarks: str


class TrialLine(NamedTuple):
    """One trial of a method."""

    method: str
    settings: str
    origin: str
    accuracy: str
    chosen: bool  # last: it is shown by how the others look


def list_choices(tuning: Tuning) -> list[ChoiceLine]:
    """A line a method."""
    return [
        ChoiceLine(
            method,
            str(len(tried)),
            tell_point(tuning.choice(method)),
            percent(tuning.best(method)["mean"]),
            "; ".join(_list_remarks(tuning, method)),
        )
        for method, tried in tuning.results.items()
    ]


def list_trials(tuning: Tuning) -> list[TrialLine]:
    """A line a trial, in the order in which they were tried."""
    return [
        TrialLine(
            method,
            tell_point(trial["point"]),
            trial["origin"],
            percent(trial["mean"]),
            trial is tuning.best(method),
        )
        for method, tried in tuning.results.items()
        for trial in tried
    ]


def name_choices(tuning: Tuning) -> str:
    """The heading of a column of what was chosen: the key, where there is one alone."""
    keys = _list_keys(tuning)
    return shorten_keys(keys)[keys[0]] if len(keys) == 1 else "tuned"


def tell_chosen(tuning: Tuning, method: str) -> str:
    """What was chosen, marked where a value that wasn't tried may be better."""
    point, alone = tuning.choice(method), len(_list_keys(tuning)) == 1
    text = ", ".join(map(tell_value, point.values())) if alone and point else tell_point(point)
    return text + (" (edge)" if tuning.edges(method) else "")


def tell_choice(tuning: Tuning) -> str:
    """How settings were chosen, in a sentence or two."""
    seeds, several = ", ".join(map(str, tuning.seeds)), len(tuning.seeds) > 1
    length = "" if tuning.length == 1 else f", of {tuning.length:.0%} of a run"
    plural = "s" * (max(map(len, tuning.results.values()), default=0) > 1)
    how = f"{tuning.trials} trial{plural} each{length}, with seed{'s' * several} {seeds}"
    edges = [method for method in tuning.results if tuning.edges(method)]
    beyond = f" At an edge: {', '.join(edges)}; a value beyond it may do better." if edges else ""
    chance = "" if several else " With one seed, chance may have chosen."
    by = JUDGED_BY + REHEARSED * tuning.shifts
    return f"Chosen by {by} ({how}); no test row of a trial was read.{beyond}{chance}"


def _list_remarks(tuning: Tuning, method: str) -> list[str]:
    shown = shorten_keys(tuning.grids[method])
    said = [
        f"extended {shown[key]} to {', '.join(map(tell_value, values))}"
        for key, values in tuning.extended(method).items()
    ]
    if edges := tuning.edges(method):
        said.append(f"at edge of {', '.join(shown[key] for key in edges)}")
    if lacking := tuning.lacking[method]:
        said.append(f"has no {', '.join(lacking)}")
    if missing := tuning.missing(method):
        said.append(f"{missing} trial{'s' * (missing > 1)} fewer: nothing else to try")
    return said


def _list_keys(tuning: Tuning) -> list[str]:
    return [*dict.fromkeys(key for grid in tuning.grids.values() for key in grid)]
