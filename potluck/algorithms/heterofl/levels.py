"""Which of several sizes of a model a device trains: by speed, by memory, or by lot."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from potluck.authoring import Claims, Node, value
from potluck.core import keys

By = Literal["compute", "memory", "lot"]


@value
class Ladder:
    """Levels from 0, the biggest model, and what decides on a device's."""

    by: By
    bounds: tuple[float, ...]  # where levels end but the last: ms per sample, or shares of lots
    needs: tuple[int, ...]  # bytes that training takes, by level
    key: int = 0  # of the lots

    def assign(self, nodes: Sequence[Node], claims: Claims) -> list[int]:
        """The levels of devices that have memory for any."""
        if self.by == "memory":
            return [0] * len(nodes)
        if self.by == "compute":
            return [int(level) for level in np.searchsorted(self.bounds, claims.compute)]
        lots = keys.uniforms(self.key, np.array(nodes, np.int64))
        return [int(level) for level in np.searchsorted(self.bounds, lots, side="right")]

    def fit_memory(self, wanted: Sequence[int], claims: Claims) -> list[int | None]:
        """These levels, or the next smaller that fits into memory; None where none does."""
        fits = np.array(self.needs) <= claims.memory[:, None]
        smaller = [np.flatnonzero(row[level:]) for row, level in zip(fits, wanted, strict=True)]
        return [level + int(fit[0]) if len(fit) else None for fit, level in zip(smaller, wanted, strict=True)]


def build_ladder(by: By, shares: Sequence[float], needs: Sequence[int], claims: Claims, key: int) -> Ladder:
    """Levels that get these shares of the devices, the fastest of those that claim so first."""
    ends = np.minimum(np.cumsum(shares[:-1]), 1.0)
    bounds = np.quantile(claims.compute, ends) if by == "compute" else ends
    return Ladder(by, tuple(float(b) for b in bounds), tuple(needs), key)


def cap_levels(levels: Sequence[int], least: Mapping[Node, int], nodes: Sequence[Node]) -> list[int]:
    """Levels that are no bigger than what is known of a device."""
    return [max(level, least.get(node, 0)) for node, level in zip(nodes, levels, strict=True)]
