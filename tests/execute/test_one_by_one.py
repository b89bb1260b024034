"""What can't be mapped over clients is captured one by one, and what goes by numbers is left to a loop."""

import numpy as np
import pytest
import torch
from own_modules import ALONE, Calling, Positive, clients, register_all
from test_executors import close, equal

from potluck.execute.reference import train
from potluck.execute.vectorised import executor
from potluck.execute.vectorised.executor import Stacked
from potluck.models import register


class Telling(Positive):
    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * max(x.flatten().tolist())


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


@pytest.fixture(autouse=True, scope="module")
def registered():
    register_all()
    for name, call in BY_NUMBERS.items():
        register(name.replace(" ", "_"), lambda call=call: Calling(call))


def forbid(item):
    raise AssertionError("it was trained in a loop")


@pytest.mark.parametrize("chunk", [64, 3, 1])
@pytest.mark.parametrize("name", ALONE)
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
