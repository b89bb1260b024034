"""Convolutions of many clients as three Triton kernels: no windows are written down, no layout is changed.

A kernel's program computes some outputs of one client as a product of its weights with windows that are read
straight from the rows; few channels, which libraries handle badly, cost little here. Triton comes with
PyTorch's builds for GPUs. Precision follows `torch.backends.cudnn.allow_tf32`, as torch's convolutions do.
"""

import math
from typing import Protocol, TypedDict

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from potluck.models.autograd import FunctionContext, Sides, Slopes


@triton.jit
def _forward(  # pragma: no cover - compiled, not run
    x, w, b, y, rows, x_client, x_row, x_channel, y_client, y_row,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    out: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr,
    BIAS: tl.constexpr, PRECISION: tl.constexpr, OUT: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Windows read across channels: for few of them."""
    client = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * M + tl.arange(0, M)
    row, at = m // (high * wide), m % (high * wide)
    top, left = at // wide * SH - PH, at % wide * SW - PW
    o = tl.arange(0, OUT)
    taps: tl.constexpr = channels * KH * KW
    x += client * x_client
    w += client * out * taps
    total = tl.zeros((OUT, M), tl.float32)
    for first in range(0, taps, K):
        k = first + tl.arange(0, K)
        channel, i, j = k // (KH * KW), k % (KH * KW) // KW, k % KW
        h, v = top[None, :] + i[:, None], left[None, :] + j[:, None]
        inside = (
            (k < taps)[:, None] & (row < rows)[None, :] & (h >= 0) & (h < height) & (v >= 0) & (v < width)
        )
        place = (row * x_row)[None, :] + (channel * x_channel)[:, None] + h * width + v
        window = tl.load(x + place, mask=inside, other=0.0)
        weight = tl.load(
            w + o[:, None] * taps + k[None, :], mask=(o < out)[:, None] & (k < taps)[None, :], other=0.0
        )
        total = tl.dot(weight, window, total, input_precision=PRECISION)
    if BIAS:
        total += tl.load(b + client * out + o, mask=o < out, other=0.0)[:, None]
    place = (row * y_row + at)[None, :] + o[:, None] * (high * wide)
    tl.store(y + client * y_client + place, total, mask=(o < out)[:, None] & (row < rows)[None, :])


@triton.jit
def _forward_by_tap(  # pragma: no cover - compiled, not run
    x, w, b, y, rows, x_client, x_row, x_channel, y_client, y_row,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    out: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr,
    BIAS: tl.constexpr, PRECISION: tl.constexpr, OUT: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """One tap of the kernel after another."""
    client = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * M + tl.arange(0, M)
    row, at = m // (high * wide), m % (high * wide)
    top, left = at // wide * SH - PH, at % wide * SW - PW
    o, c = tl.arange(0, OUT), tl.arange(0, K)
    x += client * x_client
    w += client * out * channels * KH * KW
    base = row * x_row + top * width + left
    total = tl.zeros((OUT, M), tl.float32)
    for tap in range(KH * KW):
        i, j = tap // KW, tap % KW
        h, v = top + i, left + j
        inside = (row < rows) & (h >= 0) & (h < height) & (v >= 0) & (v < width)
        for first in range(0, channels, K):
            channel = first + c
            place = (channel * x_channel)[:, None] + (base + i * width + j)[None, :]
            window = tl.load(x + place, mask=(channel < channels)[:, None] & inside[None, :], other=0.0)
            spot = o[:, None] * (channels * KH * KW) + channel[None, :] * (KH * KW) + tap
            weight = tl.load(w + spot, mask=(o < out)[:, None] & (channel < channels)[None, :], other=0.0)
            total = tl.dot(weight, window, total, input_precision=PRECISION)
    if BIAS:
        total += tl.load(b + client * out + o, mask=o < out, other=0.0)[:, None]
    place = (row * y_row + at)[None, :] + o[:, None] * (high * wide)
    tl.store(y + client * y_client + place, total, mask=(o < out)[:, None] & (row < rows)[None, :])


@triton.jit
def _to_rows(  # pragma: no cover - compiled, not run
    g, w, x, rows, g_client, g_row, g_channel, x_client, x_row,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    out: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr,
    PRECISION: tl.constexpr, IN: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The slope of rows."""
    # Pixels by their place within a stride: those of one kind are reached by the same taps.
    client, kind = tl.program_id(1).to(tl.int64), tl.program_id(2)
    down, over = kind // SW, kind % SW
    lines: tl.constexpr = (height + SH - 1) // SH
    columns: tl.constexpr = (width + SW - 1) // SW
    m = tl.program_id(0) * M + tl.arange(0, M)
    row, at = m // (lines * columns), m % (lines * columns)
    h, v = at // columns * SH + down, at % columns * SW + over
    real = (row < rows) & (h < height) & (v < width)
    i0, j0 = (down + PH) % SH, (over + PW) % SW
    top, left = (h + PH - i0) // SH, (v + PW - j0) // SW
    c, o = tl.arange(0, IN), tl.arange(0, K)
    g += client * g_client
    w += client * out * channels * KH * KW
    base = row * g_row + top * wide + left
    across: tl.constexpr = (KW + SW - 1) // SW
    total = tl.zeros((IN, M), tl.float32)
    for tap in range((KH + SH - 1) // SH * across):
        a, b = tap // across, tap % across
        i, j = i0 + a * SH, j0 + b * SW
        inside = real & (top >= a) & (top - a < high) & (left >= b) & (left - b < wide) & (i < KH) & (j < KW)
        for first in range(0, out, K):
            channel = first + o
            place = (channel * g_channel)[:, None] + (base - a * wide - b)[None, :]
            slope = tl.load(g + place, mask=(channel < out)[:, None] & inside[None, :], other=0.0)
            spot = channel[None, :] * (channels * KH * KW) + c[:, None] * (KH * KW) + i * KW + j
            there = (c < channels)[:, None] & (channel < out)[None, :] & (i < KH) & (j < KW)
            weight = tl.load(w + spot, mask=there, other=0.0)
            total = tl.dot(weight, slope, total, input_precision=PRECISION)
    place = (row * x_row + h * width + v)[None, :] + c[:, None] * (height * width)
    tl.store(x + client * x_client + place, total, mask=(c < channels)[:, None] & real[None, :])


@triton.jit
def _to_weights(  # pragma: no cover - compiled, not run
    x, g, w, rows, x_client, x_row, x_channel, g_client, g_row, g_channel, splits,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    out: tl.constexpr, high: tl.constexpr, wide: tl.constexpr, SPAN: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr,
    PRECISION: tl.constexpr, OUT: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The slope of weights, for few channels."""
    client, split = (tl.program_id(1) // splits).to(tl.int64), tl.program_id(1) % splits
    taps: tl.constexpr = channels * KH * KW
    k = tl.program_id(0) * K + tl.arange(0, K)
    channel, i, j = k // (KH * KW), k % (KH * KW) // KW, k % KW
    o = tl.arange(0, OUT)
    x += client * x_client
    g += client * g_client
    total = tl.zeros((OUT, K), tl.float32)
    for step in range(0, SPAN, M):
        m = split * SPAN + step + tl.arange(0, M)
        row, at = m // (high * wide), m % (high * wide)
        real = row < rows
        h = (at // wide * SH - PH)[None, :] + i[:, None]
        v = (at % wide * SW - PW)[None, :] + j[:, None]
        inside = (k < taps)[:, None] & real[None, :] & (h >= 0) & (h < height) & (v >= 0) & (v < width)
        place = (row * x_row)[None, :] + (channel * x_channel)[:, None] + h * width + v
        window = tl.load(x + place, mask=inside, other=0.0)
        place = (row * g_row + at)[None, :] + (o * g_channel)[:, None]
        slope = tl.load(g + place, mask=(o < out)[:, None] & real[None, :], other=0.0)
        total = tl.dot(slope, tl.trans(window), total, input_precision=PRECISION)
    spot = tl.program_id(1).to(tl.int64) * out * taps + o[:, None] * taps + k[None, :]
    tl.store(w + spot, total, mask=(o < out)[:, None] & (k < taps)[None, :])


@triton.jit
def _to_weights_by_tap(  # pragma: no cover - compiled, not run
    x, g, w, rows, x_client, x_row, x_channel, g_client, g_row, g_channel, splits,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    out: tl.constexpr, high: tl.constexpr, wide: tl.constexpr, SPAN: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr,
    PRECISION: tl.constexpr, OUT: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The slope of one tap's weights."""
    client, split = (tl.program_id(1) // splits).to(tl.int64), tl.program_id(1) % splits
    tap = tl.program_id(0)
    i, j = tap // KW, tap % KW
    o, c = tl.arange(0, OUT), tl.arange(0, K)
    x += client * x_client
    g += client * g_client
    total = tl.zeros((OUT, K), tl.float32)
    for step in range(0, SPAN, M):
        m = split * SPAN + step + tl.arange(0, M)
        row, at = m // (high * wide), m % (high * wide)
        real = row < rows
        h, v = at // wide * SH - PH + i, at % wide * SW - PW + j
        inside = real & (h >= 0) & (h < height) & (v >= 0) & (v < width)
        place = (c * x_channel)[:, None] + (row * x_row + h * width + v)[None, :]
        window = tl.load(x + place, mask=(c < channels)[:, None] & inside[None, :], other=0.0)
        place = (o * g_channel)[:, None] + (row * g_row + at)[None, :]
        slope = tl.load(g + place, mask=(o < out)[:, None] & real[None, :], other=0.0)
        total = tl.dot(slope, tl.trans(window), total, input_precision=PRECISION)
    spot = tl.program_id(1).to(tl.int64) * (out * channels * KH * KW)
    spot += o[:, None] * (channels * KH * KW) + c[None, :] * (KH * KW) + tap
    tl.store(w + spot, total, mask=(o < out)[:, None] & (c < channels)[None, :])


# Measured on an H200.
FEW = 8  # channels below which windows are read across channels
BLOCK = {"forward": 128, "rows": 64, "weights": 32}  # pixels of a tile
PROGRAMS = 4096  # enough to fill a device
FURTHEST = 2**31 - 1  # numbers of a tensor: places are counted in 32 bits


class Slide(TypedDict):
    """How the kernel slides, as Triton's constants: kernel, stride and padding of two sides."""

    KH: int
    KW: int
    SH: int
    SW: int
    PH: int
    PW: int
    PRECISION: str


class _Memory(FunctionContext, Protocol):
    slide: Slide


class Convolution(Function):
    """[clients, rows, channels, height, width] with weights [clients, out, channels, kh, kw]."""

    @staticmethod
    def forward(
        ctx: _Memory, x: Tensor, w: Tensor, b: Tensor | None, stride: Sides, padding: Sides
    ) -> Tensor:
        x, w = _planes(x), w.contiguous()
        ctx.save_for_backward(x, w)
        ctx.slide = slide = _slide(w, stride, padding)
        clients, rows, channels, height, width = x.shape
        out, (kh, kw) = w.shape[1], w.shape[3:]
        high = (height + 2 * padding[0] - kh) // stride[0] + 1
        wide = (width + 2 * padding[1] - kw) // stride[1] + 1
        # Clients side by side within a row, where a norm can treat them as more groups.
        y = x.new_empty(rows, clients, out, high, wide).transpose(0, 1)
        block = min(BLOCK["forward"], _tile(rows * high * wide))
        few = channels < FEW
        kernel, depth = (_forward, channels * kh * kw) if few else (_forward_by_tap, channels)
        kernel[(triton.cdiv(rows * high * wide, block), clients)](
            x, w, w if b is None else b.contiguous(), y, rows, *x.stride()[:3], *y.stride()[:2],
            channels, height, width, out, high, wide, **slide, BIAS=b is not None,
            OUT=_tile(out), M=block, K=_tile(depth, 32 if few else 64), num_warps=4,
        )  # fmt: skip
        return y

    @staticmethod
    def backward(ctx: _Memory, g: Tensor) -> Slopes:
        x, w = ctx.saved_tensors
        g = _planes(g)
        gx = _rows_slope(g, w, x, ctx.slide) if ctx.needs_input_grad[0] else None
        gw = _weights_slope(g, w, x, ctx.slide) if ctx.needs_input_grad[1] else None
        gb = g.sum((1, 3, 4)) if ctx.needs_input_grad[2] else None
        return gx, gw, gb, None, None


def _rows_slope(g: Tensor, w: Tensor, x: Tensor, slide: Slide) -> Tensor:
    clients, rows, channels, height, width = x.shape
    out, (high, wide) = w.shape[1], g.shape[3:]
    gx = x.new_empty(rows, clients, channels, height, width).transpose(0, 1)
    down, over = slide["SH"], slide["SW"]
    pixels = rows * triton.cdiv(height, down) * triton.cdiv(width, over)
    block = min(BLOCK["rows"], _tile(pixels))
    _to_rows[(triton.cdiv(pixels, block), clients, down * over)](
        g, w, gx, rows, *g.stride()[:3], *gx.stride()[:2], channels, height, width, out, high, wide,
        **slide, IN=_tile(channels), M=block, K=_tile(out, 64), num_warps=4,
    )  # fmt: skip
    return gx


def _weights_slope(g: Tensor, w: Tensor, x: Tensor, slide: Slide) -> Tensor:
    clients, rows, channels, height, width = x.shape
    out, (kh, kw), (high, wide) = w.shape[1], w.shape[3:], g.shape[3:]
    pixels = rows * high * wide
    if channels < FEW:
        kernel, depth = _to_weights, _tile(channels * kh * kw, 64)
        across = triton.cdiv(channels * kh * kw, depth)
    else:
        kernel, depth, across = _to_weights_by_tap, _tile(channels), kh * kw
    # Enough programs to fill the device; each client's parts are summed in order afterwards. Spans are of few
    # lengths, since each is compiled.
    splits = max(1, min(PROGRAMS // (clients * across), pixels // 512))
    span = max(BLOCK["weights"], triton.next_power_of_2(triton.cdiv(pixels, splits)))
    splits = triton.cdiv(pixels, span)
    parts = w.new_empty(clients, splits, *w.shape[1:])
    kernel[(across, clients * splits)](
        x, g, parts, rows, *x.stride()[:3], *g.stride()[:3], splits, channels, height, width, out, high, wide,
        span, **slide, OUT=_tile(out), M=BLOCK["weights"], K=depth, num_warps=4 if channels < 16 else 2,
    )  # fmt: skip
    return parts[:, 0] if splits == 1 else parts.sum(1)


def reach(x: Tensor, w: Tensor, padding: Sides) -> bool:
    """Whether tensors are small enough for these kernels."""
    widest = math.prod(n + 2 * p for n, p in zip(x.shape[3:], padding, strict=True))
    return bool(x.shape[:2].numel() * max(w.shape[1:3]) * widest <= FURTHEST)


def _planes(x: Tensor) -> Tensor:
    """With planes that lie in one piece; the other axes may lie in any order."""
    return x if x.stride(4) == 1 and x.stride(3) == x.shape[4] else x.contiguous()


def _slide(w: Tensor, stride: Sides, padding: Sides) -> Slide:
    (kh, kw), (sh, sw), (ph, pw) = w.shape[3:], stride, padding
    precision = "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"
    return {"KH": kh, "KW": kw, "SH": sh, "SW": sw, "PH": ph, "PW": pw, "PRECISION": precision}


def _tile(size: int, most: int = 1 << 30) -> int:
    """A tile's side: a power of two, and no less than tensor cores take."""
    return min(most, max(16, 1 << (size - 1).bit_length()))
