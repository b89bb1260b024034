"""MOON's device side: towards what the model that was sent sees, away from what one's own last one saw."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.job import Batch, Local, Net, Nets, Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.kept import apply_update
from potluck.jobs.losses import direction, row_losses
from potluck.jobs.objective import Objective, weighted_mean


@value
class Moon(Objective):
    """Cross-entropy and mu times -log(e^(s_sent / tau) / (e^(s_sent / tau) + e^(s_own / tau))).

    s are cosines between representations of a row, the head's inputs: by the model in training and by the one
    that was sent, or by the one that the device trained last. Both of these are frozen, so each row is looked
    at once. A device that never trained has the model that was sent for both: a constant, without a gradient.
    """

    mu: float = 1.0
    tau: float = 0.5

    looks: ClassVar[bool] = True
    keeps_model: ClassVar[bool] = True
    pulls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(0 <= self.mu < float("inf"), "mu", self.mu, "must be 0 or more; 0 leaves the data alone")
        require(0 < self.tau < float("inf"), "tau", self.tau, "must be above 0, such as 0.5")

    def blank(self, sent: Tree) -> Tree:
        return {"personal": sent["params"]}

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        # Without a key: as they would be used, no dropout. The difference is all that the loss needs.
        near, far = (direction(net.features(p, batch.x)) for p in (sent["params"], keep["personal"]))
        return {"away": far - near}

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        z = net.features(params, batch.x, batch.key)  # once, for both terms
        data = weighted_mean(row_losses(net.head(params, z), batch.y), batch.weight)
        ahead = (direction(z) * batch.seen["away"]).sum(-1) / self.tau  # (s_own - s_sent) / tau
        contrast = weighted_mean(F.softplus(ahead), batch.weight)
        metrics = {"loss": data.detach(), "contrast": contrast.detach()}
        return data + self.mu * contrast if self.mu else data, metrics

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return "loss", "contrast"

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        return {}, {"personal": apply_update(sent, delta)}

    def ops(self, net: Net, at: Local, passes: int) -> float:
        return float(2 * len(at.rows) * net.ops)  # a forward pass of both over every row
