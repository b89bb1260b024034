"""FlexCFL's device side: how much a device's labels have changed."""

import torch

from potluck.core.codec import value
from potluck.core.job import Cost, Local, Result


@value
class Recount:
    """Compare the labels of a device's rows with those of last time, and say how much they changed."""

    classes: int
    limit: float  # of the change per row; the labels of that moment are the ones to compare with next

    def cost(self, at: Local) -> Cost:
        return Cost(0.0, {"changed": 0.0})

    def run(self, at: Local) -> Result:
        now = torch.bincount(at.y, minlength=self.classes)
        before = now if at.keep is None else at.keep["counts"].to(now.device)
        changed = float((now - before).abs().sum()) / max(1.0, float(before.sum()))
        first = at.keep is None or changed > self.limit
        return Result({"changed": changed}, keep={"counts": now} if first else None)
