"""Which rows a device trains on, in which order."""

from collections.abc import Sequence
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
        return self.draw_all([(self, at, batch, epochs, steps)])[0]

    @staticmethod
    def draw_all(asked: "Sequence[tuple[Shuffled, Local, int, int, int | None]]") -> list[Rows]:
        """What each would draw, all orders at once."""
        wholes = [_epochs(sampler._rows(at), b, e, steps) for sampler, at, b, e, steps in asked]
        seeds = [keys.derive(a[1].seed, e) for a, n in zip(asked, wholes, strict=True) for e in range(n)]
        sizes = [len(a[1].rows) for a, n in zip(asked, wholes, strict=True) for _ in range(n)]
        orders, out, first = keys.all_shuffled(seeds, sizes), [], 0
        for (sampler, at, batch, _, steps), epochs in zip(asked, wholes, strict=True):
            n = sampler._rows(at)
            per_epoch = -(-n // batch)
            index = np.zeros((epochs, per_epoch * batch), np.int64)
            weight = np.zeros((epochs, per_epoch * batch), np.float32)
            if epochs:
                index[:, :n], weight[:, :n] = orders[first : first + epochs, :n], 1.0
            total = epochs * per_epoch if steps is None else min(steps, epochs * per_epoch)
            index, weight = index.reshape(-1, batch)[:total], weight.reshape(-1, batch)[:total]
            out.append(Rows(index, weight, float(n)))
            first += epochs
        return out

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        n = self._rows(at)
        if steps is None or n == 0:
            return n * epochs
        whole, rest = divmod(steps, -(-n // batch))
        return n * whole + min(n, rest * batch)

    def _rows(self, at: Local) -> int:
        return len(at.rows) if self.limit is None else min(self.limit, len(at.rows))


def _epochs(rows: int, batch: int, epochs: int, steps: int | None) -> int:
    """Epochs that are begun."""
    if rows == 0:
        return 0
    return epochs if steps is None else -(-steps // -(-rows // batch))
