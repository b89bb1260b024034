"""Recurrent layers of a whole stack of clients, step after step: x [clients, rows, steps, features].

What enters a layer is one product for all steps; what goes on from step to step is one product a step, of all
clients.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

States = tuple[Tensor, ...]  # of a layer [clients, rows, hidden]: what it gives, then what else it remembers


class Weights(NamedTuple):
    """A layer's, in torch's order: [clients, gates x hidden, ...]."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None


class Cell(Protocol):
    """One step: from what enters its gates, its states, and their weights and biases [clients, 1, gates]."""

    joined: bool  # both biases enter alike, so they are added up before

    def __call__(self, gates: Tensor, states: States, turned: Tensor, bias: Tensor | None) -> States: ...


class LSTMCell:
    joined = True

    def __call__(self, gates: Tensor, states: States, turned: Tensor, bias: Tensor | None) -> States:
        h, c = states
        i, f, g, o = torch.baddbmm(gates, h, turned).chunk(4, 2)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class GRUCell:
    joined = False

    def __call__(self, gates: Tensor, states: States, turned: Tensor, bias: Tensor | None) -> States:
        (h,) = states
        inner = _multiply(h, turned, bias)
        (r, z, n), (r_h, z_h, n_h) = gates.chunk(3, 2), inner.chunk(3, 2)
        n = torch.tanh(n + torch.sigmoid(r + r_h) * n_h)
        return (n + torch.sigmoid(z + z_h) * (h - n),)


class PlainCell:
    joined = True

    def __init__(self, relu: bool) -> None:
        self.act = torch.relu if relu else torch.tanh

    def __call__(self, gates: Tensor, states: States, turned: Tensor, bias: Tensor | None) -> States:
        return (self.act(torch.baddbmm(gates, states[0], turned)),)


def scan(cell: Cell, x: Tensor, states: States, w: Weights) -> tuple[Tensor, States]:
    """One layer over all steps: what it gives at each, and its last states."""
    enters, stays = w.b_ih, w.b_hh
    if cell.joined and enters is not None and stays is not None:
        enters, stays = enters + stays, None
    bias = None if stays is None else stays.unsqueeze(1)
    entering = _multiply(
        x.flatten(1, 2), w.w_ih.transpose(1, 2), None if enters is None else enters.unsqueeze(1)
    )
    outputs, turned = [], w.w_hh.transpose(1, 2)
    for gates in entering.view(*x.shape[:3], -1).unbind(2):
        states = cell(gates, states, turned, bias)
        outputs.append(states[0])
    return torch.stack(outputs, 2), states


def scan_all(
    cell: Cell, x: Tensor, starts: Sequence[Tensor], weights: Sequence[Weights], both: bool
) -> tuple[Tensor, ...]:
    """Layers on top of each other, each in one or both directions: the outputs, and the last states.

    `starts` and these are [clients, layers and ways, rows, hidden].
    """
    ways, ends = 1 + both, []
    for layer in range(0, len(weights), ways):
        outputs = []
        for way in range(ways):
            states = tuple(s[:, layer + way] for s in starts)
            out, end = scan(cell, x.flip(2) if way else x, states, weights[layer + way])
            outputs.append(out.flip(2) if way else out)
            ends.append(end)
        x = torch.cat(outputs, 3) if both else outputs[0]
    return x, *(torch.stack(column, 1) for column in zip(*ends, strict=True))


def _multiply(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return torch.bmm(x, w) if bias is None else torch.baddbmm(bias, x, w)
