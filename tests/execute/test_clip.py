"""Gradients no longer than [train] clip says: by hand, of every client for itself, in every executor."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from potluck import Experiment
from potluck.core.errors import ConfigError
from potluck.core.job import Local, ModelSpec
from potluck.execute.reference import Item, train
from potluck.execute.vectorised.executor import Stacked
from potluck.experiment.build import build_training
from potluck.jobs import SGD, Train
from potluck.models import Models

D = torch.float64
SPEC = ModelSpec("linear")
# Weights of 0, so both classes have 1/2; label 0: the logits' slope is (-1/2, 1/2).
# Row (3, 4): the weights' slope is -1/2 and 1/2 of the row, the biases' -1/2 and 1/2. Squares:
# 2 x (1.5^2 + 2^2) + 2 x 0.5^2 = 13. Row (0, 0): the biases' alone, 2 x 0.5^2 = 1/2: shorter than 1.
WEIGHT = torch.tensor([[-1.5, -2.0], [1.5, 2.0]], dtype=D)
BIAS = torch.tensor([-0.5, 0.5], dtype=D)
WAYS = {
    "loop": lambda todo: [train(item) for item in todo],
    "stacked": Stacked(64).run,
    "captured": Stacked(64, graphs=True).run,
    "captured one by one": Stacked(1, graphs=True).run,
}


def step(way, **settings):
    """What one step at a rate of 1/10 changes on two devices: weight and bias of each."""
    models = Models((2,), 2, D)
    pool = SimpleNamespace(x=torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=D), y=torch.tensor([0, 0]))
    sent = {"params": {name: torch.zeros(s, dtype=D) for name, s in models[SPEC].shapes.items()}}
    job = Train(SPEC, optim=SGD(0.1), batch=1, **settings)
    todo = [Item(job, Local(n, np.array([n]), sent, None, n, models, pool)) for n in range(2)]
    return [tuple(result.body["delta"].values()) for result in WAYS[way](todo)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("clip", "length"), [(1.0, 13**0.5), (4.0, 1.0), (None, 1.0)])
def test_a_long_gradient_is_shortened_by_hand(way, clip, length):
    far, near = step(way, clip=clip)  # 13 ** 0.5 = 3.6 is below 4: stays
    torch.testing.assert_close(far[0], -0.1 * WEIGHT / length, rtol=0, atol=1e-12)
    torch.testing.assert_close(far[1], -0.1 * BIAS / length, rtol=0, atol=1e-12)
    torch.testing.assert_close(near[1], -0.1 * BIAS, rtol=0, atol=1e-12)  # whoever else is in the stack


def test_an_experiment_says_how_long():
    trained = Experiment(algorithm="fedavg", train={"clip": 0.5}).resolve()
    assert build_training(trained, trained.train).clip == 0.5
    plain = Experiment(algorithm="fedavg").resolve()
    assert build_training(plain, plain.train).clip is None


@pytest.mark.parametrize("clip", [0.0, -1.0, float("inf"), float("nan")])
def test_a_length_is_a_number_above_zero(clip):
    with pytest.raises(ConfigError, match=r"train\.clip = .*must be above 0"):
        Train(clip=clip)
