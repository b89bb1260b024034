"""Two models on one device, its own and a general one: which of them answers, row by row.

Scored with `part = "head"` and some epochs, the device's own model is the general one with its last layer
trained on the device's rows. No label of a test row is looked at to choose.
"""

from dataclasses import replace
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.codec import value
from potluck.contracts import Batch, Net, Nets
from potluck.errors import require
from potluck.jobs.losses import row_losses
from potluck.jobs.objective import Objective
from potluck.jobs.train import Train
from potluck.trees import Params, Tree


class Chooser(Protocol):
    """Where the own model answers; `home`: what it says of the device's own rows, if that is wanted."""

    home: ClassVar[bool]

    def __call__(self, own: Tensor, general: Tensor, home: Tensor | None, real: Tensor | None) -> Tensor: ...


@value
class Entropy:
    """The one that is surer of this row."""

    home: ClassVar[bool] = False

    def __call__(self, own: Tensor, general: Tensor, home: Tensor | None, real: Tensor | None) -> Tensor:
        return entropy(own) <= entropy(general)


@value
class Threshold:
    """The own one, where it is no less sure than of nearly all of the rows that it was trained on."""

    quantile: float = 0.95

    home: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fix = "must be above 0 and at most 1, such as 0.95"
        require(0 < self.quantile <= 1, "switch.quantile", self.quantile, fix)

    def __call__(self, own: Tensor, general: Tensor, home: Tensor | None, real: Tensor | None) -> Tensor:
        assert home is not None
        assert real is not None
        doubts = torch.where(real > 0, entropy(home), torch.inf).sort().values
        place = (self.quantile * (real > 0).sum()).ceil().long() - 1
        limit = doubts.gather(0, place.clamp_min(0).reshape(1))
        return entropy(own) <= limit


@value
class Cosine:
    """The own one, where both say much the same; as in DM-PFL, what they disagree on was never seen here."""

    limit: float = 0.5

    home: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(-1 <= self.limit <= 1, "switch.limit", self.limit, "must be between -1 and 1, such as 0.5")

    def __call__(self, own: Tensor, general: Tensor, home: Tensor | None, real: Tensor | None) -> Tensor:
        return F.cosine_similarity(own, general, dim=-1) >= self.limit


def entropy(said: Tensor) -> Tensor:
    """Per row, in nats: how evenly the softmax is spread."""
    logs = said.log_softmax(-1)
    return -(logs.exp() * logs).sum(-1)


@value
class Switch(Objective):
    """Plain training of the own model; then each test row is answered by it or by the model that was sent."""

    chooser: Chooser = Entropy()

    @property
    def looks(self) -> bool:  # type: ignore[override]
        return self.chooser.home

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        return {}  # rows are wanted, no frozen model's view of them

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return {"general": sent["params"], "rows": None if own is None else (own.x, own.weight)}

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        own, general = net(params, batch.x), net(held["general"], batch.x)
        rows, real = (None, None) if held["rows"] is None else held["rows"]
        mine = self.chooser(own, general, None if rows is None else net(params, rows), real)
        return answered(own, general, mine, batch)


def answered(own: Tensor, general: Tensor, mine: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Per row: how good the answers of two models are, where the own one gives those that are `mine`."""
    said = torch.where(mine.unsqueeze(-1), own, general)
    return {
        "accuracy": _right(said, batch),
        "loss": row_losses(said, batch.y),
        "own": _right(own, batch),  # what each would have got alone
        "general": _right(general, batch),
        "personal": mine.to(said.dtype),  # share of rows that the own model answers
    }


def _right(said: Tensor, batch: Batch) -> Tensor:
    return (said.argmax(-1) == batch.y).to(said.dtype)


@value
class Personal:
    """How a device makes the general model its own, and when it trusts which: its last layer is trained."""

    epochs: int = 5  # passes over its own rows; 0: everybody uses the general model
    lr: float = 0.01
    switch: Chooser = Entropy()  # who answers: Entropy, Threshold or Cosine

    def __post_init__(self) -> None:
        require(self.epochs >= 0, "personal.epochs", self.epochs, "must be 0 or more")
        require(0 < self.lr < float("inf"), "personal.lr", self.lr, "must be above 0, such as 0.01")

    def job(self, local: Train) -> Train:
        optim, objective = replace(local.optim, lr=self.lr), Switch(self.switch)
        return Train(local.model, objective, optim=optim, batch=local.batch, epochs=self.epochs, part="head")
