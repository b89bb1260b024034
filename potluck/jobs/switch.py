"""Two models on one device, its own and a general one: which of them answers, row by row.

The device's own model is the general one with its last layer trained on the device's rows. What the layers
below make of a row is computed once. No label of a test row is looked at to answer.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.job import Batch, Net, Nets
from potluck.core.parts import part, role
from potluck.core.ranges import LearningRate, Repeats
from potluck.core.trees import Params, Tree
from potluck.jobs.calibrate import Scaling, fit_here
from potluck.jobs.losses import row_losses
from potluck.jobs.objective import Objective, score_rows, weighted_mean
from potluck.jobs.prior import WEIGH, Form
from potluck.jobs.train import Train


class Home(NamedTuple):
    """The device's own rows, which its model was trained on."""

    logits: Tensor  # of its own model
    general: Tensor  # of the general one
    labels: Tensor
    real: Tensor  # 0 for padding
    scaling: Scaling | None = None  # of the general one, if it was sent


class Answers(NamedTuple):
    """What is said of every row."""

    logits: Tensor
    own: Tensor  # the share that the own model has in it, 0 to 1


@role("chooser")
class Chooser(Protocol):
    """What a device answers, given the logits of its own model and of a general one."""

    @property
    def whole(self) -> bool:
        """Whether an answer depends on other rows: then all are given at once, in their order."""
        return False

    def answer(self, own: Tensor, general: Tensor, home: Home, real: Tensor) -> Answers: ...


@part("chooser")
@value
class Entropy(Chooser):
    """The own one, where it is at least as sure of this row as the general one."""

    def answer(self, own: Tensor, general: Tensor, home: Home, real: Tensor) -> Answers:
        return pick(entropy(own) <= entropy(general), own, general)


@part("chooser")
@value
class Threshold(Chooser):
    """The own one, where it is no less sure than of nearly all of the rows that it was trained on."""

    quantile: Annotated[float, "of the entropies of the device's own rows"] = 0.95

    def __post_init__(self) -> None:
        fix = "must be above 0 and at most 1, such as 0.95"
        require(0 < self.quantile <= 1, "switch.quantile", self.quantile, fix)

    def answer(self, own: Tensor, general: Tensor, home: Home, real: Tensor) -> Answers:
        doubts = torch.where(home.real > 0, entropy(home.logits), torch.inf)
        doubts = F.pad(doubts, (0, 1), value=torch.inf).sort().values  # one more: there may be no rows
        place = (self.quantile * (home.real > 0).sum()).ceil().long() - 1
        return pick(entropy(own) <= doubts.gather(0, place.clamp_min(0).reshape(1)), own, general)


@part("chooser")
@value
class Cosine(Chooser):
    """The own one, where both say much the same; as in DM-PFL, what they disagree on was never seen here."""

    limit: Annotated[float, "least cosine between the two answers"] = 0.5

    def __post_init__(self) -> None:
        require(-1 <= self.limit <= 1, "switch.limit", self.limit, "must be between -1 and 1, such as 0.5")

    def answer(self, own: Tensor, general: Tensor, home: Home, real: Tensor) -> Answers:
        return pick(F.cosine_similarity(own, general, dim=-1) >= self.limit, own, general)


@part("chooser")
@value
class Familiar(Chooser):
    """The own one, where the general one sees a class that the device holds (Potluck's own rule).

    Where the general one is right about a class that the device never had, it is always believed.
    """

    def answer(self, own: Tensor, general: Tensor, home: Home, real: Tensor) -> Answers:
        kinds = torch.arange(general.shape[-1], device=general.device)
        present = ((home.labels.unsqueeze(-1) == kinds) & (home.real > 0).unsqueeze(-1)).any(0)
        return pick(present.index_select(0, general.argmax(-1)), own, general)


