"""How large the losses were that a device saw while it trained: what utilities are made of."""

from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Batch, Net
from potluck.core.trees import Params, Tree
from potluck.jobs.around import AroundNet, AroundObjective
from potluck.jobs.losses import row_losses
from potluck.jobs.objective import CrossEntropy, Objective


class _ListeningNet(AroundNet):
    """A net that remembers the first logits that it computed with the parameters in training."""

    __slots__ = ("logits", "params")

    def __init__(self, net: Net, params: Params) -> None:
        super().__init__(net)
        self.params = params
        self.logits: Tensor | None = None

    def __call__(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        return self._note(params, self.net(params, x, key))

    def head(self, params: Params, z: Tensor) -> Tensor:
        return self._note(params, self.net.head(params, z))

    def _note(self, params: Params, logits: Tensor) -> Tensor:
        if self.logits is None and params is self.params:
            self.logits = logits
        return logits


@value
class Tally(AroundObjective):
    """Any objective, which also tells its rows' losses and their squares.

    Training computes these losses anyway, whatever else it minimises, so they cost no pass of their own. Told
    are means over steps of three sums, `losses`, `squares` and `rows`: what the first two are of the third is
    the mean over all rows, also where the last batch of an epoch is small.
    """

    inner: Objective = CrossEntropy()
    usual: int | None = None  # epochs (or steps) that the task would have, had it not been made longer

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        heard = _ListeningNet(net, params)
        loss, metrics = self.inner.loss(heard, params, batch, held)
        # An objective that has no use for logits makes them necessary here.
        logits = net(params, batch.x, batch.key) if heard.logits is None else heard.logits
        losses, weight = row_losses(logits.detach(), batch.y), batch.weight
        sums = {"losses": (losses * weight).sum(), "squares": (losses.square() * weight).sum()}
        return loss, {**metrics, **sums, "rows": weight.sum()}

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return (*self.inner.tells(sent), "losses", "squares", "rows")

    def tells_change_only(self) -> bool:
        return False  # losses say something of the rows
