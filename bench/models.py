"""The models of the training benchmark as plain PyTorch, for contestants that don't know Potluck's.

Softmax regression and LeNet-5 go layer by layer as in potluck/models/zoo/small.py, ResNet-8 as in vision.py.
The others see the same images as sequences: an LSTM reads line by line, a transformer sees 16 patches. All
but the first two are modules as anybody writes them, which Potluck doesn't know by name.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bench.workload import Floats


def build(name: str, weights: Sequence[Floats]) -> nn.Module:
    """The model of this name with these weights."""
    model = _MAKERS[name]()
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
    return model


def draw(name: str, seed: int) -> list[Floats]:
    """Weights as PyTorch draws them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return weights_of(_MAKERS[name]())


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


class Lines(nn.Module):
    """An LSTM of 64 that reads an image line by line: 24,714 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.head = nn.LSTM(28, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.memory(x.squeeze(1))[0][:, -1])
        return logits


class Patches(nn.Module):
    """Two blocks of PyTorch's own transformer over patches of 7x7 pixels: 19,594 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.places = nn.Linear(49, 32), nn.Parameter(0.02 * torch.randn(16, 32))
        blocks = (
            nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.blocks, self.norm, self.head = nn.Sequential(*blocks), nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        patches = x.unfold(2, 7, 7).unfold(3, 7, 7).flatten(1, 3).flatten(2)
        logits: Tensor = self.head(self.norm(self.blocks(self.enter(patches) + self.places)).mean(1))
        return logits


class Block(nn.Module):
    """A residual block, whose shortcut is a convolution of single pixels."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_conv(before, after, 3, stride), nn.ReLU(), *_conv(after, after, 3, 1))
        self.shortcut = nn.Sequential(*_conv(before, after, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _conv(before: int, after: int, kernel: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
    return [conv, nn.GroupNorm(after // 8, after)]


def _resnet8() -> nn.Module:
    blocks = (Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(*_conv(1, 16, 3, 1), nn.ReLU(), *blocks, *end)


_MAKERS: dict[str, Callable[[], nn.Module]] = {
    "lr": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
    "lenet": _lenet,
    "lstm": Lines,
    "transformer": Patches,
    "resnet8": _resnet8,
}
