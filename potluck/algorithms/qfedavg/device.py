"""What the model that was sent is worth to a device, before it trains."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Batch, Local, Net, Nets
from potluck.core.trees import Params, Tree
from potluck.jobs.objective import Objective


@value
class Appraise(Objective):
    """Plain training that also tells the mean loss, over all own rows, of the model that was sent."""

    looks: ClassVar[bool] = True

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        logits = net(sent["params"], batch.x)  # without a key: as it would be used, no dropout
        return {"sent_loss": F.cross_entropy(logits, batch.y, reduction="none")}

    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]:
        return {"sent_loss": own.seen["sent_loss"]}

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return "loss", "sent_loss"

    def ops(self, net: Net, at: Local, passes: int) -> float:
        return float(len(at.rows) * net.ops)  # one forward pass over every row
