"""The narrow variants that lie inside wide models."""

import pytest
import torch
from torch import nn
from torch.func import vmap

from potluck.core.errors import ModelError
from potluck.core.job import ModelSpec
from potluck.models import Model, cut_params, pad_params, register, registry

SHAPES = {"har_cnn": (9, 20), "har_lstm": (9, 12), "char_lstm": (7,), "tiny": (3,)}


def make(name, classes=10, **factors):
    inputs = torch.int64 if name == "char_lstm" else None
    return Model(ModelSpec(name, **factors), SHAPES.get(name, (1, 8, 8)), classes, torch.float64, inputs)


def rows(model):
    source = torch.Generator().manual_seed(0)
    if model.inputs == torch.int64:
        return torch.randint(model.classes, (4, *model.shape), generator=source)
    return torch.randn(4, *model.shape, generator=source, dtype=model.dtype)


def pair(name, wide=1.0, narrow=0.5, **factors):
    return make(name, width=wide, **factors), make(name, width=narrow, **factors)


def covered(big, small):
    """Which of the big model's elements the small one owns."""
    return pad_params({n: torch.ones(s, dtype=torch.bool) for n, s in small.shapes.items()}, big, small)


def test_first_channels_by_hand(monkeypatch):
    monkeypatch.setattr(registry.MODELS, "_values", dict(registry.MODELS._values))
    register("tiny", lambda shape, classes, width: nn.Linear(shape[0], classes))
    big = make("tiny", 4)
    small = make("tiny", 2, width=0.5)
    whole = {"weight": torch.arange(12.0).reshape(4, 3), "bias": torch.arange(4.0)}
    part = cut_params(whole, big, small)
    assert part["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert part["bias"].tolist() == [0, 1]
    back = pad_params(part, big, small)
    assert back["weight"].tolist() == [[0, 1, 2], [3, 4, 5], [0, 0, 0], [0, 0, 0]]
    assert covered(big, small)["bias"].tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("name", "wide", "narrow"),
    [
        ("mlp", 0.1, 0.03),
        ("lenet5", 1, 0.4),
        ("resnet8", 1, 0.5),
        ("mobilenetv1", 0.5, 0.25),
        ("har_cnn", 0.25, 0.1),
        ("har_lstm", 0.25, 0.1),
        ("char_lstm", 0.1, 0.04),
    ],
)
def test_a_narrow_model_is_the_wide_one_without_its_other_channels(name, wide, narrow):
    """Also with norms: their groups are of one size, here of 8 channels."""
    big, small = pair(name, wide, narrow)
    whole, x = big.init(1), rows(small)
    part = cut_params(whole, big, small)
    assert {n: tuple(p.shape) for n, p in part.items()} == small.shapes
    back, mask = pad_params(part, big, small), covered(big, small)
    assert back.keys() == mask.keys() == whole.keys()
    for n in whole:
        assert torch.equal(back[n], whole[n] * mask[n])
    assert sum(int(m.sum()) for m in mask.values()) == small.size < big.size
    again = cut_params(back, big, small)
    assert all(torch.equal(again[n], part[n]) for n in part)
    torch.testing.assert_close(big(back, x), small(part, x), rtol=0, atol=1e-12)


def test_an_lstms_gates_are_sliced_one_by_one():
    big, small = pair("har_lstm", 3 / 64, 2 / 64)
    bias = torch.arange(12.0)
    whole = {n: torch.zeros(s) for n, s in big.shapes.items()} | {"1.bias_ih_l0": bias}
    assert cut_params(whole, big, small)["1.bias_ih_l0"].tolist() == [0, 1, 3, 4, 6, 7, 9, 10]


def test_stacks_of_clients_are_resized_at_once():
    big, small = pair("har_lstm", 0.25, 0.1)
    each = [big.init(k) for k in range(3)]
    stack = {n: torch.stack([p[n] for p in each]) for n in big.shapes}
    parts = cut_params(stack, big, small)
    back = pad_params(parts, big, small)
    mapped = vmap(lambda p: pad_params(cut_params(p, big, small), big, small))(stack)
    for k, whole in enumerate(each):
        alone = cut_params(whole, big, small)
        assert all(torch.equal(parts[n][k], alone[n]) for n in alone)
        assert all(torch.equal(back[n][k], pad_params(alone, big, small)[n]) for n in whole)
        assert all(torch.equal(mapped[n][k], back[n][k]) for n in whole)


def test_shallow_inside_deep():
    big = make("resnet18", width=0.25)
    small = make("resnet18", width=0.125, depth=0.5)
    part = cut_params(big.init(0), big, small)
    assert small(part, rows(small)).shape == (4, 10)
    stack = {n: p.expand(2, *p.shape) for n, p in part.items()}
    back = pad_params(stack, big, small)
    assert {n: (2, *s) for n, s in big.shapes.items()} == {n: tuple(p.shape) for n, p in back.items()}
    assert int(sum(m.sum() for m in covered(big, small).values())) == small.size


def test_what_does_not_fit_is_refused():
    big, small = pair("mlp")
    with pytest.raises(ModelError, match=r"'1.weight' has shape \(200, 64\) in it and \(100, 64\)"):
        cut_params(small.init(0), small, big)
    deep = make("mlp", depth=2)
    with pytest.raises(
        ModelError, match=r"its head is \('3.weight', '3.bias'\), not \('5.weight', '5.bias'\)"
    ):
        cut_params(deep.init(0), deep, small)
    with pytest.raises(ModelError, match="isn't part of"):
        pad_params(small.init(0), make("lenet5"), small)
