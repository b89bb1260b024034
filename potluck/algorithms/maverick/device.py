"""Maverick's device side: towards what the edge's model sees, away from what the global and odd ones see."""

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
class Contrast(Objective):
    """Cross-entropy, mu_p times the personalised and mu_a times the anomalous contrast.

    Each contrast is -log(e^(s_edge / tau) / (e^(s_edge / tau) + e^(s_other / tau))), s being cosines between
    representations of a row, the head's inputs: by the model in training, and by a frozen one. The edge's
    model is the one that was sent; the other is the global model, or each of the anomalous ones, of which
    `share` says how much they count. Frozen models look at every row once; none does without a contrast.

    That pushes on however near the edge is already, and drowns the labels. As a hinge the contrast is
    max(0, s_other - s_edge) / tau: the same slope where the other is far nearer, none where the edge is.
    """

    mu_p: float = 10.0
    mu_a: float = 1.0
    tau: float = 0.5
    hinge: bool = False

    looks: ClassVar[bool] = True
    keeps_model: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, mu in (("mu_p", self.mu_p), ("mu_a", self.mu_a)):
            require(0 <= mu < float("inf"), name, mu, "must be 0 or more; 0 leaves this contrast out")
        require(0 < self.tau < float("inf"), "tau", self.tau, "must be above 0, such as 0.5")

    def blank(self, sent: Tree) -> Tree:
        return {"personal": sent["params"]}

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        if not self.mu_p and not sent["odd"]:
            return {"odd": []}
        # Without a key: as they would be used, no dropout. The differences are all that the loss needs.
        edge = direction(net.features(sent["params"], batch.x))
        # An attacker's model may overflow: what it sees then is like nothing, instead of spoiling the loss.
        seen = [direction(net.features(p, batch.x)).nan_to_num(0.0) for p in sent["odd"]]
        odd = [direction - edge for direction in seen]
        if not self.mu_p:
            return {"odd": odd}
        return {"global": direction(net.features(sent["global"], batch.x)) - edge, "odd": odd}

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return sent["share"]

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return "loss", "loss_personal", "loss_anomalous"

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        z = net.features(params, batch.x, batch.key)  # once, for all three terms
        data = weighted_mean(row_losses(net.head(params, z), batch.y), batch.weight)
        ours = direction(z)

        def contrast(away: Tensor) -> Tensor:  # away: what another model sees, minus what the edge's sees
            ahead = (ours * away).sum(-1) / self.tau
            return weighted_mean(F.relu(ahead) if self.hinge else F.softplus(ahead), batch.weight)

        personal = contrast(batch.seen["global"]) if self.mu_p else data.new_zeros(())
        odd = data.new_zeros(())
        for i, away in enumerate(batch.seen["odd"]):
            odd = odd + held[i] * contrast(away)
        total = data
        if self.mu_p:
            total = total + self.mu_p * personal
        if self.mu_a and batch.seen["odd"]:
            total = total + self.mu_a * odd
        terms = {"loss": data, "loss_personal": personal, "loss_anomalous": odd}
        return total, {name: term.detach() for name, term in terms.items()}

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        return {}, {"personal": apply_update(sent, delta)}

    def ops(self, net: Net, at: Local, passes: int) -> float:
        others = len(at.inbox["odd"]) + (1 if self.mu_p else 0)
        frozen = others + 1 if others else 0  # the edge's, to compare with
        return float(frozen * len(at.rows) * net.ops)  # a pass of each over every row
