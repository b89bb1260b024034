"""Frozen parameters: constants that every device has, and that are neither trained nor sent."""

import numpy as np
import pytest
import torch
from torch import nn

import potluck
from potluck.core import keys
from potluck.core.errors import ModelError
from potluck.core.job import Local, ModelSpec
from potluck.execute.reference import Item, train
from potluck.execute.tune.memory import measure_client
from potluck.execute.vectorised.executor import Stacked
from potluck.jobs import SGD, Train
from potluck.models import Model, Models, register
from potluck.models.footprint import inference_bytes, training_bytes
from potluck.models.registry import MODELS


class Shifted(nn.Module):
    """Logits of one pixel: x times fixed slopes, plus what is learnt."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(1, 2)
        self.line.weight = nn.Parameter(torch.tensor([[1.0], [-1.0]]), requires_grad=False)
        self.line.bias = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.line(x)


class Tied(nn.Module):
    """Two frozen layers that are one, around a trained one."""

    def __init__(self, width=40):
        super().__init__()
        self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        self.leave.weight = self.enter.weight
        for part in (self.enter, self.leave):
            part.requires_grad_(False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.leave(torch.tanh(self.norm(self.enter(x)))))


@pytest.fixture(autouse=True)
def registered():
    before = dict(MODELS._values), dict(MODELS._modules)
    register("shifted", Shifted)
    register("tied", Tied)
    yield
    MODELS._values, MODELS._modules = before


def tied():
    return Model(ModelSpec("tied"), (40,), 3)


def test_only_the_trained_ones_travel_and_are_charged():
    model = tied()
    trained = {"norm.weight": (40,), "norm.bias": (40,), "head.weight": (3, 40), "head.bias": (3,)}
    assert model.shapes == trained
    assert model.size == 40 + 40 + 120 + 3
    assert model.nbytes == 4 * model.size
    assert list(model.init(1)) == list(trained)
    assert model.ops == 2 * 40 * 40 + 120  # they are computed with all the same


def test_constants_do_not_depend_on_the_seed():
    model, x = tied(), torch.linspace(-1, 1, 80).view(2, 40)
    one, other = model.init(1), model.init(2)
    assert not torch.equal(one["head.weight"], other["head.weight"])
    same = model.module(one)
    torch.testing.assert_close(same(x), model(one, x))
    assert same.leave.weight is same.enter.weight
    assert set(same.state_dict()) == set(Tied().state_dict())


def test_a_step_by_hand():
    """Of one row with x = 2 and label 0: softmax of (2, -2); the bias goes by rate times what is missing."""

    class Pool:
        x, y = torch.tensor([[2.0]], dtype=torch.float64), torch.tensor([0])

    models = Models((1,), 2, torch.float64)
    job = Train(ModelSpec("shifted"), optim=SGD(0.5), batch=1)
    inbox = {"params": models[job.model].init(0)}
    assert list(inbox["params"]) == ["line.bias"]
    items = [Item(job, Local(n, np.zeros(1, np.int64), inbox, None, n, models, Pool())) for n in range(3)]
    off = 0.5 / (1 + np.exp(4.0))
    for result in (train(items[0]), *Stacked(3).run(items), *Stacked(3, graphs=True).run(items)):
        delta = result.body["delta"]
        assert list(delta) == ["line.bias"]
        np.testing.assert_allclose(delta["line.bias"].numpy(), [off, -off], rtol=1e-12)


def test_memory_holds_constants_once():
    model, optim = tied(), SGD(0.1)
    constants = 4 * (40 * 40 + 40 + 40)  # the weight that is two layers', and their biases
    assert sum(c.numel() for c in model.constants) * 4 == constants
    one, two = training_bytes(model, optim, 1), training_bytes(model, optim, 2)
    assert 3 * model.nbytes + constants + (two - one) == one
    assert two - one < constants / 4, "a row doesn't take the weights that it passes"
    assert inference_bytes(model) == model.nbytes + constants + two - one

    class Pool:
        x, y = torch.zeros(8, 40), torch.zeros(8, dtype=torch.int64)

    models = Models((40,), 3)
    job = Train(ModelSpec("tied"), optim=optim, batch=1)
    inbox = {"params": models[job.model].init(0)}
    takes = measure_client(Item(job, Local(0, np.arange(8), inbox, None, keys.derive(1), models, Pool())))
    assert takes.step < 3 * model.nbytes + constants


def test_a_model_of_constants_alone_is_refused():
    register("still", lambda: nn.Linear(4, 2).requires_grad_(False))
    with pytest.raises(ModelError, match="'still' has no parameters to train; are they all frozen"):
        Model(ModelSpec("still"), (4,), 2)


def test_a_frozen_last_layer_is_no_head():
    def probe(shape, classes):
        return nn.Sequential(nn.Linear(*shape, 6), nn.Linear(6, classes).requires_grad_(False))

    register("backwards", probe)
    model = Model(ModelSpec("backwards"), (4,), 2)
    assert model.head_names == ("0.weight", "0.bias")
    x = torch.ones(3, 4)
    params = model.init(0)
    torch.testing.assert_close(model.head(params, model.features(params, x)), model(params, x))


def test_a_run_says_what_is_frozen():
    def probe(shape, classes):
        return nn.Sequential(nn.Linear(*shape, 6).requires_grad_(False), nn.Tanh(), nn.Linear(6, classes))

    register("probe", probe)
    data = {"source": "synthetic", "rows": 200, "classes": 3, "dimension": 4, "clients": 5}
    experiment = potluck.Experiment(data=data, model={"name": "probe"}, stop={"rounds": 2})
    run = potluck.run(experiment)
    told = [notice for notice in run.notices if "frozen" in notice]
    assert told == [
        "model 'probe': 30 numbers are frozen ('0.weight', '0.bias'): "
        "constants that every device has, neither trained nor sent"
    ]
    assert sorted(run.models["global"].state_dict()) == ["0.bias", "0.weight", "2.bias", "2.weight"]
