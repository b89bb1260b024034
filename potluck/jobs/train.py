"""Local training: one job whose parts are fields, so that a new objective is one small class."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Literal, Self

import torch.nn.functional as F
from torch import Tensor

from potluck.codec import value
from potluck.contracts import Batch, Cost, Local, ModelSpec, Net, Nets, Rows, Trace
from potluck.fleet import TRAINING_FACTOR
from potluck.jobs.objective import CrossEntropy, Objective, cross_entropy
from potluck.jobs.optim import SGD, Adam
from potluck.jobs.sampling import Sampler, Shuffled, nothing
from potluck.trees import Params, Tree, sub


@value
class Train:
    """Train the model that was sent on the device's rows and reply with the change."""

    model: ModelSpec = ModelSpec()
    objective: Objective = CrossEntropy()
    sampler: Sampler = Shuffled()
    optim: SGD | Adam = SGD()
    batch: int = 10
    epochs: int = 1
    steps: int | None = None  # a number of batches instead of epochs
    part: Literal["all", "head"] = "all"  # what is trained; the rest stays as it was sent

    def with_lr(self, lr: float) -> Self:
        return replace(self, optim=replace(self.optim, lr=lr))

    def shape(self) -> Hashable:
        optim = replace(self.optim, lr=0.0)
        return type(self), self.model, self.objective, type(self.sampler), optim, self.batch, self.part

    def cost(self, at: Local) -> Cost:
        net, params = at.models[self.model], at.inbox["params"]
        passes = self.sampler.passes(at, self.batch, self.epochs, self.steps)
        ops = TRAINING_FACTOR * passes * net.ops + self.objective.ops(at, passes)
        trained = self._trained(net, params)
        return Cost(ops, {"delta": trained, **self.objective.sends(trained)})

    def draw(self, at: Local) -> Rows:
        return self.sampler.draw(at, self.batch, self.epochs, self.steps)

    def look(self, models: Nets, sent: Tree, batch: Batch) -> Tree:
        return self.objective.look(models, sent, batch)

    def blank(self, sent: Tree) -> Tree:
        return self.objective.blank(sent)

    def begin(self, net: Net, sent: Tree, keep: Tree) -> tuple[Params, Tree]:
        trained = self._trained(net, sent["params"])
        frozen = {k: v for k, v in sent["params"].items() if k not in trained}
        return trained, (frozen, self.objective.hold(sent, keep))

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        frozen, mine = held
        data = cross_entropy(net, {**frozen, **params}, batch)
        return data + self.objective.penalty(net, params, batch, mine), {"loss": data.detach()}

    def finish(
        self, params: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[Tree, Tree, dict[str, Tensor]]:
        delta = sub(params, {name: sent["params"][name] for name in params})
        more, kept = self.objective.finish(delta, sent, keep, held[1], trace)
        return {"delta": delta, **more}, kept, trace.means

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        return classified(net, {**held[0], **params}, batch)

    def _trained(self, net: Net, params: Params) -> Params:
        return params if self.part == "all" else {k: params[k] for k in net.head_names}


@value
class Evaluate:
    """Use a model as it was sent: training of no steps, so that it is scored like any other."""

    model: ModelSpec = ModelSpec()
    optim: SGD | Adam = SGD(lr=0.0)

    def shape(self) -> Hashable:
        return type(self), self.model

    def cost(self, at: Local) -> Cost:
        return Cost(len(at.rows) * at.models[self.model].ops, {})

    def draw(self, at: Local) -> Rows:
        return nothing(1)

    def look(self, models: Nets, sent: Tree, batch: Batch) -> Tree:
        return None

    def blank(self, sent: Tree) -> Tree:
        return None

    def begin(self, net: Net, sent: Tree, keep: Tree) -> tuple[Params, Tree]:
        return sent["params"], None

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        return cross_entropy(net, params, batch), {}

    def finish(
        self, params: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[Tree, Tree, dict[str, Tensor]]:
        return {}, None, {}

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        return classified(net, params, batch)


def classified(net: Net, params: Params, batch: Batch) -> dict[str, Tensor]:
    """Per row: whether the most likely class is the right one, and the loss."""
    logits = net(params, batch.x)
    right = (logits.argmax(-1) == batch.y).to(logits.dtype)
    return {"accuracy": right, "loss": F.cross_entropy(logits, batch.y, reduction="none")}


def fine_tuned(local: Train, epochs: int = 1, part: Literal["all", "head"] = "all") -> Train:
    """The job of a device that adapts the model to its own rows before it uses it."""
    return replace(local, objective=CrossEntropy(), epochs=epochs, steps=None, part=part)
