"""Stacks of clients: every layer, every way to convolve, captured or not, equals one client at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, small
from test_executors import CASES, close, drops, equal, items
from torch import nn

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import PotluckError
from potluck.core.job import Local, ModelSpec
from potluck.execute.captured import buffers as graphs
from potluck.execute.captured import cpu as traced
from potluck.execute.reference import Item, train
from potluck.execute.vectorised.executor import Stacked
from potluck.execute.vectorised.stack import Stack
from potluck.execute.vectorised.step import _FUSABLE
from potluck.jobs import SGD, Objective, Prox, Train
from potluck.models import Models, register
from potluck.models.convolve import WAYS

pytestmark = pytest.mark.slow


class Odd(nn.Module):
    """A layer that nobody knows, with weights of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale.view(1, 3, 1, 1) + x.mean((2, 3), keepdim=True)


def odd(shape, classes):
    return nn.Sequential(
        nn.Conv2d(shape[0], 3, 3, padding=1, padding_mode="circular"),
        Odd(),
        nn.GELU(),
        nn.Conv2d(3, 4, 3, padding="same", dilation=2),
        nn.LayerNorm(shape[1:]),
        nn.AvgPool2d(2),
        nn.Dropout2d(0.3),
        nn.Softplus(),
        nn.Flatten(),
        nn.LazyLinear(classes),
    )


def strided(shape, classes):
    layers = (
        nn.Conv2d(shape[0], 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 6, (3, 2), (1, 2), (2, 0)),
    )
    return nn.Sequential(
        *layers, nn.ELU(), nn.Conv2d(6, 6, 1, groups=3), nn.Flatten(), nn.LazyLinear(classes)
    )


@pytest.fixture(autouse=True, scope="module")
def registered():
    register("drops", drops)
    register("odd", odd)
    register("strided", strided)


IMAGE, SIGNAL, TEXT = (1, 12, 12), (3, 20), (6,)
MODELS = {
    "linear": IMAGE,
    "mlp": IMAGE,
    "lenet5": IMAGE,
    "convnet": IMAGE,
    "resnet8": IMAGE,
    "mobilenetv2": IMAGE,
    "har_cnn": SIGNAL,
    "har_cnn_light": SIGNAL,
    "har_lstm": SIGNAL,
    "char_lstm": TEXT,
    "odd": IMAGE,
    "strided": IMAGE,
}
SMALL = {"mlp": 0.05, "lenet5": 0.5, "convnet": 0.1, "resnet8": 0.5, "mobilenetv2": 0.1}
SMALL |= {"har_cnn": 0.05, "har_cnn_light": 0.1, "har_lstm": 0.1, "char_lstm": 0.02}


class Rows:
    def __init__(self, shape, count=60, classes=4):
        make = torch.Generator().manual_seed(1)
        self.x = torch.randn(count, *shape, generator=make, dtype=torch.float64)
        if shape == TEXT:
            self.x = torch.randint(0, classes, (count, *shape), generator=make)
        self.y = torch.randint(0, classes, (count,), generator=make)


def clients(name, job):
    """Five clients of unequal sizes, each with a model of its own."""
    shape, spec = MODELS[name], ModelSpec(name, SMALL.get(name, 1.0))
    pool, out = Rows(shape), []
    models = Models(shape, 4, torch.float64, pool.x.dtype)
    for node, size in enumerate((7, 3, 9, 5, 0)):
        rows = np.arange(10 * node, 10 * node + size)
        inbox = {"params": models[spec].init(node)}
        out.append(
            Item(replace(job, model=spec), Local(node, rows, inbox, None, keys.derive(4, node), models, pool))
        )
    return out


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_every_layer_agrees_with_one_client_at_a_time(name, way):
    todo = clients(name, Train(optim=SGD(0.05), batch=4, epochs=2))
    _FUSABLE.clear()
    stacked = Stacked(64, conv=way)
    alone = [train(item) for item in todo]
    first, again = stacked.run(todo), stacked.run(todo)
    assert all(map(close, first, alone))
    assert all(map(equal, first, again)), "what was computed before must not matter"
    assert not stacked.unmapped, "the test must not compare the loop with itself"


CAPTURED = {"chunks": (3, 1), "one by one": (1, 1), "streams": (1, 4), "chunks on streams": (2, 3)}


