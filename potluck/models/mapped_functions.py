"""Any module for many clients at once: inside of a vmap its functions with weights step out, one by one.

A module that isn't known is mapped by vmap as a whole. That is right for most operations, but slow for those
with weights of the client's own, wrong for an embedding's padding, and impossible for recurrent layers;
attention goes client by client. So these are computed for the whole stack, as layers that are known are.
Weights that all share, as frozen ones, stay one for all: there vmap's own way is the best.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from potluck.core import vmap as stacks
from potluck.core.trees import Tree
from potluck.models import stacked_functions as many
from potluck.models.convolve import Geometry, convolve
from potluck.models.recurrent import Cell, GRUCell, LSTMCell, PlainCell, States, Weights, scan, scan_all

Out = TypeVar("Out")
Maybe = Tensor | None  # as what a function gives: None leaves it to vmap


def call(fn: Callable[..., Out], *given: object) -> Out:
    """`fn(*given)`; if that is mapped over clients, what it calls may step out of the map."""
    if not stacks.mapping():
        return fn(*given)
    with _SteppingOut():
        return fn(*given)


class _SteppingOut(TorchFunctionMode):
    """Sees every function of torch that is called; itself it is off meanwhile."""

    def __torch_function__(
        self,
        func: Callable[..., Tree],
        types: Sequence[type],
        args: tuple[Tree, ...] = (),
        kwargs: dict[str, Tree] | None = None,
    ) -> Tree:
        named = kwargs or {}
        way = _WAYS.get(func) if stacks.mapping() else None  # not within a map of the module's own
        out = None if way is None else way(*args, **named)
        return func(*args, **named) if out is None else out


def _differ(*tensors: Maybe) -> bool:
    """Whether any of them is another one for every client."""
    return any(t is not None and is_batchedtensor(t) for t in tensors)


def _linear(input: Tensor, weight: Tensor, bias: Maybe = None) -> Maybe:
    if not _differ(weight):
        return None
    return stacks.outside(many.linear, (input, weight, bias))


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Maybe = None,
    bias: Maybe = None,
    eps: float = 1e-5,
) -> Maybe:
    if not _differ(weight, bias):
        return None
    shape = tuple(normalized_shape)
    return stacks.outside(lambda x, w, b: many.layer_norm(x, shape, w, b, eps), (input, weight, bias))


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Maybe = None, eps: float | None = None
) -> Maybe:
    if not _differ(weight):
        return None
    shape = tuple(normalized_shape)
    return stacks.outside(lambda x, w: many.rms_norm(x, shape, w, eps), (input, weight))


def _group_norm(
    input: Tensor, num_groups: int, weight: Maybe = None, bias: Maybe = None, eps: float = 1e-5
) -> Maybe:
    if not _differ(weight, bias):
        return None
    return stacks.outside(lambda x, w, b: many.group_norm(x, num_groups, w, b, eps), (input, weight, bias))


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Maybe:
    if scale_grad_by_freq:
        raise NotImplementedError("nn.Embedding(scale_grad_by_freq=True) would count padding")
    if not _differ(weight):
        return None
    return stacks.outside(lambda x, w: many.embedding(x, w, padding_idx), (input, weight))


Sides = int | Sequence[int]


def _convolution(sides: int) -> Callable[..., Maybe]:
    def every(given: Sides) -> tuple[int, ...]:
        return (given,) * sides if isinstance(given, int) else tuple(given) * (sides // len(given))

    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Maybe = None,
        stride: Sides = 1,
        padding: Sides | str = 0,
        dilation: Sides = 1,
        groups: int = 1,
    ) -> Maybe:
        if not _differ(weight) or isinstance(padding, str) or input.ndim != sides + 2:
            return None
        how = Geometry(every(stride), every(padding), every(dilation), groups)
        return stacks.outside(lambda x, w, b: convolve(x, w, b, how), (input, weight, bias))

    return conv


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Maybe = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Maybe:
    alike = query.ndim == key.ndim == value.ndim > 2 and len(query) == len(key) == len(value)
    if dropout_p or not alike or not _differ(query, key, value):
        return None
    own = attn_mask if attn_mask is not None and (attn_mask.ndim > 2 or _differ(attn_mask)) else None
    how = many.Masked(None if own is not None else attn_mask, is_causal, scale, enable_gqa)
    return stacks.outside(lambda q, k, v, m: many.attention(q, k, v, m, how), (query, key, value, own))


def _recurrent(cell: Cell) -> Callable[..., Tree]:
    def run(input: Tensor, hx: Tree, weights: Tree, biases: Tree, *how: Tree) -> Tree:
        starts = [hx] if isinstance(hx, Tensor) else list(hx)
        if not isinstance(biases, bool) or not _differ(input, *starts, *weights):
            return None  # packed sequences have other arguments
        layers, dropout, training, both, batch_first = how
        each = 4 if biases else 2
        if (dropout and training) or len(weights) != each * layers * (1 + both):
            return None  # projections are further weights
        count = len(starts)

        def whole(x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
            first, rest = given[:count], given[count:]
            every = [Weights(*rest[i : i + each]) for i in range(0, len(rest), each)]
            out, *ends = scan_all(cell, x if batch_first else x.transpose(1, 2), first, every, both)
            return out if batch_first else out.transpose(1, 2), *ends

        return stacks.outside(whole, (input, *starts, *weights))

    return run


def _one_step(cell: Cell) -> Callable[..., Tree]:
    def run(
        input: Tensor, hx: Tree, w_ih: Tensor, w_hh: Tensor, b_ih: Maybe = None, b_hh: Maybe = None
    ) -> Tree:
        starts, weights = [hx] if isinstance(hx, Tensor) else list(hx), (w_ih, w_hh, b_ih, b_hh)
        if not _differ(input, *starts, *weights):
            return None
        count = len(starts)

        def whole(x: Tensor, *given: Tensor) -> States:
            return scan(cell, x.unsqueeze(2), given[:count], Weights(*given[count:]))[1]

        ends = stacks.outside(whole, (input, *starts, *weights))
        return ends[0] if isinstance(hx, Tensor) else ends

    return run


def _heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Maybe,
    in_proj_bias: Maybe,
    bias_k: Maybe,
    bias_v: Maybe,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Maybe,
    training: bool = True,
    key_padding_mask: Maybe = None,
    need_weights: bool = True,
    attn_mask: Maybe = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Maybe = None,
    k_proj_weight: Maybe = None,
    v_proj_weight: Maybe = None,
    static_k: Maybe = None,
    static_v: Maybe = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Tree:
    """Attention of several heads; written out, since torch's own calls others where no mode sees them."""
    more = any(t is not None for t in (bias_k, bias_v, static_k, static_v)) or add_zero_attn
    if more or (dropout_p and training) or query.ndim != 3:
        return None
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    if in_proj_weight is not None and query is key and key is value:
        q, k, v = _project(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        apart = (q_proj_weight, k_proj_weight, v_proj_weight)
        weights = apart if in_proj_weight is None else in_proj_weight.chunk(3)
        q, k, v = (_project(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    # [steps, rows, heads x size] to [rows, heads, steps, size]
    q, k, v = (t.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3) for t in (q, k, v))
    seen = None
    if need_weights or not is_causal or key_padding_mask is not None:
        mask = _join_masks(attn_mask, key_padding_mask, q)
        is_causal = False
    else:
        mask = None
    if need_weights:
        logits = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
        seen = (logits if mask is None else logits + mask).softmax(-1)
        out = seen @ v
        seen = seen.mean(1) if average_attn_weights else seen
    else:
        out = _attention(q, k, v, mask, is_causal=is_causal)
        if out is None:
            out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)
    return _project(out.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias), seen


def _project(x: Tensor, w: Maybe, b: Maybe) -> Tensor:
    assert w is not None
    out = _linear(x, w, b)
    return F.linear(x, w, b) if out is None else out


def _join_masks(steps: Maybe, padding: Maybe, q: Tensor) -> Maybe:
    """What is added to the logits [rows, heads, steps, keys]: -inf where nobody may look."""
    masks = []
    if steps is not None:
        masks.append(steps if steps.ndim == 2 else steps.unflatten(0, q.shape[:2]))
    if padding is not None:
        masks.append(padding[:, None, None])
    found = [
        torch.zeros_like(m, dtype=q.dtype).masked_fill(m, -torch.inf) if m.dtype == torch.bool else m
        for m in masks
    ]
    return sum(found[1:], found[0]) if found else None


# By function as torch hands it to a mode: what is written in Python as it is, what isn't by its binding.
_WAYS: dict[Callable[..., Tree], Callable[..., Tree]] = {
    F.linear: _linear,
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    F.group_norm: _group_norm,
    F.embedding: _embedding,
    F.conv1d: _convolution(1),
    F.conv2d: _convolution(2),
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _heads,
    torch.lstm: _recurrent(LSTMCell()),
    torch.gru: _recurrent(GRUCell()),
    torch.rnn_tanh: _recurrent(PlainCell(relu=False)),
    torch.rnn_relu: _recurrent(PlainCell(relu=True)),
    torch.lstm_cell: _one_step(LSTMCell()),
    torch.gru_cell: _one_step(GRUCell()),
    torch.rnn_tanh_cell: _one_step(PlainCell(relu=False)),
    torch.rnn_relu_cell: _one_step(PlainCell(relu=True)),
}
