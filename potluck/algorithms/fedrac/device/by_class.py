"""How good a tier's model of Fed-RAC is class by class, so that F1 can be told from a run's records."""

from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Batch, Net
from potluck.core.trees import Params, Tree
from potluck.jobs.losses import row_losses
from potluck.jobs.objective import Objective


@value
class ByClass(Objective):
    """Use a model as it is; besides accuracy and loss, shares of the rows that are told for every class.

    `held 3`: rows of class 3; `said 3`: rows that the model takes for it; `hit 3`: both.
    """

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        logits = net(params, batch.x)
        guess, dtype = logits.argmax(-1), logits.dtype
        scores = {"accuracy": (guess == batch.y).to(dtype), "loss": row_losses(logits, batch.y)}
        for k in range(net.classes):
            ours, theirs = guess == k, batch.y == k
            columns = {"held": theirs, "said": ours, "hit": ours & theirs}
            scores |= {f"{name} {k}": column.to(dtype) for name, column in columns.items()}
        return scores
