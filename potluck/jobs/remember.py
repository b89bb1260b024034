"""Devices that keep the models which they train."""

from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Batch, Net, Nets, Trace
from potluck.core.trees import Params, Tree, add
from potluck.jobs.around import AroundObjective
from potluck.jobs.objective import CrossEntropy, Objective


@value
class Remember(AroundObjective):
    """Any objective; the model that comes out is kept whole, as `personal`, beside what that one keeps."""

    inner: Objective = CrossEntropy()

    def blank(self, sent: Tree) -> Tree:
        return {"personal": sent["params"], "inner": self.inner.blank(sent)}

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        return self.inner.look(models, net, sent, keep["inner"], batch)

    def start(self, sent: Tree, keep: Tree, own: Batch | None) -> Params:
        return self.inner.start(sent, keep["inner"], own)

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return self.inner.hold(sent, keep["inner"], own)

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        more, kept = self.inner.finish(delta, sent, keep["inner"], held, trace)
        # Where training began: with what was sent, but for parameters that are the device's own.
        begun = self.inner.start(sent, keep["inner"], None)
        own: dict[str, Tensor] = add({name: begun[name] for name in delta}, delta)
        return more, {"personal": {**begun, **own}, "inner": keep["inner"] if kept is None else kept}
