"""Clients that train on wrong labels, by mistake or by intent; what they are tested on stays right.

`random`: every train row of such a client bears another class, drawn by hash, the same whoever holds it.
`next`: it bears the class after its own, the first one after the last. Labels are flipped after a group has
renamed them. Who flips does so through all changes of the data; a row that is dealt to somebody else is right
again, but one that a flipper itself hands on (a move between devices) stays wrong.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core.errors import ConfigError, nearest
from potluck.core.keys import hash_all
from potluck.data.pool import Pool

FLIP_KINDS = ("random", "next")


@dataclass(frozen=True)
class Flip:
    """How many clients flip labels, and how."""

    share: float  # of the clients, to the nearest, one at least
    kind: str = "random"

    def __post_init__(self) -> None:
        if self.kind not in FLIP_KINDS:
            raise ConfigError(f"flip.kind = {self.kind!r}: no such kind; {nearest(self.kind, FLIP_KINDS)}")
        if not 0 < self.share <= 1:
            raise ConfigError(
                f"flip.share = {self.share}: must be above 0 and at most 1; leave flip out for none"
            )

    def check(self, pool: Pool) -> None:
        if pool.classes < 2:
            raise ConfigError(f"flip.kind = {self.kind!r}: {pool.name} has one class only; leave flip out")


def flip_labels(labels: Tensor, rows: NDArray[np.int64], classes: int, kind: str, key: int) -> Tensor:
    """Labels of rows, every one of them another class."""
    if kind == "next":
        return (labels + 1) % classes
    step = (hash_all(key, rows) % np.uint64(classes - 1)).astype(np.int64) + 1
    return (labels + torch.from_numpy(step)) % classes
