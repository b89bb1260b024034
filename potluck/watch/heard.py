"""What the records of a run come to so far, line by line: curves, who uses which group, what groups noted.

Lines of single devices, which are most, are counted and not kept.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TypedDict, TypeVar

from potluck.core.codec import Json
from potluck.core.errors import SnapshotError
from potluck.core.notes import Kind
from potluck.core.records import Group, Record
from potluck.experiment.record_check import find_record_fault
from potluck.report.cohorts import ROOT
from potluck.report.note_figures import list_numbers
from potluck.report.tiers import list_tiers

T = TypeVar("T")
SHOWN = 300  # points of a curve
GROUPS, THINGS = 40, 8  # groups and things noted that are told of
SPLITS = 200
_KEPT = (
    *("accuracy_mean", "accuracy_worst10", "accuracy_best10", "accuracy_variance", "global_test"),
    *("bytes_up", "bytes_down", "lost", "device_seconds", "tasks", "participants", "undone"),
    *("backdoor_success", "private_updates"),
)
_METRIC = b'"metric":"'


class Split(TypedDict):
    """A group that became several."""

    time: float
    group: str
    into: list[str]


class Point(TypedDict):
    """An evaluation of the headline view."""

    time: float
    round: int
    accuracy: float
    sent: float  # bytes, up and down


class Heard:
    """Of one run, from its first line on; `kinds`: how its algorithm's notes are drawn."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self.kinds = kinds
        self.of_devices = {b"chosen", *(note.encode() for note, kind in kinds.items() if kind == "tiers")}
        self.kept: list[Record] = []  # what a summary is made of
        self.points: list[Point] = []
        self.view: str | None = None
        self.round, self.time = 0, 0.0
        self.sent: dict[tuple[str, str], float] = {}  # bytes by way and tier
        self.lost: dict[str, float] = {}
        self.counters: dict[str, float] = {}
        self.where: dict[int, str] = {}  # the group of each device
        self.sizes: dict[float, Counter[str]] = {}  # of groups, over time
        self.splits: list[Split] = []
        self.numbers: dict[str, dict[Group, float]] = {}  # the last ones, by thing and group

    def hear(self, line: bytes) -> None:
        """A line of records.jsonl."""
        if b'"node":' in line:
            begin = line.find(_METRIC) + len(_METRIC)
            if line[begin : line.find(b'"', begin)] not in self.of_devices:
                return
        try:
            record: Json = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SnapshotError(f"a line is no JSON ({error})") from None
        if (fault := find_record_fault(record)) is not None:
            raise SnapshotError(fault)
        self._take(record)  # type: ignore[arg-type]  # it was checked

    def _take(self, r: Record) -> None:
        name, value, time = r["metric"], r["value"], r["time"]
        self.round, self.time = max(self.round, r["round"]), max(self.time, time)
        if name in _KEPT:
            self.kept.append(r)
        if name == "accuracy_mean":
            self.view = r.get("view") if self.view is None else self.view
            if r.get("view") == self.view:
                point: Point = {"time": time, "round": r["round"], "accuracy": value, "sent": 0.0}
                self.points.append(point)
        elif name in ("bytes_up", "bytes_down"):
            self.sent[name, str(r.get("group"))] = value
            if self.points and self.points[-1]["time"] == time:
                self.points[-1]["sent"] = sum(self.sent.values())
        elif name == "lost":
            self.lost[str(r.get("group"))] = value
        elif name in ("device_seconds", "tasks", "participants"):
            self.counters[name] = value
        elif name == "chosen":
            self._place(time, r.get("node", -1), value["name"] or ROOT)
        elif self.kinds.get(name) == "tiers":
            for node, tier in list_tiers(r):
                self._place(time, node, f"tier {tier}")
        elif self.kinds.get(name) == "tree":
            self._split(r)
        else:
            self._note(r)

    def _place(self, time: float, node: int, group: str) -> None:
        now = next(reversed(self.sizes.values()), Counter[str]())
        if next(reversed(self.sizes), None) != time:
            now = self.sizes[time] = Counter(now)
        if node in self.where:
            now[self.where[node]] -= 1
        self.where[node] = group
        now[group] += 1

    def _split(self, r: Record) -> None:
        value, parent = r["value"], r.get("group")
        into = value.get("into") or list(value.get("sizes") or ()) if isinstance(value, dict) else []
        name = ROOT if parent in (None, "") else str(parent)
        if isinstance(into, list) and len(self.splits) < SPLITS:
            self.splits.append({"time": r["time"], "group": name, "into": [str(each) for each in into]})

    def _note(self, r: Record) -> None:
        group = r.get("group")
        for thing, number in list_numbers(r):
            if thing in self.numbers or len(self.numbers) < THINGS:
                groups = self.numbers.setdefault(thing, {})
                if group is not None and (group in groups or len(groups) < GROUPS):
                    groups[group] = number


def thin(points: Sequence[T]) -> list[T]:
    """At most so many, evenly, the first and the last among them."""
    step = -(-len(points) // SHOWN)
    return list(points) if step <= 1 else [*points[:-1:step], points[-1]]
