"""How a device of Fed-RAC uses its tier's model beside those of all poorer tiers.

A rich tier's model is big and has seen few devices' rows; a poor one's is small and, where richer devices
train it too, has seen nearly everybody's. What only weak devices know of, only the small models have learnt,
and the big one is sure that it is something else. So of each class those are heard who have learnt from it.
"""

from typing import ClassVar

import torch
from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Batch, ModelSpec, Net, Nets
from potluck.core.trees import Params, Tree
from potluck.jobs.objective import Objective


@value
class Known(Objective):
    """Use several models: of each class their mean, by the rows of it that each has learnt from."""

    others: tuple[ModelSpec, ...] = ()

    looks: ClassVar[bool] = True

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        each = zip(self.others, sent["others"].values(), strict=True)
        return {str(i): models[spec](params, batch.x).softmax(-1) for i, (spec, params) in enumerate(each)}

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return sent["knows"]

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        each = torch.stack([net(params, batch.x).softmax(-1), *batch.seen.values()])
        said = heed(each, held)
        right = (said.argmax(-1) == batch.y).to(said.dtype)
        chance = said.gather(-1, batch.y.unsqueeze(-1)).squeeze(-1)
        return {"accuracy": right, "loss": -chance.clamp_min(1e-30).log()}


def heed(said: Tensor, knows: Tensor) -> Tensor:
    """Probabilities [rows, classes], of what models say [models, rows, classes] and know [models, classes].

    A class that nobody has learnt from is everybody's alike.
    """
    total = knows.sum(0)
    share = torch.where(total > 0, knows / total.clamp_min(1e-30), 1.0 / len(knows))
    mixed = (said * share.unsqueeze(1)).sum(0)
    return mixed / mixed.sum(-1, keepdim=True).clamp_min(1e-30)
