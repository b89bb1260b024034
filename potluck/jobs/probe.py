"""Jobs that train nothing: ask a device what it is, or how fast."""

from collections.abc import Sequence

import torch

from potluck.core.codec import value
from potluck.core.job import Cost, Local, Result
from potluck.core.trees import Tree


@value
class Probe:
    """A timed transfer: send ballast down, get as much back; the reply's `spent` tells the true rates."""

    def cost(self, at: Local) -> Cost:
        return Cost(0.0, {"ballast": at.inbox["ballast"]}, weight=float(len(at.rows)))

    def run(self, at: Local) -> Result:
        return Result({"ballast": at.inbox["ballast"]}, weight=float(len(at.rows)))


@value
class LabelCounts:
    """How many rows of each class a device holds: what it tells when it enrols."""

    classes: int

    def cost(self, at: Local) -> Cost:
        rows = len(at.rows)
        return Cost(0.0, {"counts": torch.full((self.classes,), rows)}, weight=float(rows))

    def run(self, at: Local) -> Result:
        return Result({"counts": torch.bincount(at.y, minlength=self.classes)}, weight=float(len(at.rows)))

    def fold(self, bodies: Sequence[Tree], weights: Sequence[float]) -> Tree:
        """Rows of several devices, counted together."""
        return {"counts": torch.stack([body["counts"] for body in bodies]).sum(0)}


@value
class LabelSet:
    """Which classes a device holds, and (as the reply's weight) how many rows; not how many of each."""

    classes: int

    def cost(self, at: Local) -> Cost:
        return Cost(0.0, {"holds": torch.zeros(self.classes, dtype=torch.bool)}, weight=float(len(at.rows)))

    def run(self, at: Local) -> Result:
        holds = torch.bincount(at.y, minlength=self.classes) > 0
        return Result({"holds": holds}, weight=float(len(at.rows)))
