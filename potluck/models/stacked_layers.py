"""Layers that compute for a whole stack of clients: rows [clients, rows, ...], weights [clients, ...].

What `vmap` would do to each operation by rule is done by hand, in the forms that run fast: a linear layer is
a batched product, a convolution one with groups or windows, and what treats every row alike sees one long
batch. A layer that isn't known here is mapped by vmap, out of which its functions step (`mapped_functions`).
Results agree with one client at a time.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor, peek_interpreter_stack

from potluck.core import vmap as stacks
from potluck.core.trees import Params
from potluck.models import stacked_functions as many
from potluck.models.convolve import Geometry, convolve
from potluck.models.dropout import Draws, KeyedDropout
from potluck.models.layers import Name, Step, compile_layer, is_plain, join, list_layers
from potluck.models.recurrent import LSTMCell, Weights, scan
from potluck.models.zoo.blocks import Last, PlainLSTM, Residual, Steps

PIECE = 128  # rows: the quickest for convolutions on a CPU, and hardly slower for other layers


class Call:
    """A part of a network: for one client's tensors, or inside of a vmap for all clients at once."""

    def __init__(self, parts: list[nn.Module], one: Step, many: Step, name: Name) -> None:
        self.one, self.many = one, many
        self.names = tuple(dict.fromkeys(name(p) for part in parts for p in part.parameters()))
        self.draws = any(isinstance(m, KeyedDropout) for part in parts for m in part.modules())

    def __call__(self, params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        if peek_interpreter_stack() is None:
            return self._rows(params, x, key)
        if not stacks.mapping():
            return self.one(params, x, key)
        if not any(is_batchedtensor(params[name]) for name in self.names):  # one model for all, frozen
            if self.draws and key is not None:
                return self.one(params, x, key)
            return stacks.by_row(lambda rows: self._rows(params, rows, None), x)

        def many(x: Tensor, key: Tensor | None, *weights: Tensor) -> Tensor:
            return self.many(dict(zip(self.names, weights, strict=True)), x, key)

        return stacks.outside(many, (x, key, *(params[name] for name in self.names)))

    def _rows(self, params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        """One client's; of many rows where nothing is learnt, a few at a time: on a CPU what they become must
        fit into its cache, or a network of convolutions takes several times as long."""
        if key is not None or torch.is_grad_enabled() or not x.is_cpu or len(x) <= PIECE:
            return self.one(params, x, key)
        return torch.cat([self.one(params, rows, None) for rows in x.split(PIECE)])


def stack_layer(leaf: nn.Module, name: Name, draws: Draws, streams: Iterator[int]) -> Step:
    """One layer as a call for a stack; `streams` numbers the layers as in `compile_layer`."""
    stream = next(streams)
    if isinstance(leaf, KeyedDropout) or not is_plain(leaf):
        return _map_layer(leaf, name, draws, stream)
    if type(leaf) is Residual:
        body, shortcut = (
            join(stack_layer(part, name, draws, streams) for part in list_layers(branch))
            for branch in (leaf.body, leaf.shortcut)
        )
        return lambda params, x, key: body(params, x, key) + shortcut(params, x, key)
    if type(leaf) in _ELEMENTWISE:
        forward = leaf.forward
        return lambda params, x, key: forward(x)
    if type(leaf) in _PLANES:
        return _planes(leaf.forward, _PLANES[type(leaf)])
    maker = _STACKED.get(type(leaf))
    step = None if maker is None else maker(leaf, name)
    return _map_layer(leaf, name, draws, stream) if step is None else step


def _map_layer(leaf: nn.Module, name: Name, draws: Draws, stream: int) -> Step:
    one = compile_layer(leaf, name, draws, itertools.repeat(stream))
    names = list(dict.fromkeys(name(p) for p in leaf.parameters()))

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        def client(x: Tensor, weights: list[Tensor], key: Tensor | None) -> Tensor:
            return one(dict(zip(names, weights, strict=True)), x, key)

        axes = (0, 0, None if key is None else 0)
        return torch.vmap(client, in_dims=axes)(x, [params[n] for n in names], key)

    return step


def _linear(leaf: nn.Linear, name: Name) -> Step:
    w, b = name(leaf.weight), name(leaf.bias)
    return lambda params, x, key: many.linear(x, params[w], params[b] if b else None)


def _conv(leaf: nn.Conv1d | nn.Conv2d, name: Name) -> Step | None:
    if leaf.padding_mode != "zeros" or isinstance(leaf.padding, str):
        return None
    w, b = name(leaf.weight), name(leaf.bias)
    geometry = Geometry(leaf.stride, leaf.padding, leaf.dilation, leaf.groups)
    return lambda params, x, key: convolve(x, params[w], params[b] if b else None, geometry)


def _group_norm(leaf: nn.GroupNorm, name: Name) -> Step:
    w, b, groups, eps = name(leaf.weight), name(leaf.bias), leaf.num_groups, leaf.eps
    return lambda params, x, key: many.group_norm(
        x, groups, params[w] if w else None, params[b] if b else None, eps
    )


def _layer_norm(leaf: nn.LayerNorm, name: Name) -> Step:
    w, b, shape, eps = name(leaf.weight), name(leaf.bias), leaf.normalized_shape, leaf.eps
    return lambda params, x, key: many.layer_norm(
        x, shape, params[w] if w else None, params[b] if b else None, eps
    )


def _embedding(leaf: nn.Embedding, name: Name) -> Step:
    w, padding = name(leaf.weight), leaf.padding_idx
    return lambda params, x, key: many.embedding(x, params[w], padding)


def _lstm(leaf: PlainLSTM, name: Name) -> Step:
    names, cell = [name(parameter) for parameter in leaf.parameters()], LSTMCell()

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        weights = [params[n] for n in names]
        for each in zip(*(weights[i::4] for i in range(4)), strict=True):
            zeros = x.new_zeros(*x.shape[:2], each[1].shape[2])
            x, _ = scan(cell, x, (zeros, zeros), Weights(*each))
        return x

    return step


def _flatten(leaf: nn.Flatten, name: Name) -> Step | None:
    if leaf.start_dim != 1 or leaf.end_dim != -1:
        return None
    return lambda params, x, key: x.flatten(2) if x.ndim > 2 else x.unsqueeze(2)


def _unflatten(leaf: nn.Unflatten, name: Name) -> Step | None:
    if leaf.dim < 1:
        return None
    return lambda params, x, key: x.unflatten(leaf.dim + 1, leaf.unflattened_size)


def _planes(forward: Callable[[Tensor], Tensor], sides: int) -> Step:
    """A layer that treats every plane (every channel of every row) by itself."""

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        lead = x.ndim - sides
        strides = x.stride()
        order = sorted(range(lead), key=lambda axis: -strides[axis])  # as they lie, so nothing is copied
        lying = x.permute(*order, *range(lead, x.ndim))
        out: Tensor = forward(lying.flatten(0, lead - 1)).unflatten(0, lying.shape[:lead])
        return out.permute(*(order.index(axis) for axis in range(lead)), *range(lead, x.ndim))

    return step


def _steps(leaf: Steps, name: Name) -> Step:
    return lambda params, x, key: x.transpose(2, 3)


def _last(leaf: Last, name: Name) -> Step:
    return lambda params, x, key: x[:, :, -1]


# By exact type, as in layers.py.
_ELEMENTWISE: frozenset[type[nn.Module]] = frozenset(
    {
        nn.ReLU,
        nn.Tanh,
        nn.Sigmoid,
        nn.GELU,
        nn.SiLU,
        nn.LeakyReLU,
        nn.ELU,
        nn.ReLU6,
        nn.Hardswish,
        nn.Identity,
    }
)
_PLANES: dict[type[nn.Module], int] = {
    nn.MaxPool2d: 2,
    nn.AvgPool2d: 2,
    nn.AdaptiveAvgPool2d: 2,
    nn.AdaptiveAvgPool1d: 1,
    nn.MaxPool1d: 1,
}
_STACKED: dict[type[nn.Module], Callable[[Any, Name], Step | None]] = {
    nn.Linear: _linear,
    nn.Conv1d: _conv,
    nn.Conv2d: _conv,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
    PlainLSTM: _lstm,
    nn.Flatten: _flatten,
    nn.Unflatten: _unflatten,
    Steps: _steps,
    Last: _last,
}
