"""Functions with weights for a whole stack of clients: rows [clients, rows, ...], weights [clients, ...].

What `vmap` would do to each by rule is done here by hand, in the forms that run fast: a linear layer is a
batched product, norms scale after they have normed, an embedding looks up in one long table, attention sees
one long batch.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import Function
from torch.nn import functional as F

from potluck.models.autograd import FunctionContext, Slopes

FUSED: dict[int, float | Tensor] = {}  # weights, by address, that descend in the backward pass: their rates


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


def linear(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Of rows [clients, rows, ..., in], or of one row a client."""
    if x.ndim == 2:
        return _product(x.unsqueeze(1), w, b).squeeze(1)
    rows = x.flatten(1, -2) if x.ndim > 3 else x
    out = _product(rows, w, b)
    return out.view(*x.shape[:-1], -1) if x.ndim > 3 else out


def group_norm(x: Tensor, groups: int, w: Tensor | None, b: Tensor | None, eps: float) -> Tensor:
    """Clients side by side, as after a grouped convolution: their groups are simply more groups."""
    rows, clients = x.transpose(0, 1).flatten(1, 2), len(x)
    weight, bias = (None if t is None else t.flatten() for t in (w, b))
    apart: Tensor = F.group_norm(rows, clients * groups, weight, bias, eps).unflatten(1, (clients, -1))
    return apart.transpose(0, 1)


def layer_norm(x: Tensor, shape: Sequence[int], w: Tensor | None, b: Tensor | None, eps: float) -> Tensor:
    """Over the last axes, which are of this shape."""
    x = F.layer_norm(x, list(shape), None, None, eps)
    x = x if w is None else x * _spread(w, x, shape)
    return x if b is None else x + _spread(b, x, shape)


def rms_norm(x: Tensor, shape: Sequence[int], w: Tensor, eps: float | None) -> Tensor:
    """The same by the root of the mean square."""
    normed: Tensor = F.rms_norm(x, list(shape), None, eps)
    return normed * _spread(w, x, shape)


def _spread(weights: Tensor, x: Tensor, shape: Sequence[int]) -> Tensor:
    return weights.view(-1, *[1] * (x.ndim - 1 - len(shape)), *shape)


def embedding(x: Tensor, table: Tensor, padding: int | None) -> Tensor:
    """Tokens [clients, ...] in tables [clients, tokens, features]; the row of padding isn't trained."""
    first = torch.arange(len(table), device=x.device).view(-1, *[1] * (x.ndim - 1)) * table.shape[1]
    return _keep_padding(F.embedding(x + first, table.flatten(0, 1)), x, table.shape[1], padding)


def embed(x: Tensor, table: Tensor, padding: int | None) -> Tensor:
    """One client's. A map's own rule forgets the padding."""
    if peek_interpreter_stack() is None:
        return F.embedding(x, table, padding)
    return _keep_padding(F.embedding(x, table), x, len(table), padding)


def _keep_padding(found: Tensor, x: Tensor, tokens: int, padding: int | None) -> Tensor:
    if padding is None:
        return found
    return torch.where((x == padding % tokens).unsqueeze(-1), found.detach(), found)


class Masked(NamedTuple):
    """How attention is paid."""

    shared: Tensor | None = None  # a mask that is the same for all
    causal: bool = False
    scale: float | None = None
    grouped: bool = False  # several heads share keys and values


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, how: Masked) -> Tensor:
    """Of [clients, rows, ..., steps, features]: of all rows of all at once. `mask` counts clients."""
    if mask is not None:
        missing = [1] * (q.ndim - mask.ndim)
        mask = mask.view(len(mask), *missing, *mask.shape[1:]).expand(*q.shape[:2], *[-1] * (q.ndim - 2))
        mask = mask.flatten(0, 1)
    q_rows, k_rows, v_rows = (t.flatten(0, 1) for t in (q, k, v))
    mask = how.shared if mask is None else mask
    out = F.scaled_dot_product_attention(
        q_rows, k_rows, v_rows, mask, 0.0, how.causal, scale=how.scale, enable_gqa=how.grouped
    )
    apart: Tensor = out.unflatten(0, q.shape[:2])
    return apart
