"""ClassTer's local training: one model tells one class from everything else.

`Balanced` draws batches of target rows, then others: half of each, or fewer target rows where there are so
few. On a device that holds nothing but the target, both halves are target rows, and noise takes the place of
the second. The target is a tensor, so models of different classes train in one stack.
"""

import math
from typing import Annotated, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from potluck.algorithms.classter.device.augment import Augment, ByShape, noise_like
from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.job import Batch, Local, Net, Nets, Rows
from potluck.core.trees import Params, Tree
from potluck.fleet import TRAINING_FACTOR
from potluck.jobs.around import AroundObjective
from potluck.jobs.objective import Objective

_NOISE, _VIEWS, _DROPS = 1, 2, 3  # streams of a batch's key
_KEPT = keys.derive(0, int.from_bytes(b"keepback"))
_FAR = 1e4  # a logit that counts nothing; finite, so that its gradient is 0 rather than no number


@value
class Balanced:
    """Batches of target rows, then others; all rows have their turn before any comes again.

    No target row comes twice in a batch, so that none is told from itself; the loss weighs both kinds alike,
    however few target rows there are. Without any there is nothing to train: no steps, no weight.
    """

    kept: float = 0.0  # share of rows that nobody trains on

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        target, other = self._kinds(at, batch)
        return sum(k for _, k in (target, other)) * self._steps(at, batch, epochs, steps)

    def most(self, at: Local, batch: int) -> float:
        """Its rows, each counted once; none where there is no target row."""
        return float(len(at.rows))

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows:
        kinds = self._kinds(at, batch)
        count = self._steps(at, batch, epochs, steps) if kinds[0][1] else 0
        index, weight = np.zeros((count, batch), np.int64), np.zeros((count, batch), np.float32)
        first = 0
        for place, (rows, width) in enumerate(kinds):
            if count and width:
                drawn = _cycle_rows(rows, count, width, keys.derive(at.seed, place))
                index[:, first : first + width] = drawn
                weight[:, first : first + width] = 1.0
                first += width
        return Rows(index, weight, float(len(at.rows)) if count else 0.0)

    def _kinds(self, at: Local, batch: int) -> list[tuple[NDArray[np.int64], int]]:
        """Target rows and others, and how many of each come into a batch."""
        hits: NDArray[np.bool_] = (at.y == at.inbox["target"]).cpu().numpy()
        free = ~keep_back(at.y.cpu().numpy(), self.kept) if self.kept else np.ones_like(hits)
        target, other = np.flatnonzero(hits & free), np.flatnonzero(~hits & free)
        size = max(2, min(batch, len(target) + len(other)))
        half = size // 2
        if not len(target):
            return [(target, 0), (other, 0)]
        if not len(other):  # these will be replaced by noise
            return [(target, half), (target, size - half)]
        # So target rows are in the first half.
        return [(target, min(half, len(target))), (other, size - half)]

    def _steps(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        return epochs * math.ceil(len(at.rows) / batch) if steps is None else steps


def _cycle_rows(rows: NDArray[np.int64], count: int, width: int, key: int) -> NDArray[np.int64]:
    """[count, width] rows: all in some order, then all again in another; in no batch twice, if possible."""
    size, wanted = len(rows), count * width
    times = -(-wanted // size)
    orders = keys.permute_all(keys.hash_all(key, np.arange(times)), np.full(times, size))
    for t in range(1, times) if width < size else ():
        if begun := t * size % width:  # rows that the batch has of the order before
            other = np.flatnonzero(~np.isin(orders[t], orders[t - 1, size - begun :]))[: width - begun]
            orders[t] = np.concatenate([orders[t, other], np.delete(orders[t], other)])
    return rows[orders.reshape(-1)[:wanted]].reshape(count, width)


@value
class Detect(Objective):
    """Tell the target class from the rest, and tell its rows from one another (NT-Xent over their views)."""

    contrast: Annotated[float, "weight of the contrast between its rows; 0: without"] = 1.0
    temperature: Annotated[float, "tau, of the contrast"] = 0.25
    augment: Annotated[Augment, "how a row is changed into another view of it"] = ByShape()

    def __post_init__(self) -> None:
        require(0 <= self.contrast < float("inf"), "detect.contrast", self.contrast, "must be 0 or more")
        fix = "must be above 0, such as 0.25"
        require(0 < self.temperature < float("inf"), "detect.temperature", self.temperature, fix)

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return sent["target"]

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        wanted, other, fake = _part_rows(batch, held)
        shape = (-1, *[1] * (batch.x.dim() - 1))
        noise = noise_like(batch.x, keys.fold_in(batch.key, _NOISE), (batch.weight > 0).sum())
        x = torch.where(fake.view(shape), noise, batch.x)
        half = len(x) // 2  # no target row lies beyond, with or without padding
        if not self.contrast or half < 2:  # a row alone differs from nothing
            loss = _balance(binary_losses(net(params, x, batch.key), wanted), wanted, other | fake)
            told = {"loss": loss.detach()}
            return loss, {**told, "contrast": torch.zeros_like(told["loss"])} if self.contrast else told
        views = self.augment.view(x[:half], keys.fold_in(batch.key, _VIEWS))
        # Each by itself: dropout goes by place, and views must not move with the padding before them.
        z, again = net.features(params, x, batch.key), keys.fold_in(batch.key, _DROPS)
        loss = _balance(binary_losses(net.head(params, z), wanted), wanted, other | fake)
        apart = nt_xent(z[:half], net.features(params, views, again), self.temperature, wanted[:half])
        return loss + self.contrast * apart, {"loss": loss.detach(), "contrast": apart.detach()}

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return ("loss", "contrast") if self.contrast else ("loss",)

    def row_losses(self, net: Net, params: Params, batch: Batch, target: Tensor) -> Tensor:
        """Per row as it is, of the class or not: how badly it is told apart."""
        return binary_losses(net(params, batch.x), batch.y == target)

    def ops(self, net: Net, at: Local, passes: int) -> float:
        return TRAINING_FACTOR * passes / 2 * net.ops if self.contrast else 0.0  # the other views

    def tells_change_only(self) -> bool:
        return False  # devices also say which classes they hold, and convergence is told by their losses

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        right = (net(params, batch.x).squeeze(-1) > 0) == (batch.y == held)
        return {
            "accuracy": right.to(batch.weight.dtype),
            "loss": self.row_losses(net, params, batch, held),
        }


@value
class Fall(AroundObjective):
    """A detector's training that also tells how far its loss on all own rows fell: two more passes."""

    inner: Detect = Detect()

    looks: ClassVar[bool] = True

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        return {"before": self.inner.row_losses(net, sent["params"], batch, sent["target"])}

    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]:
        return {"fall": own.seen["before"] - self.inner.row_losses(net, params, own, held)}

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return (*self.inner.tells(sent), "fall")

    def ops(self, net: Net, at: Local, passes: int) -> float:
        return self.inner.ops(net, at, passes) + 2.0 * len(at.rows) * net.ops


def keep_back(y: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Which of a device's rows no detector trains on: the same ones each time, but never all of a class."""
    kept = _mark_places(len(y), share)
    for c in np.unique(y[kept]):
        if kept[y == c].all():
            kept[y == c] = False
    return kept


def count_kept(rows: int, share: float) -> int:
    """How many of so many rows a device can keep back, at most."""
    return int(_mark_places(rows, share).sum())


def _mark_places(rows: int, share: float) -> NDArray[np.bool_]:
    """By their places: what rows are called elsewhere isn't known on a real device."""
    return keys.uniforms(_KEPT, np.arange(rows)) < share


def binary_losses(logits: Tensor, wanted: Tensor) -> Tensor:
    """Per row: the binary cross-entropy of one logit."""
    z = logits.squeeze(-1)
    return F.softplus(z) - z * wanted.to(z.dtype)


def nt_xent(one: Tensor, other: Tensor, temperature: float, real: Tensor | None = None) -> Tensor:
    """How badly two views of a row find each other among all views, by cosines (Chen et al. 2020).

    Rows that aren't `real` count nothing; with fewer than two that are, there is nothing to tell apart.
    """
    count = len(one)
    real = torch.ones(count, dtype=torch.bool, device=one.device) if real is None else real
    there = torch.cat([real, real])
    z = F.normalize(torch.cat([one, other]), dim=-1)
    itself = torch.eye(2 * count, dtype=torch.bool, device=z.device)
    alike = (z @ z.t() / temperature).masked_fill(itself | ~there, -_FAR)
    pairs = torch.cat([alike.diagonal(count), alike.diagonal(-count)])  # i with i + count, and back
    losses = torch.where(there & (real.sum() > 1), alike.logsumexp(-1) - pairs, 0.0)
    return losses.sum() / there.sum().clamp_min(1)


def _part_rows(batch: Batch, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows of a batch are of the target, which are others, and which are to be noise."""
    real, hit = batch.weight > 0, batch.y == target
    other = real & ~hit
    early = torch.arange(len(real), device=real.device) < real.sum() // 2
    alone = ~other.any()  # nothing but the target is there
    wanted = real & hit & (early | ~alone)
    return wanted, other, real & hit & ~wanted


def _balance(losses: Tensor, wanted: Tensor, other: Tensor) -> Tensor:
    """Half the mean of each kind, however many rows it has."""
    means = [(losses * kind).sum() / kind.sum().clamp_min(1) for kind in (wanted, other)]
    return (means[0] + means[1]) / 2
