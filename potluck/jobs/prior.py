"""How common each class is among rows without labels, and what that makes of a model's answers.

Where classes are met in other shares than a model was fitted to, and look as they did, chances are to be
weighed by new shares over old ones (Saerens, Latinne, Decaestecker 2002, Adjusting the Outputs of a
Classifier to New a Priori Probabilities). The new shares are estimated from what the model says of a device's
own rows; no label is read, nor anything of where the rows come from. In two forms: `weigh_together` looks at
all rows before it answers any, `weigh_in_order` answers each by itself and those before it. Or they are those
of the labels that the device has, of its training rows (`weigh_by_labels`), and no row is looked at.

All of it is for logs of chances [..., rows, classes], whatever axes are before these; padding has weight 0.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Form = Literal["causal", "batch"]
ServedForm = Literal["causal", "batch", "labels"]
STEPS = 50  # of EM; its shares hardly move any more
# So many rows of the shares that the model knows are added to every estimate: three rows can't say much. This
# and the two below were chosen on validation rows of Fashion-MNIST, drawn anew for ten kinds of shift.
SMOOTHING = 1.0
# The bank of guesses that rows in order are answered by: what each keeps of its past from row to row. The
# first learns nothing; they are believed the more, the likelier they found the rows so far.
KEPT = (0.0, 1.0, 0.9)
STRAY = 0.02  # of the belief is shared out evenly after each row, so that a guess can come back


def weigh_by_labels(logs: Tensor, held: Tensor, source: Tensor) -> Tensor:
    """By the shares of the labels that a device has so many of, `held` [..., classes]; unnormalised."""
    shares = (held + SMOOTHING * source) / (held.sum(-1, keepdim=True) + SMOOTHING)
    return logs + (shares / source).log().unsqueeze(-2)


def weigh_together(logs: Tensor, weight: Tensor, source: Tensor) -> Tensor:
    """By the shares of all these rows, unnormalised; `source`: the shares that the model knows."""
    return logs + (estimate_shares(logs, weight, source) / source).log().unsqueeze(-2)


def estimate_shares(logs: Tensor, weight: Tensor, source: Tensor) -> Tensor:
    """The shares of classes [..., classes] under which these rows are most likely, by EM from even ones."""
    rows, real = weight.sum(-1, keepdim=True), weight.unsqueeze(-1)
    shares = torch.full_like(logs.sum(-2), 1 / logs.shape[-1])
    for _ in range(STEPS):
        chances = (logs + (shares / source).log().unsqueeze(-2)).softmax(-1)
        shares = ((chances * real).sum(-2) + SMOOTHING * source) / (rows + SMOOTHING)
    return shares


def weigh_in_order(logs: Tensor, weight: Tensor, source: Tensor) -> Tensor:
    """The same, each row by those before it and itself alone."""
    kept = logs.new_tensor(KEPT).unsqueeze(-1)
    learns = (kept > 0).to(logs.dtype)
    counts = torch.zeros_like(logs.sum(-2, keepdim=True)) * kept  # [..., guesses, classes]
    belief = torch.ones_like(counts[..., 0]) / len(KEPT)
    known, answers = source.unsqueeze(-2), []
    for row, real in zip(logs.unbind(-2), weight.unbind(-1), strict=True):
        shares = (counts + SMOOTHING * known) / (counts.sum(-1, keepdim=True) + SMOOTHING)
        joint = shares / known * row.exp().unsqueeze(-2)
        likely = joint.sum(-1)
        answers.append((belief.unsqueeze(-1) * joint).sum(-2).log())
        there = (real > 0).unsqueeze(-1)
        after = learns * (kept * counts + joint / likely.unsqueeze(-1))
        counts = torch.where(there.unsqueeze(-1), after, counts)
        believed = belief * likely / (belief * likely).sum(-1, keepdim=True)
        belief = torch.where(there, (1 - STRAY) * believed + STRAY / len(KEPT), belief)
    return torch.stack(answers, -2) if answers else logs


WEIGH: dict[Form, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "causal": weigh_in_order,
    "batch": weigh_together,
}
