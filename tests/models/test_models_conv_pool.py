"""Convolution and maximum as one: what torch computes, whatever the sizes, and wherever it may be used."""

from dataclasses import replace

import pytest
import torch
from federations import dealt, pool
from torch import nn

from potluck import fleet
from potluck.core import keys
from potluck.core.job import Local, ModelSpec
from potluck.core.trees import leaves
from potluck.execute.reference import Item, train
from potluck.execute.vectorised.executor import Stacked
from potluck.federation import Federation
from potluck.fleet import Always
from potluck.jobs import SGD, Train
from potluck.models import Models, conv_pool, register
from potluck.models.conv_pool import convolve_and_pool

# channels in and out, image, kernel, padding
SIZES = {
    "LeNet's first": (1, 6, (28, 28), (5, 5), (2, 2)),
    "LeNet's second": (6, 16, (14, 14), (5, 5), (0, 0)),
    "odd sides": (2, 3, (9, 11), (3, 3), (1, 1)),
    "an odd number of values": (2, 3, (9, 10), (3, 3), (0, 0)),
    "even kernels": (3, 2, (10, 9), (4, 2), (1, 0)),
    "oblong": (4, 3, (6, 13), (3, 5), (1, 2)),
    "one place": (1, 2, (7, 8), (1, 1), (0, 0)),
    "one maximum": (2, 2, (4, 4), (3, 3), (0, 0)),
}


def drawn(before, after, image, kernel, rows=3, constant=False):
    torch.manual_seed(0)
    x = torch.randn(rows, before, *image, dtype=torch.float64)
    if constant:  # as the empty parts of pictures: many equal values under one maximum
        x = torch.where(torch.rand(rows, 1, *image) < 0.7, -0.42, x)
    weight = torch.randn(after, before, *kernel, dtype=torch.float64)
    return x.requires_grad_(), weight.requires_grad_(), torch.randn(after).double().requires_grad_()


def plainly(x, weight, bias, padding):
    return torch.max_pool2d(torch.conv2d(x, weight, bias, padding=padding), 2)


@pytest.mark.parametrize("constant", [False, True], ids=["noise", "ties"])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_what_torch_computes(size, constant):
    *sizes, padding = SIZES[size]
    x, weight, bias = drawn(*sizes, constant=constant)
    for given in (
        (x, weight, bias),
        (x, weight, None),
        (x.detach(), weight, bias),
        (x, weight.detach(), bias),
    ):
        ours, theirs = convolve_and_pool(*given, padding), plainly(*given, padding)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        wanted = [t for t in given if t is not None and t.requires_grad]
        g = torch.randn(ours.shape, dtype=torch.float64)
        for a, b in zip(*(torch.autograd.grad(y, wanted, g) for y in (ours, theirs)), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_its_gradient_has_a_gradient():
    given = drawn(2, 3, (6, 7), (3, 3), rows=2)
    assert torch.autograd.gradcheck(lambda *t: convolve_and_pool(*t, (1, 1)), given)
    assert torch.autograd.gradgradcheck(lambda *t: convolve_and_pool(*t, (1, 1)), given)


def convs(shape, classes, channels=1):
    wide = [] if channels == 1 else [nn.Conv2d(1, channels, 1)]
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)),
        *wide,
        *(nn.Conv2d(channels, 3, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(27, classes)),
    )


@pytest.fixture(scope="module")
def federation():
    register("convs", convs)
    register("wide_convs", lambda shape, classes: convs(shape, classes, 9))
    found = pool(dimension=36)
    data = replace(found, x=found.x.reshape(-1, 6, 6))
    sizes = (5, 12, 9)
    devices = fleet.build("mobile", len(sizes), 5, None, None, Always())
    return Federation(data, dealt(data, sizes), devices, Models((6, 6), data.classes, torch.float64))


@pytest.fixture
def calls(monkeypatch):
    """Batches that were computed here."""
    seen, real = [], conv_pool._columns
    monkeypatch.setattr(conv_pool, "_columns", lambda x, size: seen.append(len(x)) or real(x, size))
    return seen


def items(federation, model):
    job = Train(ModelSpec(model), optim=SGD(0.1), batch=4)
    inbox = {"params": federation.models[job.model].init(3)}
    return [
        Item(
            job,
            Local(
                n, federation.partition.rows(n, "train"), inbox, None, n, federation.models, federation.pool
            ),
        )
        for n in range(3)
    ]


def test_a_model_is_trained_with_it(federation, calls):
    todo = items(federation, "convs")
    calls.clear()  # from building the model
    alone = [train(item) for item in todo]
    assert sorted(set(calls)) == [1, 4]  # without the padding of the last batches
    for a, b in zip(Stacked(64).run(todo), alone, strict=True):
        for x, y in zip(leaves(a.body), leaves(b.body), strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-10)


def test_many_channels_are_left_to_torch(federation, calls):
    train(items(federation, "wide_convs")[0])
    assert not calls


def test_transforms_and_large_batches_are_left_to_torch(federation, calls, monkeypatch):
    net, rows, key = federation.models[ModelSpec("convs")], federation.pool.x[:5], keys.as_tensor(1)
    params = net.init(1)

    def loss(params):
        return net(params, rows, key).square().sum()

    calls.clear()  # from building the model
    transformed = torch.func.grad(loss)(params)
    assert not calls
    tracked = {name: p.requires_grad_() for name, p in params.items()}
    here = torch.autograd.grad(loss(tracked), list(tracked.values()))
    assert calls == [5]
    monkeypatch.setattr(conv_pool, "MOST_ROWS", 4)
    there = torch.autograd.grad(loss(tracked), list(tracked.values()))
    assert calls == [5]
    for a, b, c in zip(transformed.values(), here, there, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
        torch.testing.assert_close(b, c, rtol=0, atol=1e-10)
