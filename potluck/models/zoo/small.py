"""The small models of the federated-learning literature, plain Sequentials with PyTorch's initial weights."""

import math

from torch import nn

from potluck.core.errors import ModelError
from potluck.models.registry import register

Shape = tuple[int, ...]


def scale_units(units: int, width: float) -> int:
    """Units of a layer at a width: rounded up, at least 1."""
    return max(1, math.ceil(units * width - 1e-9))  # 200 * 0.07 is a little above 14


def linear(shape: Shape, classes: int) -> nn.Module:
    """Softmax regression."""
    return nn.Sequential(*_flat(shape), nn.Linear(math.prod(shape), classes))


def mlp(shape: Shape, classes: int, width: float, depth: float) -> nn.Module:
    """A perceptron with hidden layers of 200: one, or `depth`. Depth 2 is the 2NN of the FedAvg paper."""
    layers, size = _flat(shape), math.prod(shape)
    for _ in range(scale_units(1, depth)):
        layers += [nn.Linear(size, size := scale_units(200, width)), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(size, classes))


def lenet5(shape: Shape, classes: int, width: float) -> nn.Module:
    """LeNet-5 with ReLU and maxima: 61,706 parameters for 28x28x1 and 10 classes, 62,006 for 32x32x3.

    The first convolution pads towards the 32 pixels that the network was made for, by 2 at most; the second
    pads where it would leave nothing of a small image.
    """
    channels, side, layers = image("lenet5", shape)
    pad1 = tuple(min(2, max(0, (33 - s) // 2)) for s in side)
    half = [(s + 2 * p - 4) // 2 for s, p in zip(side, pad1, strict=True)]
    pad2 = tuple(2 if s < 6 else 0 for s in half)
    quarter = [(s + 2 * p - 4) // 2 for s, p in zip(half, pad2, strict=True)]
    _check_side("lenet5", shape, quarter)
    c1, c2, d1, d2 = (scale_units(units, width) for units in (6, 16, 120, 84))
    return nn.Sequential(
        *layers,
        *_conv_block(channels, c1, pad1),
        *_conv_block(c1, c2, pad2),
        nn.Flatten(),
        nn.Linear(c2 * math.prod(quarter), d1),
        nn.ReLU(),
        nn.Linear(d1, d2),
        nn.ReLU(),
        nn.Linear(d2, classes),
    )


def convnet(shape: Shape, classes: int, width: float) -> nn.Module:
    """The CNN of the FedAvg paper: 1,663,370 parameters for 28x28x1 and 10 classes."""
    channels, side, layers = image("convnet", shape)
    quarter = [s // 2 // 2 for s in side]
    _check_side("convnet", shape, quarter)
    c1, c2, d1 = (scale_units(units, width) for units in (32, 64, 512))
    return nn.Sequential(
        *layers,
        *_conv_block(channels, c1, (2, 2)),
        *_conv_block(c1, c2, (2, 2)),
        nn.Flatten(),
        nn.Linear(c2 * math.prod(quarter), d1),
        nn.ReLU(),
        nn.Linear(d1, classes),
    )


def _flat(shape: Shape) -> list[nn.Module]:
    return [] if len(shape) == 1 else [nn.Flatten()]


def _conv_block(before: int, after: int, padding: tuple[int, ...]) -> list[nn.Module]:
    # The maximum before the ReLU: the same numbers (ReLU is monotonic), a quarter of the ReLU's work.
    return [nn.Conv2d(before, after, 5, padding=padding), nn.MaxPool2d(2), nn.ReLU()]  # type: ignore[arg-type]


def image(name: str, shape: Shape) -> tuple[int, tuple[int, int], list[nn.Module]]:
    """Channels, height and width of an image, and the layer that adds a channel if it has none."""
    if len(shape) == 2:
        return 1, (shape[0], shape[1]), [nn.Unflatten(1, (1, shape[0]))]
    if len(shape) != 3:
        raise ModelError(
            f"model {name!r} needs images (channels, height, width), but the rows have shape {shape}; "
            f"use 'linear' or 'mlp'"
        )
    if shape[2] <= 4 < min(shape[:2]):
        raise ModelError(
            f"model {name!r} needs channels first, but the rows have shape {shape}; "
            f"permute them to {(shape[2], *shape[:2])}"
        )
    return shape[0], (shape[1], shape[2]), []


def _check_side(name: str, shape: Shape, left: list[int]) -> None:
    if min(left) < 1:
        raise ModelError(
            f"model {name!r} halves images twice and needs at least 4x4 pixels, but the rows have shape "
            f"{shape}; use 'linear' or 'mlp'"
        )


for _build in (linear, mlp, lenet5, convnet):
    register(_build.__name__, _build)
