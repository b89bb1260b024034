"""How sure a model may be: a temperature and a bias for every class, fitted by sums that devices tell.

Bias-corrected temperature scaling (Alexandari, Kundaje, Shrikumar 2020, Maximum Likelihood with
Bias-Corrected Calibration is Hard-To-Beat at Label Shift Adaptation): logits z become z / T + b. In 1 / T and
b the likelihood of rows with known labels is concave, so its gradient and its curvature, summed over devices,
are all that a server needs for a Newton step. A weak normal prior keeps both finite where rows are told apart
without error, or a class has none.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

ROUNDS = 12  # of asking everybody for sums; mostly the last four change nothing
RIDGE = 1.0  # of the normal prior: 1 / T deviates from 1, and a bias from 0, by so much
FLAT, STEEP = 0.01, 100.0  # bounds of 1 / T
FAINT = -50.0  # the log of a chance that counts as none
_DAMP, _TRUST = 1e-3, 8.0  # of the first step, as a share of the curvature; how fast it changes


class Scaling(NamedTuple):
    """What logits are multiplied by, what is added for each class, and how common each was among the rows."""

    slope: Tensor  # 1 / T
    bias: Tensor  # [classes]
    source: Tensor  # [classes] shares of the rows that it was fitted on

    def read(self, logits: Tensor) -> Tensor:
        """The logs of what a model's logits come to [..., rows, classes], as chances."""
        return (tame(logits) * self.slope + self.bias).log_softmax(-1).clamp_min(FAINT)


class Sums(NamedTuple):
    """What a device tells of its rows, at one temperature and bias: sums that can be added up."""

    counts: Tensor  # [classes] rows with this label
    loss: Tensor  # negative log-likelihood
    slope: Tensor  # its gradient [1 + classes]: by 1 / T, then by each bias
    curve: Tensor  # its second derivatives


class Search(NamedTuple):
    """Where the fit stands; all of it is tensors, so that many can be fitted at once."""

    at: Tensor  # [1 + classes] what is asked for next: 1 / T, then biases
    best: Tensor
    loss: Tensor  # of the best, as all that follows
    slope: Tensor
    curve: Tensor
    damp: Tensor


def tame(logits: Tensor) -> Tensor:
    """Logits as logs of chances, none of them far below others; a row that has no numbers says nothing."""
    good = logits.isfinite().all(-1, keepdim=True)
    return torch.where(good, logits, 0.0).log_softmax(-1).clamp_min(FAINT)


def sum_up(logits: Tensor, labels: Tensor, weight: Tensor, at: Tensor, offset: Tensor | float = 0.0) -> Sums:
    """What a device's rows say of a temperature and biases; rows of weight 0 say nothing.

    `offset`: known logs of how common classes are among these rows; without it the biases take them up.
    """
    z, classes = tame(logits), logits.shape[-1]
    right = F.one_hot(labels, classes).to(z.dtype)
    logs = (z * at[0] + at[1:] + offset).log_softmax(-1)
    chance = logs.exp() * weight.unsqueeze(-1)
    off = chance - right * weight.unsqueeze(-1)
    mean = (logs.exp() * z).sum(-1, keepdim=True)
    bend = chance * (z - mean)  # of a bias and 1 / T
    flat = torch.diag_embed(chance.sum(-2)) - chance.transpose(-1, -2) @ logs.exp()
    across = bend.sum(-2).unsqueeze(-1)
    top = torch.cat([(bend * z).sum((-2, -1)).reshape(1, 1), across.transpose(-1, -2)], -1)
    return Sums(
        counts=(right * weight.unsqueeze(-1)).sum(-2),
        loss=-((logs * right).sum(-1) * weight).sum(),
        slope=torch.cat([(off * z).sum().reshape(1), off.sum(-2)]),
        curve=torch.cat([top, torch.cat([across, flat], -1)]),
    )


def begin_search(like: Tensor, classes: int) -> Search:
    """Where a model says next to nothing: from there Newton's steps don't overshoot. `like`: of what type."""
    at = torch.cat([like.new_full((1,), FLAT), like.new_zeros(classes)])
    square = like.new_zeros(1 + classes, 1 + classes)
    return Search(at, at, like.new_full((), torch.inf), torch.zeros_like(at), square, like.new_ones(()))


def take_step(search: Search, sums: Sums) -> Search:
    """Go on from the better of two places: a Newton step, the shorter the more often the last ones failed."""
    at = search.at
    off = torch.cat([at[:1] - 1, at[1:]])  # from logits as they are
    loss = sums.loss + RIDGE / 2 * off.square().sum()
    slope, curve = sums.slope + RIDGE * off, sums.curve + RIDGE * torch.eye(len(at)).to(sums.curve)
    better = loss <= search.loss
    loss, best = torch.where(better, loss, search.loss), torch.where(better, at, search.best)
    slope, curve = torch.where(better, slope, search.slope), torch.where(better, curve, search.curve)
    damp = torch.where(better, search.damp / _TRUST, search.damp * _TRUST)
    reach = curve + torch.diag_embed(_DAMP * damp * curve.diagonal(dim1=-2, dim2=-1))
    after = best - torch.linalg.solve(reach, slope)
    after = torch.cat([after[:1].clamp(FLAT, STEEP), after[1:]])
    return Search(after, best, loss, slope, curve, damp)


def end_search(search: Search, source: Tensor) -> Scaling:
    """What was found; `source`: shares of the rows that it was fitted on."""
    return Scaling(search.best[0], search.best[1:], source)


def fit_here(logits: Tensor, labels: Tensor, real: Tensor) -> Scaling:
    """The best that a device can do alone, of a model that knows all classes equally well.

    Its own classes are known to be common here, so they don't pass for biases; of classes that it lacks it
    learns nothing but the temperature.
    """
    classes = logits.shape[-1]
    own = (F.one_hot(labels, classes) * real.unsqueeze(-1)).sum(-2).to(logits.dtype)
    offset = own.clamp_min(torch.finfo(logits.dtype).tiny).log().log_softmax(-1).clamp_min(FAINT)
    search = begin_search(logits, classes)
    for _ in range(ROUNDS):
        search = take_step(search, sum_up(logits, labels, real, search.at, offset))
    return end_search(search, torch.full_like(offset, 1 / classes))


def share_of(counts: Tensor) -> Tensor:
    """Shares of classes, of which one that has no row counts as having one."""
    some = counts.clamp_min(1.0)
    return some / some.sum(-1, keepdim=True)


def count_bytes(classes: int, itemsize: int = 8) -> tuple[int, int]:
    """What a device is sent for a fit, and what it sends: in every round 1 / T and biases, and its sums."""
    size = 1 + classes
    return ROUNDS * size * itemsize, ROUNDS * (classes + 1 + size + size * size) * itemsize
