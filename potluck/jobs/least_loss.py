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
        models: Mapping[str, Params] = at.inbox["models"]
        never = {"times": 0.0}  # how often it has trained, as far as it knows: nothing is kept of that
        if len(models) == 1:
            return Result(next(iter(models)), metrics=never)
        net = at.models[self.model]
        with torch.no_grad():
            losses = {name: float(row_losses(net(p, at.x), at.y).mean()) for name, p in models.items()}
        return Result(min(losses, key=lambda name: losses[name]), metrics=never)
