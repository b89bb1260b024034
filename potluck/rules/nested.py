"""Models of several sizes that lie inside one another: what the smaller ones are sent, and one mean of all.

A narrow (or shallow) model is the first channels of the wide one (`models.resize`). Every number of the wide
model is averaged over those who have it: HeteroFL's mean, and Fed-RAC's across tiers.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.core.job import Net
from potluck.core.trees import Params
from potluck.models import as_model, cut_params, pad_params


class Part(NamedTuple):
    """One owner's parameters, or its change of them: of which model, and how much they count."""

    net: Net
    params: Params
    weight: float = 1.0
    # By name, which entries of the first axis count [entries]; of parameters that aren't named, all do.
    counts: Mapping[str, Tensor] = {}


def cut_model(params: Params, big: Net, small: Net) -> Params:
    """The small model's part of the big one's parameters, as it is sent."""
    part = cut_params(params, as_model(big), as_model(small))
    return {name: p.contiguous() for name, p in part.items()}


def average_owners(full: Params, big: Net, parts: Sequence[Part]) -> Params:
    """Each number is the weighted mean over the parts that have it; one that nobody has stays as in `full`.

    Of changes, give zeros as `full`: what nobody has then doesn't change.
    """
    sums = {name: torch.zeros_like(p) for name, p in full.items()}
    votes = {name: torch.zeros_like(p) for name, p in full.items()}
    for alike in _by_model(parts):
        net = as_model(alike[0].net)
        weighted: Params = {}
        weights: Params = {}
        for name in net.shapes:
            table = torch.stack([part.params[name] for part in alike])
            votes_of = torch.stack([_votes(part, name) for part in alike])
            weighted[name] = (table * votes_of).sum(0)
            weights[name] = votes_of.expand_as(table).sum(0)
        for name, p in pad_params(weighted, as_model(big), net).items():
            sums[name] = sums[name] + p
        for name, p in pad_params(weights, as_model(big), net).items():
            votes[name] = votes[name] + p
    return {
        name: torch.where(v > 0, sums[name] / v.clamp_min(1e-30), full[name]) for name, v in votes.items()
    }


def find_narrow(big: Net, small: Net) -> tuple[str, ...]:
    """Weights and biases of the small model's layers that have fewer outputs; not of norms, nor of gates.

    Norms make up for sizes themselves; what an LSTM's gates see must not grow.
    """
    wide, narrow = as_model(big), as_model(small)
    layers = [
        name.rpartition(".")[0]
        for name, shape in narrow.shapes.items()
        if len(shape) > 1 and name not in narrow.gates and shape[0] < wide.shapes[name][0]
    ]
    return tuple(name for name in narrow.shapes if name.rpartition(".")[0] in layers)


def _votes(part: Part, name: str) -> Tensor:
    """How much each entry counts, in a form that fits the parameter."""
    p = part.params[name]
    mask = part.counts.get(name)
    ones = torch.ones(1, dtype=p.dtype, device=p.device) if mask is None else mask.to(p)
    return part.weight * ones.reshape(-1, *[1] * (p.ndim - 1))


def _by_model(parts: Sequence[Part]) -> list[list[Part]]:
    """In the order in which models come first."""
    groups: dict[int, list[Part]] = {}
    for part in parts:
        groups.setdefault(id(part.net), []).append(part)
    return list(groups.values())
