"""Convolutions of many clients, each with weights of its own: [clients, rows, channels, *sides] at once.

No one way is the fastest everywhere, so the executor says which one to use; all compute the same.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import EllipsisType
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from potluck.models.autograd import FunctionContext, Sides, Slopes

Place = slice | EllipsisType


class Geometry(NamedTuple):
    """How a convolution slides."""

    stride: Sides
    padding: Sides
    dilation: Sides
    groups: int


Way = Callable[[Tensor, Tensor, Tensor | None, Geometry], Tensor]


def convolve(x: Tensor, w: Tensor, b: Tensor | None, g: Geometry) -> Tensor:
    """Every client's rows with its own weights [clients, out, in, *kernel]."""
    if w.shape[3:].numel() == 1 and max(g.stride) > 1 and not any(g.padding):
        seen: tuple[Place, ...] = (..., *(slice(None, None, s) for s in g.stride))
        x = x[seen]  # single pixels: the others are never seen
        g = g._replace(stride=(1,) * len(g.stride))
    return _chosen[-1](x, w, b, g)


@contextmanager
def use_way(way: str) -> Iterator[None]:
    """Compute the convolutions of stacks in the way of this name."""
    _chosen.append(WAYS[way])
    try:
        yield
    finally:
        _chosen.pop()


def convolve_by_groups(x: Tensor, w: Tensor, b: Tensor | None, g: Geometry) -> Tensor:
    """One convolution whose groups are the clients; their channels lie side by side."""
    clients = len(x)
    conv = torch.conv2d if x.ndim == 5 else torch.conv1d
    rows = x.transpose(0, 1).flatten(1, 2)  # free after another of these
    bias = None if b is None else b.flatten()
    out = conv(rows, w.flatten(0, 1), bias, g.stride, g.padding, g.dilation, clients * g.groups)
    apart: Tensor = out.unflatten(1, (clients, -1))
    return apart.transpose(0, 1)


def has_fast_slopes(w: Tensor, g: Geometry) -> bool:
    """Whether `convolve_by_slopes` can compute a convolution without stride, and its channels are few."""
    narrow = w.ndim == 5 and max(w.shape[1:3]) < 64
    return narrow and all(p < k for p, k in zip(g.padding, w.shape[3:], strict=True))


def convolve_by_slopes(x: Tensor, w: Tensor, b: Tensor | None, g: Geometry) -> Tensor:
    """As `grouped`, for images without stride; outputs are computed as the slopes of another convolution.

    Forward, cuDNN starts a kernel for every one of many groups, and for slopes it doesn't: with 200 clients
    of 16 or 32 channels they take half of the time on an H200.
    """
    clients = len(x)
    rows = x.transpose(0, 1).flatten(1, 2)
    bias = None if b is None else b.flatten()
    apply: Callable[..., Tensor] = _ConvolutionBySlopes.apply
    apart: Tensor = apply(rows, w.flatten(0, 1), bias, g.padding, clients).unflatten(1, (clients, -1))
    return apart.transpose(0, 1)


class _SlopesMemory(FunctionContext, Protocol):
    padding: Sides
    groups: int
    bias: list[int] | None  # its shape


class _ConvolutionBySlopes(Function):
    """Rows [rows, groups * in, height, width] with weights [groups * out, in, kh, kw]."""

    @staticmethod
    def forward(
        ctx: _SlopesMemory, x: Tensor, w: Tensor, b: Tensor | None, padding: Sides, groups: int
    ) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.padding, ctx.groups, ctx.bias = padding, groups, None if b is None else [len(b)]
        back = w.unflatten(0, (groups, -1)).transpose(1, 2).flip(3, 4).flatten(0, 1)
        room = [k - 1 - p for k, p in zip(w.shape[2:], padding, strict=True)]
        return torch.conv_transpose2d(x, back, b, padding=room, groups=groups)

    @staticmethod
    def backward(ctx: _SlopesMemory, g: Tensor) -> Slopes:
        x, w = ctx.saved_tensors
        slopes = torch.ops.aten.convolution_backward(
            g,
            x,
            w,
            ctx.bias,
            (1, 1),
            ctx.padding,
            (1, 1),
            False,
            (0, 0),
            ctx.groups,
            ctx.needs_input_grad[:3],
        )
        return *slopes, None, None


