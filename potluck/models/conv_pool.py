"""A convolution of few channels together with the 2x2 maximum after it, for the batches of small devices.

A CPU's libraries fill up few channels to many, and take maxima one by one. Here the four values under each
maximum are four products with the same, slightly larger window: one matrix product over a quarter of the
places, then the maximum of four tables that lie side by side. The rows of the batch come last in memory, so
that all of it runs over long stretches. It computes what torch does, down to which of equal values is taken.

A captured step of LeNet-5 takes 1.6 to 1.7 times as long without it (batches of 10 to 32 rows, one core of a
Xeon), a plain one 1.1 to 1.2 times.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import Function

from potluck.models.autograd import FunctionContext, Slopes

MOST_CHANNELS = 8  # a library's convolution is faster when more come in
MOST_ROWS = 512  # bounds memory

Pair = tuple[int, int]


def fits(x: Tensor) -> bool:
    """Whether a batch can be computed here: on a CPU, not under a transform such as vmap."""
    floats = x.dtype in (torch.float32, torch.float64)
    return (
        floats and x.is_cpu and x.ndim == 4 and 0 < len(x) <= MOST_ROWS and peek_interpreter_stack() is None
    )


def convolve_and_pool(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair) -> Tensor:
    """max_pool2d(conv2d(x, weight, bias, padding=padding), 2)"""
    return _apply(x, weight, bias, padding)


class _Sizes(NamedTuple):
    """Of one call. A window is wide enough for the kernel at all four places under a maximum, and even."""

    rows: int
    channels: int
    image: Pair
    padding: Pair
    out: Pair  # maxima
    window: Pair  # half of it
    plane: Pair  # half of what all windows cover


@lru_cache(maxsize=256)
def _find_sizes(x: torch.Size, weight: torch.Size, padding: Pair) -> _Sizes:
    out = [(n + 2 * p - k + 1) // 2 for n, k, p in zip(x[2:], weight[2:], padding, strict=True)]
    window = [k // 2 + 1 for k in weight[2:]]
    plane = [n + w - 1 for n, w in zip(out, window, strict=True)]
    return _Sizes(x[0], x[1], *((a, b) for a, b in (x[2:], padding, out, window, plane)))


class _Memory(FunctionContext, Protocol):
    size: _Sizes


class _ConvolvedMaxima(Function):
    @staticmethod
    def forward(ctx: _Memory, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair) -> Tensor:
        size, channels = _find_sizes(x.shape, weight.shape, padding), len(weight)
        columns = _columns(x, size)
        wide = weight.new_zeros(2, 2, *weight.shape[:2], 2 * size.window[0], 2 * size.window[1])
        _view_inside(wide, weight.shape).copy_(weight)
        left, right = (wide.view(4 * channels, -1) @ columns).view(2, 2, channels, -1).unbind(1)
        upper, lower = torch.maximum(left, right).unbind()
        out = torch.maximum(upper, lower)
        if bias is not None:
            out.add_(bias.unsqueeze(1))  # after the maximum, which doesn't mind
        ctx.save_for_backward(x, weight, bias, columns, wide, left, right, upper, lower)
        ctx.size = size
        return out.view(channels, *size.out, size.rows).permute(3, 0, 1, 2)

    @staticmethod
    def backward(ctx: _Memory, *grads: Tensor) -> Slopes:
        x, weight, bias, columns, wide, left, right, upper, lower = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated in its turn: leave that to torch
            given = [t for t in (x, weight, bias) if t is not None and t.requires_grad]
            plain = torch.max_pool2d(torch.conv2d(x, weight, bias, padding=ctx.size.padding), 2)
            found = iter(torch.autograd.grad(plain, given, grads, create_graph=True))
            return *(next(found) if needed else None for needed in ctx.needs_input_grad[:3]), None
        g = grads[0].permute(1, 2, 3, 0).reshape(len(weight), -1)
        # Of equal values the first in reading order has the gradient: left before right, upper before lower.
        by_row = g.new_empty(2, *g.shape)
        _share_out(g, upper, lower, *by_row.unbind())
        by_place = g.new_empty(2, 2, *g.shape)
        _share_out(by_row, left, right, *by_place.unbind(1))
        spread = by_place.view(4 * len(weight), -1)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = _fold(wide.view(4 * len(weight), -1).t() @ spread, ctx.size)
        if ctx.needs_input_grad[1]:
            upper, lower = _view_inside((spread @ columns.t()).view(wide.shape), weight.shape).unbind()
            left, right = torch.add(upper, lower).unbind()
            to_weight = left + right
        if ctx.needs_input_grad[2]:
            to_bias = g.sum(1)
        return to_x, to_weight, to_bias, None


_apply: Callable[..., Tensor] = _ConvolvedMaxima.apply


def _view_inside(wide: Tensor, shape: torch.Size) -> Tensor:
    """Of weights [2, 2, out, in, *window]: those of the kernel itself, moved by its place [2, 2, *shape]."""
    window = wide.shape[4] * wide.shape[5]
    place, channel, line = wide[0, 0].numel(), shape[1] * window, wide.shape[5]
    steps = 2 * place + line, place + 1, channel, window, line, 1
    return wide.as_strided((2, 2, *shape), steps)


def _share_out(g: Tensor, first: Tensor, second: Tensor, to_first: Tensor, to_second: Tensor) -> None:
    """The gradient of the larger of two goes to it; of equal ones, to the first."""
    torch.gt(second, first, out=to_second).mul_(g)
    torch.sub(g, to_second, out=to_first)


def _columns(x: Tensor, size: _Sizes) -> Tensor:
    """All windows [channels * window, maxima * rows]."""
    n, c, (height, width), (top, side), (oh, ow), (wh, ww), (h, w) = size
    image = x.permute(1, 2, 3, 0)
    if (height, width) != (2 * h, 2 * w):
        found, image = image, x.new_zeros(c, 2 * h, 2 * w, n)
        covered = image[:, top : top + height, side : side + width]
        covered.copy_(found[:, : covered.shape[1], : covered.shape[2]])
    # Even and odd places apart, so that neighbouring windows lie side by side.
    apart = image.view(c, h, 2, w, 2, n).permute(0, 2, 4, 1, 3, 5).contiguous()
    line, plane = w * n, h * w * n
    steps = 4 * plane, line, 2 * plane, n, plane, line, n, 1
    return apart.as_strided((c, wh, 2, ww, 2, oh, ow, n), steps).reshape(c * 4 * wh * ww, oh * ow * n)


def _fold(columns: Tensor, size: _Sizes) -> Tensor:
    """What all windows say of each place, summed up: the gradient of `_columns`."""
    n, c, (height, width), (top, side), (oh, ow), (wh, ww), (h, w) = size
    lines = columns.new_zeros(c, 2, ww, 2, h, ow * n)
    for i, part in enumerate(columns.view(c, wh, 2, ww, 2, oh, ow * n).unbind(1)):
        lines.narrow(4, i, oh).add_(part)
    apart = columns.new_zeros(c, 2, 2, h, w * n)
    for i, part in enumerate(lines.unbind(2)):
        apart.narrow(4, i * n, ow * n).add_(part)
    image = apart.view(c, 2, 2, h, w, n).permute(0, 3, 1, 4, 2, 5).reshape(c, 2 * h, 2 * w, n)
    covered = image[:, top : top + height, side : side + width]
    if covered.shape[1:3] != (height, width):  # an odd line at the end is under no maximum
        found, covered = covered, columns.new_zeros(c, height, width, n)
        covered[:, : found.shape[1], : found.shape[2]] = found
    return covered.permute(3, 0, 1, 2)
