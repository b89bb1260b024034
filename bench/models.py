"""The models of the training benchmark as plain PyTorch, for contestants that don't know Potluck's."""

from collections.abc import Sequence

import torch
from torch import nn

from bench.workload import Floats


def build(name: str, weights: Sequence[Floats]) -> nn.Module:
    """Softmax regression ("lr") or LeNet-5 ("lenet"), layer by layer as in potluck/models/zoo/small.py."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)) if name == "lr" else _lenet()
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
    return model


def weights_of(model: nn.Module) -> list[Floats]:
    """A model's weights as arrays, in the workload's order."""
    return [p.detach().numpy().copy() for p in model.parameters()]


def _lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