def im2col(x: Tensor, w: Tensor, b: Tensor | None, g: Geometry) -> Tensor:
    """All windows laid out as columns, then one batched product."""
    if g.groups > 1 or max(g.dilation) > 1:
        return convolve_by_groups(x, w, b, g)
    kernel = tuple(w.shape[3:])
    columns, sides = _columns(x.transpose(1, 2), kernel, g.stride, g.padding)
    flat = w.flatten(2)
    if b is None:
        out = torch.bmm(flat, columns)
    else:
        out = torch.baddbmm(b.unsqueeze(2), flat, columns)
    return out.view(*out.shape[:2], x.shape[1], *sides).transpose(1, 2)


def kernels(x: Tensor, w: Tensor, b: Tensor | None, g: Geometry) -> Tensor:
    """Triton's kernels of ours, which read the windows where they are; for float32 on a GPU.

    Where libraries are good at groups (larger kernels, no stride, more than a few channels) they compute, and
    where they are good at slopes only, these are made to serve (`convolve_by_slopes`).
    """
    if g.groups > 1 or max(g.dilation) > 1 or not x.is_cuda or x.dtype != torch.float32:
        return convolve_by_groups(x, w, b, g)
    if min(w.shape[1:3]) >= 16 and w.shape[3:].numel() > 1 and max(g.stride) == 1:
        return (convolve_by_slopes if has_fast_slopes(w, g) else convolve_by_groups)(x, w, b, g)
    from potluck.models.kernels import Convolution, reach

    if not reach(x, w, g.padding):
        return convolve_by_groups(x, w, b, g)
    apply: Callable[..., Tensor] = Convolution.apply
    if x.ndim == 4:  # a signal is an image of one line
        return apply(x.unsqueeze(3), w.unsqueeze(3), b, (1, *g.stride), (0, *g.padding)).squeeze(3)
    return apply(x, w, b, g.stride, g.padding)


class _ColumnsMemory(FunctionContext, Protocol):
    shape: Sides
    kernel: Sides
    stride: Sides
    padding: Sides


class _Columns(Function):
    """[clients, channels, rows, *sides] as [clients, channels * kernel, rows * windows]."""

    @staticmethod
    def forward(
        ctx: _ColumnsMemory, x: Tensor, kernel: Sides, stride: Sides, padding: Sides
    ) -> tuple[Tensor, Sides]:
        ctx.shape, ctx.kernel, ctx.stride, ctx.padding = x.shape, kernel, stride, padding
        sides = len(kernel)
        if any(padding):
            x = F.pad(x, [p for p in reversed(padding) for _ in range(2)])
        for side in range(sides):
            x = x.unfold(3 + side, kernel[side], stride[side])
        out = tuple(x.shape[3 : 3 + sides])
        # [clients, channels, rows, *windows, *kernel] to [clients, channels, *kernel, rows, *windows]
        x = x.permute(0, 1, *range(3 + sides, 3 + 2 * sides), 2, *range(3, 3 + sides))
        return x.reshape(len(x), x.shape[1:].numel() // (x.shape[2 + sides] * math.prod(out)), -1), out

    @staticmethod
    def backward(ctx: _ColumnsMemory, g: Tensor, _: None) -> Slopes:
        clients, channels, rows, *sides = ctx.shape
        kernel, stride, padding = ctx.kernel, ctx.stride, ctx.padding
        padded = [n + 2 * p for n, p in zip(sides, padding, strict=True)]
        windows = [(n - k) // s + 1 for n, k, s in zip(padded, kernel, stride, strict=True)]
        g = g.view(clients, channels, math.prod(kernel), rows, *windows)
        total = g.new_zeros(clients, channels, rows, *padded)
        for place, corner in enumerate(itertools.product(*map(range, kernel))):
            spans = zip(corner, stride, windows, strict=True)
            cut: tuple[Place, ...] = (..., *(slice(a, a + s * (n - 1) + 1, s) for a, s, n in spans))
            total[cut] += g[:, :, place]
        inner: tuple[Place, ...] = (..., *(slice(p, p + n) for p, n in zip(padding, sides, strict=True)))
        return total[inner], None, None, None


_columns: Callable[..., tuple[Tensor, Sides]] = _Columns.apply
WAYS: dict[str, Way] = {"grouped": convolve_by_groups, "im2col": im2col, "kernels": kernels}
_chosen: list[Way] = [convolve_by_groups]
