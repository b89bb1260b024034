"""A run that is over, as far as it tells whether it went well: the view that it is judged by, over time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from potluck import metrics
from potluck.core.records import Record
from potluck.experiment.judged import Judged
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import Training
from potluck.metrics import Measurement


@dataclass(frozen=True, eq=False)
class Story:
    """What was measured, what was set, and who was tested."""

    records: Sequence[Record]
    experiment: Experiment
    judged: Judged

    @cached_property
    def view(self) -> str | None:
        return metrics.headline(self.records)

    @cached_property
    def accuracy(self) -> list[Measurement]:
        """Means over devices; the first is of a model that nobody has trained."""
        return metrics.series(self.records, "accuracy_mean", self.view)

    @cached_property
    def loss(self) -> list[Measurement]:
        """Of the middle device at every evaluation: some that overfit don't count. NaN is infinite."""
        found: dict[tuple[int, float], list[float]] = {}
        for r in self.records:
            if r["metric"] == "loss" and r.get("view") == self.view and r.get("node") in self.judged.devices:
                value = float(r["value"])
                found.setdefault((r["round"], r["time"]), []).append(math.inf if math.isnan(value) else value)
        return [Measurement(*at, sorted(losses)[len(losses) // 2]) for at, losses in found.items()]

    @cached_property
    def chance(self) -> float:
        return self.judged.find_chance()

    @property
    def training(self) -> Training:
        return self.experiment.training(self.experiment.algorithm)

    @cached_property
    def outcome(self) -> metrics.Outcome:
        return metrics.summarise(self.records)
