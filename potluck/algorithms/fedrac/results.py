"""Fed-RAC's results, from a run's records: each tier's model, all of them together, who moved.

A tier's model is judged on the global test set (view `tier 0` is the leader's), at evaluations: rounds to a
goal are known as finely as these are frequent. Rounds are the tier's own, whatever the others do meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from potluck.algorithms.fedrac.notes import TIER, TIER_ROUND, TIERS
from potluck.core.records import Record
from potluck.metrics import Measurement, groups, totals


class Recorded(Protocol):
    """A run, by its records."""

    @property
    def lines(self) -> list[Record]: ...


class TierChange(NamedTuple):
    """A device that was given another place, or its first one (`before` is None), and why."""

    time: float
    node: int
    tier: int
    before: int | None
    why: str


def count_tiers(run: Recorded) -> int:
    """How many tiers there are; 0 before they were found."""
    found = [len(r["value"]["members"]) for r in _find_notes(run, TIERS)]
    return found[-1] if found else 0


def find_trained(run: Recorded) -> list[int]:
    """The tiers that have members, or had; Procedure 2 may leave some empty, whose models nobody trains."""
    trained = {int(r["group"]) for r in _find_notes(run, TIER_ROUND)}
    return sorted(trained | set(find_members(run).values()))


def trace_tier(run: Recorded, tier: int, metric: str = "global_accuracy") -> list[Measurement]:
    """A metric of a tier's model over its own rounds, from when the tiers were found."""
    done, points, began = 0, list[Measurement](), False
    for r in run.lines:
        began = began or r["metric"] == TIERS
        if r["metric"] == TIER_ROUND and r["group"] == tier:
            done = r["value"]["round"]
        elif began and r["metric"] == metric and r.get("view") == f"tier {tier}":
            points.append(Measurement(done, r["time"], r["value"]))
    return points


def count_rounds_to(run: Recorded, goal: float) -> list[int | None]:
    """Each tier's own rounds when it was first seen to reach an accuracy; None if it never did."""
    curves = [trace_tier(run, tier) for tier in find_trained(run)]
    return [next((p.round for p in points if p.value >= goal), None) for points in curves]


def count_total_rounds(run: Recorded, goal: float) -> int | None:
    """TRR: the leader's rounds to an accuracy and the slowest follower's; None if some tier never did."""
    found = count_rounds_to(run, goal)
    return add_rounds(found) if found else None


def add_rounds(rounds: Sequence[int | None]) -> int | None:
    """TRR: the leader's rounds and those of the slowest follower, as followers train side by side.

    None if some tier never got there.
    """
    got = [count for count in rounds if count is not None]
    if len(got) < len(rounds):
        return None
    return got[0] + max(got[1:], default=0)


def measure_f1(run: Recorded, tier: int) -> float | None:
    """Macro F1 of a tier's model at the end; None unless the run recorded it (`by_class = true`).

    A class that there is none of, and that nothing is taken for, doesn't count.
    """
    last: dict[str, float] = {}
    for r in run.lines:
        if r.get("view") == f"tier {tier}" and r["metric"].startswith("global_"):
            last[r["metric"].removeprefix("global_")] = r["value"]
    classes = [int(name.split()[1]) for name in last if name.startswith("held ")]
    sums = {k: last[f"held {k}"] + last[f"said {k}"] for k in classes}
    scores = [2 * last[f"hit {k}"] / total for k, total in sums.items() if total > 0]
    return sum(scores) / len(scores) if scores else None


def list_moves(run: Recorded) -> list[TierChange]:
    """Everybody's places in order, first ones included."""
    return [
        TierChange(r["time"], int(r["group"]), r["value"]["tier"], r["value"].get("from"), r["value"]["why"])
        for r in _find_notes(run, TIER)
    ]


def find_members(run: Recorded) -> dict[int, int]:
    """The tier of every device at the end."""
    return {move.node: move.tier for move in list_moves(run)}


def count_rounds_astray(run: Recorded, node: int, tier: int) -> int | None:
    """Rounds that a device trained, or was late, in other tiers than this; None if it isn't there in the end.

    They are those of the tier that it was in at the time.
    """
    at, rounds = None, 0
    for r in run.lines:
        if r["metric"] == TIER and r["group"] == node:
            at = r["value"]["tier"]
        elif r["metric"] == TIER_ROUND and r["group"] == at != tier:
            rounds += 1
    return rounds if at == tier else None


def list_device_accuracies(run: Recorded) -> list[float | None]:
    """Each tier's mean over its evaluated members' own test rows, at the end; None without any."""
    at, last = find_members(run), dict[int, float]()
    for r in run.lines:
        if r["metric"] == "accuracy" and r.get("view") == "tier" and "node" in r:
            last[r["node"]] = r["value"]
    of = [[last[n] for n, tier in at.items() if tier == f and n in last] for f in range(count_tiers(run))]
    return [sum(own) / len(own) if own else None for own in of]


def count_in_time(run: Recorded) -> int:
    """Devices whose update came within the time that was allowed, once at least."""
    points = totals(run.lines, "participants")
    return int(points[-1].value) if points else 0


def count_late(run: Recorded) -> int:
    """Updates that came too late."""
    return int(groups(run.lines, "lost").get("late", 0))


def _find_notes(run: Recorded, name: str) -> Iterator[Record]:
    return (r for r in run.lines if r["metric"] == name)
