"""Several models are sent; the device trains the one that suits its rows best, or only says which."""

from typing import ClassVar

import torch
from torch import Tensor

from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.job import Batch, Cost, Local, ModelSpec, Net, Nets, Result, Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.losses import row_losses
from potluck.jobs.objective import Objective

CHUNK = 2048  # rows a forward pass; bounds memory


@value
class Pick(Objective):
    """Plain training of the model with the least mean loss on all own rows; tells which one it was.

    `models` are sent as one tree whose tensors count them along their first axis. The choice is a tensor, so
    devices that choose differently train in one stack. A device without rows takes the first.
    """

    models: int

    looks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self.models >= 1, "models", self.models, "must be at least 1")

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        each = [{name: p[k] for name, p in sent["models"].items()} for k in range(self.models)]
        losses = [row_losses(net(p, batch.x), batch.y) for p in each]  # without a key: as they would be used
        return {"losses": torch.stack(losses, -1)}

    def form(self, sent: Tree) -> Params:
        return {name: p[0] for name, p in sent["models"].items()}

    def start(self, sent: Tree, keep: Tree, own: Batch | None) -> Params:
        best = self.hold(sent, keep, own).reshape(1)
        return {name: p.index_select(0, best).squeeze(0) for name, p in sent["models"].items()}

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tensor:
        """The number of the best model."""
        assert own is not None
        sums: Tensor = (own.seen["losses"] * own.weight.unsqueeze(-1)).sum(0)
        return sums.argmin()

    def sends(self, params: Params) -> dict[str, Tree]:
        return {"model": torch.tensor(self.models - 1)}

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        return {"model": held}, None

    def ops(self, net: Net, at: Local, passes: int) -> float:
        return float(self.models * len(at.rows) * net.ops)  # a forward pass of each over every row


@value
class Prefer:
    """The number of the model with the least mean loss on all own rows, told without training any.

    `models` are sent as for `Pick`. The weight is 1, or 0 of a device without rows: it has no preference.
    """

    model: ModelSpec
    models: int

    def cost(self, at: Local) -> Cost:
        ops = self.models * len(at.rows) * at.models[self.model].ops
        return Cost(float(ops), {"model": self.models - 1})

    def run(self, at: Local) -> Result:
        net, parts = at.models[self.model], list(zip(at.x.split(CHUNK), at.y.split(CHUNK), strict=True))
        losses = torch.zeros(self.models, dtype=torch.float64)
        with torch.no_grad():
            for k in range(self.models):
                params = {name: p[k] for name, p in at.inbox["models"].items()}
                losses[k] = sum(float(row_losses(net(params, x), y).sum()) for x, y in parts)
        return Result({"model": int(losses.argmin())}, weight=float(len(at.rows) > 0))