@pytest.mark.parametrize("chunk", [64, 1])
@pytest.mark.parametrize("case", CASES)
def test_captured_steps_agree(case, chunk):
    todo = items(small(), **CASES[case])
    stacked = Stacked(chunk, graphs=True)
    alone, first = [train(item) for item in todo], stacked.run(todo)
    assert all(map(close, stacked.run(todo[1:]), alone[1:]))  # buffers are used again
    assert all(map(close, first, alone)), "what came of them before must stay"
    assert not stacked.unmapped


@pytest.mark.parametrize("how", CAPTURED)
def test_captured_steps_agree_in_pieces_and_side_by_side(how, monkeypatch):
    def as_on_a_gpu(mine, shape, tensors):
        return lambda s: mine._advance(shape[0], tensors)

    monkeypatch.setattr(graphs.StepBuffers, "_list_step", as_on_a_gpu)
    chunk, streams = CAPTURED[how]
    for case in ("rates and epochs", "rates of Adam", "teachers", "own numbers", "no steps"):
        todo = items(small(), **CASES[case])
        alone = [train(item) for item in todo]
        stacked = Stacked(chunk, graphs=True, streams=streams)
        for some in (slice(None), slice(1, None), slice(None, None, 2), slice(None)):
            assert all(map(close, stacked.run(todo[some]), alone[some]))
        assert not stacked.unmapped


def test_captured_steps_do_not_depend_on_what_was_trained_before():
    job = Train(optim=SGD(0.05), batch=4, epochs=2)
    one = clients("mlp", job)[0]
    several = [
        Item(one.job, Local(n, one.at.rows[: 1 + n % 7], one.at.inbox, None, n, one.at.models, one.at.pool))
        for n in range(23)
    ]
    used, fresh = Stacked(64, graphs=True), Stacked(64, graphs=True)
    used.run(several)  # its buffers would do for fewer clients as well
    assert all(map(equal, used.run(several[:20]), fresh.run(several[:20])))


def test_models_of_their_own_are_laid_where_captured_steps_find_them():
    job = replace(LOCAL, objective=Prox(0.1))
    todo = items(
        small(), job, send=lambda node, federation: {"params": federation.models[job.model].init(node)}
    )
    alone, stacked, came = [train(item) for item in todo], Stacked(64, graphs=True), []
    for some in (slice(3), slice(None), slice(1, None), slice(2), slice(None)):  # it grows and is used again
        came.append((stacked.run(todo[some]), alone[some]))
    assert all(close(one, other) for some, others in came for one, other in zip(some, others, strict=True))
    (rooms,), (sets,) = stacked.replays._rooms.values(), stacked.replays.made.values()
    where = {room.data_ptr() for room in rooms.values()}
    assert {t.data_ptr() for t in sets[0].held} == where, "copied for nothing"
    assert not {t.data_ptr() for t in sets[0].params} & where, "a model is needed as it was sent"
    assert not stacked.unmapped


def test_other_numbers_of_clients_find_their_steps_captured(monkeypatch):
    """Of asynchronous tasks another number falls due every time."""
    captured, capture = [], graphs.StepBuffers._capture

    def watched(mine, shape):
        captured.append((mine, shape))
        return capture(mine, shape)

    monkeypatch.setattr(graphs.StepBuffers, "_capture", watched)
    todo, stacked = clients("linear", Train(optim=SGD(0.05), batch=4)), Stacked(64, graphs=True)
    for _ in range(2):
        before = len(captured)
        for count in range(len(todo), 1, -1):
            stacked.run(todo[:count])
    assert before == len(captured) > 1
    assert len({id(mine) for mine, _ in captured}) == 1


def test_a_step_that_cannot_be_traced_is_computed(monkeypatch):
    def refuse(*_):
        raise RuntimeError("not today")

    monkeypatch.setattr(traced, "_plan", refuse)
    todo = items(small(), LOCAL)
    for chunk in (64, 1):
        assert all(map(close, Stacked(chunk, graphs=True).run(todo), [train(item) for item in todo]))


def test_what_asks_for_numbers_is_refused_however_few_train():
    """Else what is computed would depend on whether somebody had been refused before."""
    todo = clients("linear", Train(objective=Asks(), optim=SGD(0.05), batch=4))
    for captured in (False, True):
        stacked = Stacked(64, graphs=captured)
        with pytest.warns(UserWarning, match="can't be trained as a stack"):
            stacked.run(todo[:1])
        assert stacked.unmapped


