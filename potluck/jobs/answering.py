"""What a served model answers, instead of how good that is."""

from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Batch, Net
from potluck.core.trees import Params, Tree
from potluck.jobs.around import AroundObjective
from potluck.jobs.objective import CrossEntropy, Objective


@value
class Answering(AroundObjective):
    """Any objective; to be scored is to tell the logits that each row is answered by."""

    inner: Objective = CrossEntropy()

    @property
    def whole(self) -> bool:
        return False

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        return {"logits": self.inner.answer(net, params, batch, held)}
