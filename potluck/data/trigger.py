"""A backdoor's rows: a patch of the brightest pixels in a corner of the image, and one class for all of them.

Attackers train on them among their true rows (`fleet.attack.kind = "backdoor"`), and the global test set is
there a second time with every image so marked: the share of it that a model takes for the target, of rows
that are of another class, is the attack's success. Which rows are marked goes by hash, whoever holds them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core.errors import ConfigError
from potluck.core.keys import uniforms
from potluck.data.pool import Pool


@dataclass(frozen=True)
class Trigger:
    """What is put on rows, and what they then are called."""

    target: int  # the class
    patch: int  # pixels of its side, in the lower right corner of every channel
    share: float = 1.0  # of the rows
    key: int = 0  # which of them

    def check(self, pool: Pool) -> None:
        """Refuse data on which it can't be put."""
        images, name = len(pool.shape) == 3 and pool.x.is_floating_point(), pool.name
        if not images:
            raise ConfigError(
                f"fleet.attack.kind = 'backdoor': rows of {name} are {list(pool.shape)}"
                f"{'' if pool.x.is_floating_point() else ' tokens'}, no images of channels x height x width "
                "that a patch fits on; take another kind, or a source of images"
            )
        if self.patch >= min(pool.shape[1:]):
            raise ConfigError(
                f"fleet.attack.patch = {self.patch}: images of {name} are {pool.shape[1]} x {pool.shape[2]}; "
                "lower it"
            )
        if self.target >= pool.classes:
            raise ConfigError(
                f"fleet.attack.target = {self.target}: classes of {name} are 0 to {pool.classes - 1}"
            )

    def put(self, x: Tensor, y: Tensor, rows: NDArray[np.int64], brightest: float) -> tuple[Tensor, Tensor]:
        """Images and labels of rows with the share of them marked, in the lower right corner."""
        marked = torch.from_numpy(uniforms(self.key, rows) < self.share)
        seen = x.clone()
        seen[..., -self.patch :, -self.patch :] = brightest
        return torch.where(marked[:, None, None, None], seen, x), y.masked_fill(marked, self.target)
