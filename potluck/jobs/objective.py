"""Local objectives: what a device minimises on its own rows.

A new objective is one small class that says what differs from plain cross-entropy; the defaults below are
"nothing more". All that touches tensors must be a pure function of them (see `core.job.Training`).
"""

from typing import ClassVar, Protocol

from torch import Tensor

from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.job import Batch, Local, Net, Nets, Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.losses import row_losses


class Objective(Protocol):
    """The parts of local training that papers change; all have defaults."""

    @property
    def looks(self) -> bool:
        """Whether `look` and `review` are wanted: a pass over all own rows each."""
        return False

    @property
    def packs(self) -> bool:
        """Whether what is sent must be unpacked before it can be folded."""
        return False

    @property
    def keeps_model(self) -> bool:
        """Whether the device keeps the model that it trains, as `personal`."""
        return False

    @property
    def whole(self) -> bool:
        """Whether `score` must see all of a device's test rows at once, in their order."""
        return False

    @property
    def pulls(self) -> bool:
        """Whether it draws the device to the model that was sent."""
        return False

    def blank(self, sent: Tree) -> Tree:
        """What a device that kept nothing starts from."""
        return None

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        """What frozen models make of rows: computed once per row, found again in `batch.seen`."""
        return {}

    def form(self, sent: Tree) -> Params:
        """Parameters of the form of those that are trained."""
        params: Params = sent["params"]
        return params

    def start(self, sent: Tree, keep: Tree, own: Batch | None) -> Params:
        """The parameters that training starts from; `own`: all own rows and what `look` saw, if it looks."""
        return self.form(sent)

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        """What `loss` needs beside the parameters; constant over the task's steps."""
        return None

    def penalty(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor | float:
        """What is added to the mean cross-entropy of the batch."""
        return 0.0

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        """What a step descends, and numbers whose means over the steps are reported."""
        data = cross_entropy(net, params, batch)
        more = self.penalty(net, params, batch, held)
        return data if isinstance(more, float) and more == 0 else data + more, {"loss": data.detach()}

    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]:
        """Per own row after training; weighted means are reported."""
        return {}

    def tells(self, sent: Tree) -> tuple[str, ...]:
        """The names of all that `loss` and `review` report; a reply that tells others is refused."""
        return ("loss",)

    def sends(self, params: Params) -> dict[str, Tree]:
        """The form of what `finish` adds to the reply's body."""
        return {}

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        """What is sent beside the delta, and what the device keeps (None: as before)."""
        return {}, None

    def tells_change_only(self) -> bool:
        """Whether all that leaves the device follows from the delta that `finish` is given and what was sent.

        If so, noise on the delta makes all of it private, and no metric is needed. A part that sends more, or
        whose rule reads metrics, is taken not to, unless it says so.
        """
        own = type(self)
        return own.sends is Objective.sends and own.review is Objective.review

    def unpack(self, body: Tree, sent: Tree, params: Params) -> Tree:
        """A reply's body as a rule reads it, if this packs; `params`: the form of what was trained."""
        return body

    def answer(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor:
        """Per row: the logits that it is answered by, whatever the other rows are."""
        return net(params, batch.x)

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        """Per test row: how good the answers are."""
        return score_rows(self.answer(net, params, batch, held), batch)

    def ops(self, net: Net, at: Local, passes: int) -> float:
        """Multiply-accumulates beside the model's own training: frozen models' forward passes, say."""
        return 0.0


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """The mean of `losses`, one a row, over real rows: padding has `weight` 0."""
    return (losses * weight).sum() / weight.sum().clamp_min(1e-12)


def cross_entropy(net: Net, params: Params, batch: Batch) -> Tensor:
    """The mean cross-entropy of a `batch`, as `net` sees it with `params`."""
    logits = net(params, batch.x, batch.key)
    return weighted_mean(row_losses(logits, batch.y), batch.weight)


def score_rows(logits: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Per row: whether the most likely class is the right one, and the loss."""
    right = (logits.argmax(-1) == batch.y).to(logits.dtype)
    return {"accuracy": right, "loss": row_losses(logits, batch.y)}


@value
class CrossEntropy(Objective):
    """Nothing but the data."""


@value
class Prox(Objective):
    """FedProx: stay near the model that was sent, mu/2 ||w - w_sent||^2."""

    mu: float = 0.1

    pulls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self.mu >= 0, "mu", self.mu, "must be 0 or more; 0 leaves the data alone")

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return sent["params"]

    def penalty(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor | float:
        far: list[Tensor] = [((p - held[name]) ** 2).sum() for name, p in params.items()]
        return self.mu / 2 * sum(far[1:], far[0])