@pytest.mark.parametrize("chunk", [3, 1])
@pytest.mark.parametrize("name", MODELS)
def test_captured_networks_agree(name, chunk):
    todo = clients(name, Train(optim=SGD(0.05, 0.9), batch=4, epochs=2))
    stacked = Stacked(chunk, graphs=True)
    for _ in range(2):
        assert all(map(close, stacked.run(todo), [train(item) for item in todo]))
    assert not stacked.unmapped


@value
class Tied(Objective):
    """Uses the first weight of the model a second time."""

    def penalty(self, net, params, batch, held):
        return 0.1 * (next(iter(params.values())) ** 3).sum()


def fused(job):
    todo = clients("mlp", job)
    _FUSABLE.clear()
    assert all(map(close, Stacked(64).run(todo), [train(item) for item in todo]))
    (known,) = _FUSABLE.values()
    names = list(todo[0].at.inbox["params"])
    return [names[i] for i in sorted(known)]


def test_only_weights_with_a_single_use_descend_in_the_backward_pass():
    plain = Train(optim=SGD(0.1), batch=4)
    weights = [n for n in clients("mlp", plain)[0].at.inbox["params"] if n.endswith("weight")]
    assert fused(plain) == weights
    assert fused(replace(plain, objective=Tied())) == weights[1:]
    assert fused(replace(plain, objective=Prox(0.1))) == []


def test_momentum_is_not_fused():
    todo = clients("mlp", Train(optim=SGD(0.1, momentum=0.9), batch=4, epochs=2))
    _FUSABLE.clear()
    assert all(map(close, Stacked(64).run(todo), [train(item) for item in todo]))
    assert not any(_FUSABLE.values())


# -------------------------------------------------------------------------------------- memory and fallback


def test_a_chunk_that_does_not_fit_is_halved_and_stays_so(monkeypatch):
    from potluck.execute.vectorised import executor as module

    class Tight(module.Stack):
        def __init__(self, some, *rest):
            if len(some) > 3:
                raise torch.OutOfMemoryError("tried to allocate 1 GiB")
            super().__init__(some, *rest)

    monkeypatch.setattr(module, "Stack", Tight)
    todo, told = items(small(), LOCAL), []
    stacked = Stacked(64, on_shrink=told.append)
    alone = [train(item) for item in todo]
    assert all(map(close, stacked.run(todo), alone))
    assert (stacked.chunk, told) == (2, [5, 2])
    assert all(map(close, stacked.run(todo), alone))
    assert told == [5, 2]


def test_one_client_that_does_not_fit_is_an_error(monkeypatch):
    from potluck.execute.vectorised import executor as module

    def full(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(module, "Stack", full)
    with pytest.raises(PotluckError, match="not enough memory to train even one client"):
        Stacked(64).run(items(small(), LOCAL))


@value
class Asks(Objective):
    """Looks at a tensor's value, which no map can do."""

    def penalty(self, net, params, batch, held):
        first = next(iter(params.values()))
        return 0.1 * (first**2).sum() if first.sum().item() > -1e9 else 0.0


def test_what_cannot_be_mapped_is_trained_one_by_one_and_said_once():
    todo = items(small(), replace(LOCAL, objective=Asks()))
    stacked = Stacked(64)
    with pytest.warns(UserWarning, match="can't be trained as a stack .*one by one instead") as said:
        done = stacked.run(todo), stacked.run(todo)
    assert len(said) == 1
    alone = [train(item) for item in todo]
    assert all(map(close, done[0], alone))
    assert all(map(close, done[1], alone))


def test_an_interrupted_map_is_no_job_that_can_not_be_mapped(monkeypatch):
    """Torch leaves its nesting on the way out, and fails at that if it was interrupted on the way in."""

    def interrupted(stack):
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("!dynamicLayerStack.empty() INTERNAL ASSERT FAILED")

    monkeypatch.setattr(Stack, "train", interrupted)
    stacked = Stacked(3)
    with pytest.raises(KeyboardInterrupt):
        stacked.run(items(small(), LOCAL))
    assert not stacked.unmapped
