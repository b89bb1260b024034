"""One batch at a time, in an order that the aggregator can name: what a device will train next, and doing it.

An aggregator sends as `next` a key and a place. By the key a device shuffles its rows, turn after turn, and
deals them into batches; the place counts these from the first. So what it says of its next batch and what it
trains later are of the same rows, though nothing is kept on the device; and a batch stays the next one until
it was trained.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.job import Cost, Local, Result, Rows


@value
class OneBatch:
    """A sampler: the rows of the batch that `next` names, once; how often and how long isn't asked."""

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows:
        found = next_rows(at, batch)
        index, weight = np.zeros((1, batch), np.int64), np.zeros((1, batch), np.float32)
        index[0, : len(found)], weight[0, : len(found)] = found, 1.0
        some = min(1, len(found))
        return Rows(index[:some], weight[:some], float(len(found)))

    def most(self, at: Local, batch: int) -> float:
        """One batch; a device may have fewer rows."""
        return float(min(batch, len(at.rows)))

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        _, _, first, last = _deal(at, batch)
        return last - first


@value
class NextCounts:
    """How many rows of each class are in the batch that `next` names; the weight is how many rows."""

    classes: int
    batch: int

    def cost(self, at: Local) -> Cost:
        most = min(self.batch, len(at.rows))
        return Cost(0.0, {"counts": torch.full((self.classes,), most)}, weight=float(most))

    def run(self, at: Local) -> Result:
        y = at.pool.y[torch.tensor(at.rows[next_rows(at, self.batch)])]
        return Result({"counts": torch.bincount(y, minlength=self.classes)}, weight=float(len(y)))


def next_rows(at: Local, batch: int) -> NDArray[np.intp]:
    """Positions in a device's rows."""
    key, turn, first, last = _deal(at, batch)
    return keys.permute(keys.derive(key, at.node, turn), len(at.rows))[first:last]


def _deal(at: Local, batch: int) -> tuple[int, int, int, int]:
    """The key, which order it is by now, and where the batch begins and ends in it."""
    key, place = at.inbox["next"].tolist()
    rows = len(at.rows)
    turn, step = divmod(place, max(1, -(-rows // batch)))
    return key, turn, min(step * batch, rows), min((step + 1) * batch, rows)
