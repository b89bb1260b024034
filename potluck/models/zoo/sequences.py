"""Models of signals (channels, steps) and of text (tokens)."""

from itertools import pairwise

from torch import nn

from potluck.core.errors import ModelError
from potluck.models.registry import register
from potluck.models.zoo.blocks import Last, PlainLSTM, Steps
from potluck.models.zoo.small import Shape, scale_units


def har_cnn(shape: Shape, classes: int, width: float) -> nn.Module:
    """Fed-RAC's network for human activities: 557,510 parameters for 9x128 and 6 classes.

    Convolutions of 128-64-128-256-512 filters, kernel 3, stride 2; the first one keeps its width. Padded by
    1, which the paper leaves open, so that windows of any length do.
    """
    channels, left = _check_signal("har_cnn", shape)
    filters = (channels, 128, *(scale_units(units, width) for units in (64, 128, 256, 512)))
    for _ in filters[1:]:
        left = (left + 1) // 2
    return nn.Sequential(*_convs(filters, 3), nn.Flatten(), nn.Linear(filters[-1] * left, classes))


def har_cnn_light(shape: Shape, classes: int, width: float) -> nn.Module:
    """A light one of 64-64-128 filters, all scaled, kernel 5: 65,350 parameters for 9x128 and 6 classes.

    Stride 2, and the mean over time before the last layer. At a width of 1/8 it has 1,454 parameters.
    """
    filters = (
        _check_signal("har_cnn_light", shape)[0],
        *(scale_units(units, width) for units in (64, 64, 128)),
    )
    pool = (nn.AdaptiveAvgPool1d(1), nn.Flatten())
    return nn.Sequential(*_convs(filters, 5), *pool, nn.Linear(filters[-1], classes))


def har_lstm(shape: Shape, classes: int, width: float, depth: float) -> nn.Module:
    """A signal read step by step by an LSTM of 64: 19,590 parameters for 9x128 and 6 classes."""
    channels, hidden = _check_signal("har_lstm", shape)[0], scale_units(64, width)
    memory = PlainLSTM(channels, hidden, scale_units(1, depth))
    return nn.Sequential(Steps(), memory, Last(), nn.Linear(hidden, classes))


def char_lstm(shape: Shape, classes: int, vocabulary: int, width: float, depth: float) -> nn.Module:
    """LEAF's network for Shakespeare, the next character after some: 819,920 parameters for 80 characters.

    Rows are int64 tokens below `vocabulary`. Embedded in 8 dimensions, two LSTMs of 256.
    """
    if len(shape) != 1:
        raise ModelError(f"model 'char_lstm' needs rows of tokens (steps,), but they have shape {shape}")
    hidden = scale_units(256, width)
    memory = PlainLSTM(8, hidden, scale_units(2, depth))
    return nn.Sequential(nn.Embedding(vocabulary, 8), memory, Last(), nn.Linear(hidden, classes))


def _convs(filters: tuple[int, ...], kernel: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(filters):
        layers += [nn.Conv1d(before, after, kernel, stride=2, padding=kernel // 2), nn.ReLU()]
    return layers


def _check_signal(name: str, shape: Shape) -> Shape:
    if len(shape) != 2:
        raise ModelError(
            f"model {name!r} needs signals (channels, steps), but the rows have shape {shape}; "
            f"use 'linear' or 'mlp'"
        )
    return shape


for _build in (har_cnn, har_cnn_light, har_lstm, char_lstm):
    register(_build.__name__, _build)
