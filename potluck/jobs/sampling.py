"""Which rows a device trains on, in which order."""

from typing import Protocol

import numpy as np

from potluck import keys
from potluck.codec import value
from potluck.contracts import Local, Rows


class Sampler(Protocol):
    """Draws a task's batches; `epochs` and `steps` are per-task, so they are arguments."""

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows: ...
    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int: ...  # rows that it draws


@value
class Shuffled:
    """Every row once an epoch, in a new order each; the last batch of an epoch may be partial."""

    limit: int | None = None  # use at most this many rows

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows:
        n = self._rows(at)
        if n == 0:
            return nothing(batch)
        per_epoch = -(-n // batch)
        if steps is not None:
            epochs = -(-steps // per_epoch)
        index = np.zeros((epochs, per_epoch * batch), np.int64)
        for epoch in range(epochs):
            index[epoch, :n] = keys.shuffled(keys.derive(at.seed, epoch), len(at.rows))[:n]
        weight = np.zeros((epochs, per_epoch * batch), np.float32)
        weight[:, :n] = 1.0
        total = epochs * per_epoch if steps is None else steps
        return Rows(index.reshape(-1, batch)[:total], weight.reshape(-1, batch)[:total], float(n))

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        n = self._rows(at)
        if steps is None or n == 0:
            return n * epochs
        whole, rest = divmod(steps, -(-n // batch))
        return n * whole + min(n, rest * batch)

    def _rows(self, at: Local) -> int:
        return len(at.rows) if self.limit is None else min(self.limit, len(at.rows))


def nothing(batch: int) -> Rows:
    """No steps at all."""
    return Rows(np.zeros((0, batch), np.int64), np.zeros((0, batch), np.float32), 0.0)
