"""What came of cohorts, from a run's records: who would choose which, and how that fits the hidden groups."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from potluck.metrics import Point, Record, headline, series, time_to, totals

SEEN = 3  # times that a device must have trained before its choice is judged


class Membership(NamedTuple):
    """What devices would choose at one evaluation."""

    round: int
    time: float
    chosen: dict[int, str]
    times: dict[int, float]  # how often each has trained

    @property
    def covered(self) -> float:
        """The share of devices that have ever trained."""
        return sum(n > 0 for n in self.times.values()) / max(1, len(self.times))


def memberships(records: Iterable[Record]) -> list[Membership]:
    """One for each evaluation at which devices chose."""
    found: dict[tuple[int, float], Membership] = {}
    for r in records:
        if r["metric"] == "chosen":
            at = found.setdefault((r["round"], r["time"]), Membership(r["round"], r["time"], {}, {}))
            at.chosen[r["node"]] = r["value"]["name"]
            at.times[r["node"]] = r["value"].get("times", 0.0)
    return list(found.values())


def hidden(records: Iterable[Record]) -> dict[int, int]:
    """The hidden group of every evaluated device, if there are groups."""
    return {r["node"]: r["value"] for r in records if r["metric"] == "hidden_group"}


def agreement(at: Membership, truth: dict[int, int], least: int = SEEN) -> float | None:
    """Adjusted Rand index between choices and hidden groups, of devices seen often enough."""
    nodes = [node for node in at.chosen if at.times[node] >= least and node in truth]
    if not nodes:
        return None
    from sklearn.metrics import adjusted_rand_score  # here: it takes a second to import

    found: float = adjusted_rand_score([truth[n] for n in nodes], [at.chosen[n] for n in nodes])
    return float(found)


def final_agreement(run: Any) -> float | None:
    """Of a run's last evaluation; None without cohorts or groups."""
    at, truth = memberships(run.lines), hidden(run.lines)
    return agreement(at[-1], truth) if at and truth else None


def coverage(run: Any) -> float | None:
    """The share of devices that have trained by the end."""
    at = memberships(run.lines)
    return at[-1].covered if at else None


def cohorts(run: Any) -> float:
    """How many cohorts there are at the end: as the last split says, or as many models as were chosen."""
    count, models = 1.0, set()
    for r in run.lines:
        if r["metric"] == "split":
            count = float(r["value"]["groups"])
        elif r["metric"] == "chose":
            models.add(r["group"])
    return max(count, float(len(models)))


def message_bytes(run: Any) -> float | None:
    """Bytes of affinity requests and feedback; None without any."""
    sent = series(run.lines, "affinity_bytes")
    return sent[-1].value if sent else None


def best(run: Any) -> float | None:
    """The best mean accuracy at any evaluation."""
    points = series(run.lines, "accuracy_mean", headline(run.lines))
    return max((p.value for p in points), default=None)


def reached(run: Any, target: float) -> tuple[float | None, float | None]:
    """Virtual seconds and device-seconds until a target; None each if it was never reached."""
    when = time_to(series(run.lines, "accuracy_mean", headline(run.lines)), target)
    spent = [p for p in totals(run.lines, "device_seconds") if when is not None and p.time >= when]
    return when, spent[0].value if spent else None


def over_time(run: Any) -> list[Point]:
    """The agreement at every evaluation that has one."""
    truth = hidden(run.lines)
    found = ((at, agreement(at, truth)) for at in memberships(run.lines)) if truth else ()
    return [Point(at.round, at.time, index) for at, index in found if index is not None]
