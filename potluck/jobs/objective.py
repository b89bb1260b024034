"""Local objectives: what a device minimises, beside its own data.

A new objective is one small class that says what differs from plain cross-entropy; the defaults below are
"nothing more". Everything but `sends` is a pure tensor function (see `contracts.Training`).
"""

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from potluck.codec import value
from potluck.contracts import Batch, Local, Net, Nets, Trace
from potluck.errors import require
from potluck.trees import Params, Tree


class Objective(Protocol):
    """The parts of local training that papers change; all have defaults."""

    def look(self, models: Nets, sent: Tree, batch: Batch) -> Tree:
        """What frozen models make of rows, computed once per row; None: nothing."""
        return None

    def blank(self, sent: Tree) -> Tree:
        """What a device that kept nothing starts from."""
        return None

    def hold(self, sent: Tree, keep: Tree) -> Tree:
        """What `loss` needs beside the parameters; constant over the task's steps."""
        return None

    def penalty(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor | float:
        """What is added to the mean cross-entropy of the batch."""
        return 0.0

    def sends(self, params: Params) -> dict[str, Tree]:
        """The form of what `finish` adds to the reply's body."""
        return {}

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        """What is sent beside the delta, and what the device keeps (None: as before)."""
        return {}, None

    def ops(self, at: Local, passes: int) -> float:
        """Multiply-accumulates beside the model's own training: frozen models' forward passes, say."""
        return 0.0


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """The mean over real rows; padding has weight 0."""
    return (losses * weight).sum() / weight.sum().clamp_min(1e-12)


def cross_entropy(net: Net, params: Params, batch: Batch) -> Tensor:
    """Mean cross-entropy of a batch."""
    logits = net(params, batch.x, batch.key)
    return weighted_mean(F.cross_entropy(logits, batch.y, reduction="none"), batch.weight)


@value
class CrossEntropy(Objective):
    """Nothing but the data."""


@value
class Prox(Objective):
    """FedProx: stay near the model that was sent, mu/2 ||w - w_sent||^2."""

    mu: float = 0.1

    def __post_init__(self) -> None:
        require(self.mu >= 0, "mu", self.mu, "must be 0 or more; 0 leaves the data alone")

    def hold(self, sent: Tree, keep: Tree) -> Tree:
        return sent["params"]

    def penalty(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor | float:
        far: list[Tensor] = [((p - held[name]) ** 2).sum() for name, p in params.items()]
        return self.mu / 2 * sum(far[1:], far[0])
