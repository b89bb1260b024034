"""What came of a run, computed from its records: pure functions over long-format lines.

A record has `round`, `time` (virtual seconds), `metric` and `value`, and says whose it is by `node`, `group`
or `view`. Counters are cumulative. A run may serve several views (a personal and a global model, say); the
one that is written first is the headline.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NotRequired, TypedDict, TypeVar

from potluck.core.records import Group, Record

T = TypeVar("T")


class Measurement(NamedTuple):
    """A value and when it was measured."""

    round: int
    time: float
    value: float


def headline(records: Iterable[Record]) -> str | None:
    """The view that a run is judged by; None if it was never evaluated."""
    return next((r.get("view") for r in records if r["metric"] == "accuracy_mean"), None)


def series(records: Iterable[Record], metric: str, view: str | None = None) -> list[Measurement]:
    """A metric over time, of one view (None: whatever the view)."""
    return [
        Measurement(r["round"], r["time"], r["value"])
        for r in records
        if r["metric"] == metric and (view is None or r.get("view") == view)
    ]


def noted(records: Iterable[Record], metric: str, kind: type[T]) -> list[T]:
    """What was noted under a name, in order; what isn't of this kind is left out: notes are anybody's."""
    return [r["value"] for r in records if r["metric"] == metric and isinstance(r["value"], kind)]


def totals(records: Iterable[Record], metric: str) -> list[Measurement]:
    """A counter over time, its groups added up; one point for each time at which it was written."""
    latest: dict[Group | None, float] = {}
    points: list[Measurement] = []
    for r in records:
        if r["metric"] == metric:
            latest[r.get("group")] = r["value"]
            if points and points[-1].time == r["time"]:
                points.pop()
            points.append(Measurement(r["round"], r["time"], sum(latest.values())))
    return points


def groups(records: Iterable[Record], metric: str) -> dict[str, float]:
    """The last value of a counter in each of its groups."""
    return {str(r["group"]): r["value"] for r in records if r["metric"] == metric and "group" in r}


def time_to(points: Iterable[Measurement], target: float | None) -> float | None:
    """The virtual second at which a target was first seen to be reached; None if it never was."""
    return None if target is None else next((p.time for p in points if p.value >= target), None)


class Privacy(TypedDict):
    """What local differential privacy came to, by the most active device's updates."""

    epsilon: float | None  # None: nobody here can count it
    delta: float
    updates: int
    sigma: float
    model: str


class Outcome(TypedDict):
    """What a run came to: the headline view at the last evaluation, time, traffic, effort."""

    view: str | None
    accuracy_mean: float | None
    accuracy_worst10: float | None
    accuracy_best10: float | None
    accuracy_variance: float | None
    global_accuracy: float | None  # on rows that no device holds: the mean over devices of each one's model
    global_view: str | None  # whose models these are
    global_models: int | None  # how many there are
    global_used: bool | None  # False: devices use models of their own, and these are shared ones beside them
    backdoor_success: NotRequired[float]  # of runs with a backdoor: triggered rows taken for its class
    virtual_seconds: float
    rounds: int
    target: float | None
    time_to_target: float | None
    bytes_up: float
    bytes_down: float
    device_seconds: float
    tasks: float
    participants: float
    lost: dict[str, float]
    privacy: NotRequired[Privacy]  # of runs with [train.privacy]


def summarise(records: Sequence[Record], target: float | None = None) -> Outcome:
    """What these records come to."""
    view = headline(records)

    def last(metric: str) -> float | None:
        points = series(records, metric, view)
        return points[-1].value if points else None

    def count(metric: str) -> float:
        points = totals(records, metric)
        return points[-1].value if points else 0

    tested = next((r for r in reversed(records) if r["metric"] == "global_test"), None)
    outcome: Outcome = {
        "view": view,
        "accuracy_mean": last("accuracy_mean"),
        "accuracy_worst10": last("accuracy_worst10"),
        "accuracy_best10": last("accuracy_best10"),
        "accuracy_variance": last("accuracy_variance"),
        "global_accuracy": None if tested is None else tested["value"]["accuracy"],
        "global_view": None if tested is None else tested["view"],
        "global_models": None if tested is None else tested["value"]["models"],
        "global_used": None if tested is None else tested["value"]["used"],
        "virtual_seconds": max((r["time"] for r in records), default=0.0),
        "rounds": max((r["round"] for r in records), default=0),
        "target": target,
        "time_to_target": time_to(series(records, "accuracy_mean", view), target),
        "bytes_up": count("bytes_up"),
        "bytes_down": count("bytes_down"),
        "device_seconds": count("device_seconds"),
        "tasks": count("tasks"),
        "participants": count("participants"),
        "lost": groups(records, "lost"),
    }
    success = next((r["value"] for r in reversed(records) if r["metric"] == "backdoor_success"), None)
    if success is not None:
        outcome["backdoor_success"] = success
    return outcome


FEWEST_SEEDS = 3  # for an interval: with two, t is 12.7, and mean ± half would say next to nothing


class Estimate(NamedTuple):
    """A mean over seeds, and half of its 95 % interval (Student's t): what `mean ± half` means everywhere."""

    mean: float | None  # None: a seed has no value
    half: float | None  # None: too few seeds

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Estimate":
        """Of all values, or nothing if one is missing: a mean over those that got there would flatter."""
        known = [v for v in values if v is not None]
        if not known or len(known) < len(values):
            return cls(None, None)
        mean, seeds = statistics.fmean(known), len(known)
        if seeds < FEWEST_SEEDS:
            return cls(mean, None)
        from scipy import stats  # here: it takes a second to import

        return cls(mean, float(stats.t.ppf(0.975, seeds - 1)) * statistics.stdev(known) / seeds**0.5)


def paired_difference(values: Sequence[float | None], base: Sequence[float | None]) -> Estimate:
    """How far one method lies above another, from runs that share seeds pair by pair.

    What a seed does to both (its division, its devices) cancels out, so few seeds may tell two methods apart
    whose own means scatter widely.
    """
    pairs = zip(values, base, strict=True)
    return Estimate.of([None if a is None or b is None else a - b for a, b in pairs])