@part("chooser")
@value
class Prior(Chooser):
    """The general one, weighed by how common each class is among the rows that are met (Potluck's own rule).

    Reads those rows without their labels. How sure the general one may be is fitted on the device's own rows,
    unless it was sent as `scaling`: fitted over devices, that knows of biases which one device can't see.
    """

    form: Annotated[Form, "causal: each row by those before it; batch: all rows before any is answered"] = (
        "causal"
    )

    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self.form in WEIGH, "switch.form", self.form, "must be 'causal' or 'batch'")

    def answer(self, own: Tensor, general: Tensor, home: Home, real: Tensor) -> Answers:
        known = fit_here(home.general, home.labels, home.real) if home.scaling is None else home.scaling
        logits = WEIGH[self.form](known.read(general), real, known.source)
        return Answers(logits, torch.zeros_like(logits[:, 0]))


def pick(mine: Tensor, own: Tensor, general: Tensor) -> Answers:
    """The own model's word for the rows that are `mine`, and the general one's for all others."""
    return Answers(torch.where(mine.unsqueeze(-1), own, general), mine.to(own.dtype))


def entropy(logits: Tensor) -> Tensor:
    """Per row, in nats: how evenly the softmax is spread."""
    logs = logits.log_softmax(-1)
    return -(logs.exp() * logs).sum(-1)


@value
class Switch(Objective):
    """Plain training of the own model's head; then each test row is answered by it or by what was sent."""

    chooser: Chooser = Entropy()

    looks: ClassVar[bool] = True

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        return {"features": net.features(sent["params"], batch.x)}

    @property
    def whole(self) -> bool:
        return self.chooser.whole

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        assert own is not None
        scaling = {"scaling": sent["scaling"]} if "scaling" in sent else {}
        return {"general": sent["params"], "own": (own.seen["features"], own.y, own.weight), **scaling}

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        losses = row_losses(net.head(params, batch.seen["features"]), batch.y)
        loss = weighted_mean(losses, batch.weight)
        return loss, {"loss": loss.detach()}

    def answer(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor:
        """Of a chooser that weighs rows by each other, what it weighs."""
        if self.chooser.whole:
            return net.head(held["general"], batch.seen["features"])
        return self._answer(net, params, batch, held)[2].logits

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        own, general, answers = self._answer(net, params, batch, held)
        return score_answers(own, general, answers, batch)

    def _answer(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, Tensor, Answers]:
        features = batch.seen["features"]
        own, general = net.head(params, features), net.head(held["general"], features)
        mine, labels, real = held["own"]
        scaling = Scaling(**held["scaling"]) if "scaling" in held else None
        home = Home(net.head(params, mine), net.head(held["general"], mine), labels, real, scaling)
        return own, general, self.chooser.answer(own, general, home, batch.weight)


def score_answers(own: Tensor, general: Tensor, answers: Answers, batch: Batch) -> dict[str, Tensor]:
    """Per row: how good the answers of two models are that speak for each other."""
    return {
        **score_rows(answers.logits, batch),
        "own": _score_right(own, batch),  # what each would have got alone
        "general": _score_right(general, batch),
        "personal": answers.own,  # share of rows that the own model answers
    }


def _score_right(logits: Tensor, batch: Batch) -> Tensor:
    return (logits.argmax(-1) == batch.y).to(logits.dtype)


@value
class Personal:
    """How a device makes the general model its own, and when it trusts which: its last layer is trained."""

    epochs: Annotated[Repeats, "passes over its own rows; 0: everybody uses the general model"] = 5
    lr: Annotated[LearningRate, "learning rate of its last layer"] = 0.01
    switch: Annotated[Chooser, "who answers: Entropy, Threshold, Cosine, Familiar or Prior"] = Entropy()

    def __post_init__(self) -> None:
        require(self.epochs >= 0, "personal.epochs", self.epochs, "must be 0 or more")
        require(0 < self.lr < float("inf"), "personal.lr", self.lr, "must be above 0, such as 0.01")

    def job(self, local: Train) -> Train:
        optim, objective = replace(local.optim, lr=self.lr), Switch(self.switch)
        return Train(local.model, objective, optim=optim, batch=local.batch, epochs=self.epochs, part="head")
