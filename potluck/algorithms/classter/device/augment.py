"""Other views of the same rows, for contrastive training: each row changed by chance, its class the same.

An augmentation is a pure function of rows and a key, so that it can be mapped over clients. Rows are floats
of shape [rows, ...]: images have three axes more (channels, height, width), signals one or two.
"""

from typing import Annotated, Protocol

import torch
from torch import Tensor

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.parts import part, role


@role("augment")
class Augment(Protocol):
    """A random change of every row that leaves its class alone."""

    def view(self, x: Tensor, key: Tensor) -> Tensor: ...
    def suits(self, shape: tuple[int, ...]) -> bool: ...  # of one row


@part("augment")
@value
class Crop:
    """For images: a random square of each, blown up to its size by nearest pixels; its contrast changes."""

    smallest: Annotated[float, "side of the square, as a share of the image's"] = 0.6
    contrast: Annotated[float, "values are multiplied by 1 up to so much more or less"] = 0.3
    flip: Annotated[bool, "left and right change places in half of the images"] = False

    def __post_init__(self) -> None:
        fix = "must be above 0 and at most 1: the share of an image's side that is kept"
        require(0 < self.smallest <= 1, "augment.smallest", self.smallest, fix)
        require(0 <= self.contrast < 1, "augment.contrast", self.contrast, "must be at least 0 and below 1")

    def suits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 3

    def view(self, x: Tensor, key: Tensor) -> Tensor:
        rows, channels, height, width = x.shape
        chance = keys.uniform(key, (rows, 5), x.dtype).unbind(1)  # row by row, whatever follows
        side = 1 - (1 - self.smallest) * chance[0]
        x = x.gather(2, _window(side, chance[1], height).view(rows, 1, height, 1).expand_as(x))
        across = _window(side, chance[2], width)
        if self.flip:
            across = torch.where((chance[3] < 0.5).unsqueeze(1), across.flip(1), across)
        x = x.gather(3, across.view(rows, 1, 1, width).expand(rows, channels, height, width))
        return x * (1 + self.contrast * (2 * chance[4] - 1)).view(rows, 1, 1, 1)


def _window(side: Tensor, place: Tensor, length: int) -> Tensor:
    """Which of `length` pixels each row shows: a stretch of share `side`, which begins where `place` says."""
    start, at = (1 - side) * length * place, torch.arange(length, device=side.device) + 0.5
    return (start.unsqueeze(1) + side.unsqueeze(1) * at).long().clamp(0, length - 1)


@part("augment")
@value
class Jitter:
    """For signals and other vectors: every channel scaled by chance, and noise on every value."""

    scale: Annotated[float, "deviation of a channel's factor"] = 0.1
    noise: Annotated[float, "deviation of what is added to a value; data are normalised to deviate by 1"] = (
        0.1
    )

    def __post_init__(self) -> None:
        for name in ("scale", "noise"):
            value = getattr(self, name)
            require(0 <= value < float("inf"), f"augment.{name}", value, "must be 0 or more, such as 0.1")

    def suits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) in (1, 2)

    def view(self, x: Tensor, key: Tensor) -> Tensor:
        channels = (*x.shape[:-1], 1)
        factor = 1 + self.scale * keys.normal(keys.fold_in(key, 1), channels, x.dtype)
        return x * factor + self.noise * keys.normal(keys.fold_in(key, 2), tuple(x.shape), x.dtype)


@part("augment")
@value
class ByShape:
    """The one of the two that suits the rows: images by their three axes, all else as signals."""

    images: Annotated[Crop, "for rows of three axes"] = Crop()
    signals: Annotated[Jitter, "for all others"] = Jitter()

    def suits(self, shape: tuple[int, ...]) -> bool:
        return self.images.suits(shape) or self.signals.suits(shape)

    def view(self, x: Tensor, key: Tensor) -> Tensor:
        chosen: Augment = self.images if self.images.suits(tuple(x.shape[1:])) else self.signals
        return chosen.view(x, key)


def noise_like(x: Tensor, key: Tensor, real: Tensor | None = None) -> Tensor:
    """Rows that show nothing: standard normal values; of tokens, any that occur in the first `real` rows."""
    if x.is_floating_point():
        return keys.normal(key, tuple(x.shape), x.dtype)
    flat = x.reshape(-1)
    count = len(flat) if real is None else real * (len(flat) // len(x))
    at = (keys.uniform(key, tuple(x.shape), torch.float64) * count).long()
    return flat.index_select(0, at.reshape(-1)).reshape(x.shape)
