"""Which of several models a device uses, if nothing is known of it: the best one for its own rows."""

from collections.abc import Mapping

import torch

from potluck.core.codec import value
from potluck.core.job import Cost, Local, ModelSpec, Result
from potluck.core.trees import Params
from potluck.jobs.losses import row_losses


@value
class LeastLoss:
    """The name of the model that has the least mean loss on the device's rows."""

    model: ModelSpec

    def cost(self, at: Local) -> Cost:
        ops = float(len(at.rows) * len(at.inbox["models"]) * at.models[self.model].ops)
        return Cost(ops, metrics=("times",))

    def run(self, at: Local) -> Result:
        never = {"times": 0.0}  # how often it has trained, as far as it knows: nothing is kept of that
        if len(at.inbox["models"]) == 1:
            return Result(next(iter(at.inbox["models"])), metrics=never)
        losses = self.measure(at)
        return Result(min(losses, key=lambda name: losses[name]), metrics=never)

    def measure(self, at: Local) -> dict[str, float]:
        """The mean loss of each model."""
        models: Mapping[str, Params] = at.inbox["models"]
        net = at.models[self.model]
        with torch.no_grad():
            return {name: float(row_losses(net(p, at.x), at.y).mean()) for name, p in models.items()}
