"""What can't be mapped over clients is captured one by one, unless it goes by numbers: then a loop does it."""

import numpy as np
import pytest
import torch
from own_modules import TOKENS, WIDTH, clients
from test_executors import close, equal
from torch import nn

from potluck.execute.reference import train
from potluck.execute.vectorised import executor
from potluck.execute.vectorised.executor import Stacked
from potluck.models import register


class Halves(torch.autograd.Function):
    """A function as others write them: it has no rule for maps."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * (x > 0)


class Telling(Halves):
    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * max(x.flatten().tolist())


def write(h):
    out = torch.zeros(len(h), WIDTH, dtype=h.dtype)  # no client's own, and a client's rows are written there
    out[:, :4] = 2 * h[:, :4]
    return out + h


STEADY = {"a function without a rule": Halves.apply, "written in place": write}
BY_NUMBERS = {
    "an item": lambda h: h / (1 + float(h.detach().abs().max())),
    "a branch": lambda h: 2 * h if h.sum() > 0 else h,
    "a list": lambda h: h / (1 + max(h.detach().flatten().tolist())),
    "an array": lambda h: h / (1 + np.abs(np.asarray(h.detach())).max()),
    "of NumPy": lambda h: h / (1 + float(h.detach().numpy().max())),
    "some rows": lambda h: h - h[h[:, 0] > 0].sum(),
    "places": lambda h: h * len((h[:, 0] > 0).nonzero()),
    "equal": lambda h: h if torch.equal(h, h.abs()) else 3 * h,
    "in a backward pass": Telling.apply,
}


class Middle(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.tokens, self.call = nn.Embedding(TOKENS, WIDTH), call
        self.up, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, TOKENS)

    def forward(self, x):
        return self.head(self.call(self.up(self.tokens(x).mean(1))))


@pytest.fixture(autouse=True, scope="module")
def registered():
    for name, call in (STEADY | BY_NUMBERS).items():
        register(name.replace(" ", "_"), lambda call=call: Middle(call))


def forbid(item):
    raise AssertionError("it was trained in a loop")


@pytest.mark.parametrize("chunk", [64, 3, 1])
@pytest.mark.parametrize("name", STEADY)
def test_what_cannot_be_mapped_is_captured_one_by_one(name, chunk, monkeypatch, recwarn):
    todo, stacked = clients(name), Stacked(chunk, graphs=True)
    alone = [train(item) for item in todo]
    monkeypatch.setattr(executor, "train", forbid)
    first, again = stacked.run(todo), stacked.run(todo)
    assert all(map(close, first, alone))
    assert all(map(equal, first, again))
    assert stacked.unmapped
    assert (stacked.fell_back, [*recwarn]) == ("", [])


@pytest.mark.parametrize("name", BY_NUMBERS)
def test_what_goes_by_numbers_is_never_captured(name):
    todo, stacked = clients(name), Stacked(64, graphs=True)
    with pytest.warns(UserWarning, match="can't be trained as a stack .*one by one instead") as said:
        done = stacked.run(todo), stacked.run(todo)
    assert len(said) == 1
    assert all(map(equal, done[0], [train(item) for item in todo]))
    assert all(map(equal, *done))


def test_where_nothing_is_captured_a_loop_does_it():
    todo = clients("written in place")
    stacked = Stacked(64)
    with pytest.warns(UserWarning, match="inplace"):
        done = stacked.run(todo)
    assert all(map(equal, done, [train(item) for item in todo]))
