"""Triton's convolutions, run on the CPU by Triton's interpreter, against torch's own."""

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton")

from potluck.models.convolve import Geometry, convolve_by_slopes, has_fast_slopes
from potluck.models.kernels import FEW, Convolution, reach

pytestmark = pytest.mark.slow

#           clients, rows, channels, out, kernel, stride, padding, sides, bias
CASES = {
    "first of LeNet": (2, 3, 1, 6, (5, 5), (1, 1), (2, 2), (8, 8), True),
    "second of LeNet": (3, 2, 6, 16, (5, 5), (1, 1), (0, 0), (7, 6), True),
    "stride": (2, 2, 9, 20, (3, 3), (2, 2), (1, 1), (9, 8), False),
    "single pixels": (2, 2, 16, 8, (1, 1), (1, 1), (0, 0), (6, 6), False),
    "a signal": (2, 2, 9, 4, (1, 3), (1, 2), (0, 1), (1, 12), True),
    "unequal sides": (2, 1, 3, 5, (3, 2), (1, 2), (2, 0), (7, 8), True),
    "many tiles": (2, 12, 10, 3, (3, 3), (1, 1), (1, 1), (6, 6), True),
}


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("layout", ["client by client", "side by side"])
@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_torch(case, layout):
    clients, rows, channels, out, kernel, stride, padding, sides, bias = CASES[case]
    make = torch.Generator().manual_seed(1)
    x = torch.randn(clients, rows, channels, *sides, generator=make)
    if layout == "side by side":
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    w = torch.randn(clients, out, channels, *kernel, generator=make) / channels
    b = torch.randn(clients, out, generator=make).requires_grad_() if bias else None
    x, w = x.requires_grad_(), w.requires_grad_()
    _check(Convolution.apply(x, w, b, stride, padding), x, w, b, stride, padding)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kernel, padding", [((3, 3), (1, 1)), ((5, 3), (0, 2)), ((1, 1), (0, 0))])
def test_outputs_as_slopes_agree_with_torch(kernel, padding, bias):
    make = torch.Generator().manual_seed(1)
    x = torch.randn(3, 2, 4, 7, 6, generator=make).requires_grad_()
    w = torch.randn(3, 5, 4, *kernel, generator=make).requires_grad_()
    b = torch.randn(3, 5, generator=make).requires_grad_() if bias else None
    slide = Geometry((1, 1), padding, (1, 1), 1)
    _check(convolve_by_slopes(x, w, b, slide), x, w, b, (1, 1), padding)


def test_what_can_be_turned():
    def asked(channels, kernel, padding):
        return has_fast_slopes(
            torch.empty(2, channels, 16, *kernel), Geometry((1,) * 2, padding, (1,) * 2, 1)
        )

    assert asked(16, (3, 3), (1, 1))
    assert asked(32, (3, 5), (2, 4))
    assert not asked(64, (3, 3), (1, 1))
    assert not asked(16, (3, 3), (3, 1))  # there is no convolve_by_slopes convolution of negative padding
    assert not asked(16, (3,), (1,))


def _check(ours, x, w, b, stride, padding):
    """Every client's outputs and slopes against its own convolution."""
    clients, given = len(x), [x, w] if b is None else [x, w, b]
    each = (F.conv2d(x[c], w[c], None if b is None else b[c], stride, padding) for c in range(clients))
    theirs = torch.stack(list(each))
    slope = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    for a, e in zip(
        torch.autograd.grad(ours, given, slope), torch.autograd.grad(theirs, given, slope), strict=True
    ):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


def test_both_ways_to_read_windows_are_tried():
    channels = {case[2] for case in CASES.values()}
    assert min(channels) < FEW <= max(channels)


def test_tensors_that_cannot_be_reached_in_32_bits_are_left_to_others():
    w = torch.empty(1, 64, 3, 5, 5, device="meta")
    assert reach(torch.empty(1000, 20, 3, 28, 28, device="meta"), w, (2, 2))
    assert not reach(torch.empty(4000, 200, 3, 28, 28, device="meta"), w, (2, 2))
