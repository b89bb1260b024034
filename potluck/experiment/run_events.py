"""What happens in a run, told to whoever wants to know while it runs.

Events are plain copies: nothing that is done with them reaches the run, whose bytes are the same with and
without. They can be sent to another process, so those of runs side by side come to the process that asked.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from potluck.core.codec import Json
from potluck.core.records import Group, Record
from potluck.experiment.summary import Summary

END = "participants"  # the metric that ends an evaluation's records, whatever the algorithm
_SPREAD = ("accuracy_mean", "accuracy_worst10", "accuracy_best10", "accuracy_variance")
_TOTALS = ("bytes_down", "bytes_up")  # counters by tier, which are added up
_COUNTERS = ("device_seconds", "tasks", END)


@dataclass(frozen=True)
class Evaluated:
    """Models were scored."""

    run: str
    number: int  # how many evaluations there were before; the first is of untrained models
    round: int
    time: float  # virtual seconds
    view: str | None  # whose accuracy is the run's; None: nothing was scored
    accuracy: float | None  # mean over devices
    # What a chart would show, by name: `accuracy_mean` of that view, `VIEW/accuracy_mean` of others,
    # `global_accuracy`, `loss` (mean over devices), and running totals such as `bytes_up`, `device_seconds`
    # and `lost/late`.
    numbers: Mapping[str, float]
    devices: Mapping[int, float]  # the accuracy of each device that is evaluated


@dataclass(frozen=True)
class Started:
    """A run is about to begin, or to go on."""

    run: str  # its name, which all of its events have
    experiment: str
    algorithm: str
    seed: int
    folder: Path | None
    settings: Mapping[str, Json]  # the experiment to its last default, table by table
    resumed: bool
    round: int  # where it goes on; else 0
    time: float
    history: tuple[Evaluated, ...]  # evaluations before it was resumed, which aren't told again


@dataclass(frozen=True)
class RoundDone:
    """The model that the cloud serves has changed."""

    run: str
    round: int
    time: float
    accuracy: float | None  # at the last evaluation
    done: float  # share of the way to the run's end, 0 to 1


@dataclass(frozen=True)
class Noted:
    """Something was recorded beside evaluations: a split, a tier, an update that was refused."""

    run: str
    round: int
    time: float
    name: str
    value: Json
    node: int | None = None
    group: Group | None = None
    view: str | None = None


@dataclass(frozen=True)
class Ended:
    """A run is over, or has stopped early."""

    run: str
    folder: Path | None
    summary: Summary | None  # None: it was interrupted, or code failed
    failed: str | None  # why it didn't come to its end


Event = Started | RoundDone | Evaluated | Noted | Ended


class Callback:
    """Follows runs: write the methods that you need.

    A method that raises ends the run. What it returns is ignored.
    """

    def on_start(self, event: Started) -> None:
        """Before anything is computed."""

    def on_round(self, event: RoundDone) -> None:
        """After every round, as the algorithm counts them."""

    def on_evaluate(self, event: Evaluated) -> None:
        """After every evaluation, at the start and at the end too."""

    def on_note(self, event: Noted) -> None:
        """After a rule, or the engine, has noted something."""

    def on_end(self, event: Ended) -> None:
        """Last of all, however the run ended; not if its process was killed."""


def dispatch(callback: Callback, event: Event) -> None:
    """Call the method for an event."""
    match event:
        case Started():
            callback.on_start(event)
        case RoundDone():
            callback.on_round(event)
        case Evaluated():
            callback.on_evaluate(event)
        case Noted():
            callback.on_note(event)
        case Ended():
            callback.on_end(event)


@dataclass
class Reader:
    """Makes evaluations of records, those on disk and those that are being written."""

    run: str
    number: int = 0  # of the next one
    view: str | None = None  # the first that was ever scored
    open: list[Record] = field(default_factory=list)

    def read_all(self, records: Iterable[Record]) -> tuple[Evaluated, ...]:
        return tuple(found for record in records if (found := self.read(record)) is not None)

    def read(self, record: Record) -> Evaluated | None:
        """An evaluation, if this is its last record."""
        if self.view is None and record["metric"] == "accuracy_mean":
            self.view = record.get("view")
        self.open.append(record)
        if record["metric"] != END or "group" in record:
            return None
        now = [r for r in self.open if r["time"] == record["time"]]
        numbers = _list_numbers(now, self.view)
        devices, losses = (_list_devices(now, metric, self.view) for metric in ("accuracy", "loss"))
        if losses:
            numbers["loss"] = statistics.fmean(losses.values())
        found = Evaluated(
            self.run,
            self.number,
            record["round"],
            record["time"],
            self.view,
            numbers.get("accuracy_mean"),
            numbers,
            devices,
        )
        self.number, self.open = self.number + 1, []
        return found


def _list_devices(records: Iterable[Record], metric: str, view: str | None) -> dict[int, float]:
    return {
        r["node"]: float(r["value"])
        for r in records
        if r["metric"] == metric and r.get("view") == view and "node" in r
    }


def _list_numbers(records: Iterable[Record], headline: str | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for r in records:
        name, value, view, group = r["metric"], r["value"], r.get("view"), r.get("group")
        if name == "global_test" and isinstance(value, dict):
            found["global_accuracy"] = float(value["accuracy"])
        elif not isinstance(value, int | float):  # a note may have any name
            continue
        elif name in _SPREAD:
            found[name if view == headline else f"{view}/{name}"] = float(value)
        elif name == "backdoor_success" or (name in _COUNTERS and group is None):
            found[name] = float(value)
        elif name in _TOTALS and group is not None:
            found[name] = found.get(name, 0.0) + float(value)
        elif name == "lost" and group is not None:
            found[f"{name}/{group}"] = float(value)
    return found
