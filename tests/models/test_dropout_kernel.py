"""Dropout's kernel, run on the CPU by Triton's interpreter: the bits of the operations that it replaces."""

import pytest
import torch

pytest.importorskip("triton")

from potluck.core import keys
from potluck.models import dropout
from potluck.models.dropout import Draws, KeyedDropout
from potluck.models.dropout_kernel import BLOCK, keep


def some_keys(count):
    return torch.stack([keys.as_tensor(keys.derive(n, 5)) for n in range(count)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 100, BLOCK + 3])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_a_kernel_keeps_what_the_operations_keep(p, count, dtype):
    many = some_keys(3)
    theirs = torch.stack([(keys.uniform(k, (count,)) >= p).to(dtype) for k in many])
    found = keep(many, count, p, dtype)
    assert found.dtype == dtype
    assert torch.equal(found, theirs)
    assert torch.equal(keep(many[::2], count, p, dtype), theirs[::2]), "keys needn't lie side by side"


@pytest.mark.parametrize("channels", [False, True])
def test_a_stack_and_a_client_draw_by_the_kernel_as_without(channels, monkeypatch):
    leaf, many = KeyedDropout(0.3, channels, Draws()), some_keys(4)
    x = torch.randn(4, 5, 6, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain = torch.stack([leaf.drop(*pair) for pair in zip(x, many, strict=True)])
    asked = []

    def watched(key, *rest):
        asked.append(len(key))
        return keep(key, *rest)

    monkeypatch.setattr(dropout, "_find_kernel", lambda device: watched)
    assert torch.equal(torch.vmap(leaf.drop)(x, many), plain)
    assert torch.equal(torch.vmap(leaf.drop, in_dims=(0, None))(x, many[0])[0], plain[0])
    assert torch.equal(leaf.drop(x[1], many[1]), plain[1])
    assert asked == [4, 1, 1]
    slopes = torch.func.grad(lambda x: leaf.drop(x, many[2]).sum())(x[2])
    torch.testing.assert_close(slopes * x[2], plain[2])
    assert len(asked) == 3, "inside of other transforms operations do it"


def test_there_is_no_kernel_on_a_cpu():
    assert dropout._find_kernel(torch.device("cpu")) is None
