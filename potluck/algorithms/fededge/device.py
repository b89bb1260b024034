"""Near the global model instead of the one that training begins with."""

from potluck.core.codec import value
from potluck.core.job import Batch, Net, Nets
from potluck.core.trees import Tree
from potluck.jobs.around import AroundObjective
from potluck.jobs.objective import CrossEntropy, Objective


@value
class Anchored(AroundObjective):
    """An objective that draws to the model that was sent (FedProx, MOON), drawn to `global` in its place.

    Below an edge the two differ: training begins with the edge's model.
    """

    inner: Objective = CrossEntropy()

    def blank(self, sent: Tree) -> Tree:
        return self.inner.blank(_aim_at_global(sent))

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        return self.inner.look(models, net, _aim_at_global(sent), keep, batch)

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return self.inner.hold(_aim_at_global(sent), keep, own)


def _aim_at_global(sent: Tree) -> Tree:
    return {**sent, "params": sent["global"]}
