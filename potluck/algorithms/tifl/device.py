"""How good a model is on a device's own rows, told without training it."""

from collections.abc import Sequence

import torch

from potluck.core.codec import value
from potluck.core.job import Cost, Local, ModelSpec, Result
from potluck.core.trees import Tree

CHUNK = 2048  # rows a forward pass; bounds memory


@value
class Examine:
    """How many of the device's rows the model that was sent classifies rightly; the weight is all of them."""

    model: ModelSpec

    def cost(self, at: Local) -> Cost:
        rows = len(at.rows)
        return Cost(float(rows * at.models[self.model].ops), {"right": rows}, weight=float(rows))

    def run(self, at: Local) -> Result:
        net, x, y = at.models[self.model], at.x, at.y
        with torch.no_grad():
            found = [net(at.inbox["params"], part).argmax(-1) for part in x.split(CHUNK)]
        right = sum(int((f == part).sum()) for f, part in zip(found, y.split(CHUNK), strict=True))
        return Result({"right": right}, weight=float(len(at.rows)))

    def fold(self, bodies: Sequence[Tree], weights: Sequence[float]) -> Tree:
        """Rows of several devices, counted together."""
        return {"right": sum(body["right"] for body in bodies)}
