"""Fed-RAC's timed trial: what a device can do, rather than what it says it can."""

import torch

from potluck.core.codec import value
from potluck.core.job import Cost, Local, ModelSpec, Result


@value
class Trial:
    """Ballast there and back and some forward passes: `spent` tells rates and speed.

    The weight is the number of rows; nothing else is told of them.
    """

    model: ModelSpec
    passes: int = 3

    def cost(self, at: Local) -> Cost:
        ops, sends = float(self.passes * at.models[self.model].ops), {"ballast": at.inbox["ballast"]}
        return Cost(ops, sends, weight=float(len(at.rows)))

    def run(self, at: Local) -> Result:
        net, x = at.models[self.model], at.pool.x
        with torch.no_grad():
            net(net.init(at.seed), x.new_zeros((self.passes, *x.shape[1:])))  # only the time is of interest
        return Result({"ballast": at.inbox["ballast"]}, weight=float(len(at.rows)))
