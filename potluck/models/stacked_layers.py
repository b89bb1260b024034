"""Layers that compute for a whole stack of clients: rows [clients, rows, ...], weights [clients, ...].

What `vmap` would do to each operation by rule is done here by hand, in the forms that run fast: a linear
layer is a batched product, a convolution one with groups or windows, and what treats every row alike sees one
long batch. A layer that isn't known here is mapped by vmap. Results agree with one client at a time.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor, peek_interpreter_stack
from torch.autograd import Function
from torch.nn import functional as F

from potluck.core import vmap as stacks
from potluck.core.trees import Params
from potluck.models.autograd import FunctionContext, Slopes
from potluck.models.convolve import Geometry, convolve
from potluck.models.dropout import Draws, KeyedDropout
from potluck.models.layers import Name, Step, compile_layer, is_plain, join, list_layers
from potluck.models.zoo.blocks import Last, PlainLSTM, Residual, Steps

PIECE = 128  # rows: the quickest for convolutions on a CPU, and hardly slower for other layers
FUSED: dict[int, float | Tensor] = {}  # weights, by address, that descend in the backward pass: their rates


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


class _LinearMemory(FunctionContext, Protocol):
    rate: float | Tensor | None


class _Linear(Function):
    """x W' + b for each client. A weight that nothing else uses can descend right here: see FUSED."""

    @staticmethod
    def forward(ctx: _LinearMemory, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.rate = FUSED.get(w.data_ptr())
        wt = w.transpose(1, 2)
        return torch.bmm(x, wt) if b is None else torch.baddbmm(b.unsqueeze(1), x, wt)

    @staticmethod
    def backward(ctx: _LinearMemory, g: Tensor) -> Slopes:
        x, w = ctx.saved_tensors
        to_x, to_w, to_b = ctx.needs_input_grad
        gx = torch.bmm(g, w) if to_x else None
        gb = g.sum(1) if to_b else None
        if ctx.rate is None:
            return gx, torch.bmm(g.transpose(1, 2), x) if to_w else None, gb
        # The gradient is never written down: W -= rate g' x in one product.
        if isinstance(ctx.rate, Tensor):
            w.detach().baddbmm_((g * ctx.rate.view(-1, 1, 1)).transpose(1, 2), x, alpha=-1)
        else:
            w.detach().baddbmm_(g.transpose(1, 2), x, alpha=-ctx.rate)
        return gx, None, gb


_product: Callable[..., Tensor] = _Linear.apply


def find_fusable(losses: Tensor, leaf_tensors: list[Tensor]) -> list[bool]:
    """Which leaves have but one use, as the weight of a linear layer: the graph of a step tells."""
    uses: dict[int, list[bool]] = {}
    seen, todo = set(), [losses.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for slot, (before, _) in enumerate(node.next_functions):
            if before is not None and hasattr(before, "variable"):  # a leaf
                weight = type(node).__name__ == "_LinearBackward" and slot == 1
                uses.setdefault(id(before.variable), []).append(weight)
            todo.append(before)
    return [uses.get(id(t)) == [True] for t in leaf_tensors]


def _linear(leaf: nn.Linear, name: Name) -> Step:
    w, b = name(leaf.weight), name(leaf.bias)

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        rows = x.flatten(1, -2) if x.ndim > 3 else x
        out = _product(rows, params[w], params[b] if b else None)
        return out.view(*x.shape[:-1], -1) if x.ndim > 3 else out

    return step


def _conv(leaf: nn.Conv1d | nn.Conv2d, name: Name) -> Step | None:
    if leaf.padding_mode != "zeros" or isinstance(leaf.padding, str):
        return None
    w, b = name(leaf.weight), name(leaf.bias)
    geometry = Geometry(leaf.stride, leaf.padding, leaf.dilation, leaf.groups)
    return lambda params, x, key: convolve(x, params[w], params[b] if b else None, geometry)


def _group_norm(leaf: nn.GroupNorm, name: Name) -> Step:
    w, b, groups, eps = name(leaf.weight), name(leaf.bias), leaf.num_groups, leaf.eps

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        # Clients side by side, as after a grouped convolution: their groups are simply more groups.
        rows, clients = x.transpose(0, 1).flatten(1, 2), len(x)
        out = F.group_norm(
            rows,
            clients * groups,
            params[w].flatten() if w else None,
            params[b].flatten() if b else None,
            eps,
        )
        apart: Tensor = out.unflatten(1, (clients, -1))
        return apart.transpose(0, 1)

    return step


def _layer_norm(leaf: nn.LayerNorm, name: Name) -> Step:
    w, b, shape, eps = name(leaf.weight), name(leaf.bias), leaf.normalized_shape, leaf.eps

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        between = x.ndim - 1 - len(shape)
        x = F.layer_norm(x, shape, None, None, eps)
        if w:
            x = x * params[w].view(-1, *[1] * between, *shape)
        return x + params[b].view(-1, *[1] * between, *shape) if b else x

    return step


def _embedding(leaf: nn.Embedding, name: Name) -> Step | None:
    w = name(leaf.weight)
    if leaf.padding_idx is not None:
        return None

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        table = params[w]
        first = torch.arange(len(table), device=x.device).view(-1, *[1] * (x.ndim - 1)) * table.shape[1]
        return F.embedding(x + first, table.flatten(0, 1))

    return step


def _lstm(leaf: PlainLSTM, name: Name) -> Step:
    names = [name(parameter) for parameter in leaf.parameters()]

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        weights = [params[n] for n in names]
        clients, rows, steps = x.shape[:3]
        for w_ih, w_hh, b_ih, b_hh in zip(*(weights[i::4] for i in range(4)), strict=True):
            bias = (b_ih + b_hh).unsqueeze(1)
            entering = torch.baddbmm(bias, x.flatten(1, 2), w_ih.transpose(1, 2)).view(
                clients, rows, steps, -1
            )
            h = c = x.new_zeros(clients, rows, w_hh.shape[2])
            outputs, turned = [], w_hh.transpose(1, 2)
            for gates in entering.unbind(2):  # for all steps at once above, one after another here
                i, f, g, o = torch.baddbmm(gates, h, turned).chunk(4, 2)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                outputs.append(h)
            x = torch.stack(outputs, 2)
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
