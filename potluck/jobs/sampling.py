"""Which rows a device trains on, in which order."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.job import Local, Rows


class Sampler(Protocol):
    """Draws a task's batches; `epochs` and `steps` are per-task, so they are arguments."""

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows: ...
    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int: ...  # rows that it draws
    def most(self, at: Local, batch: int) -> float: ...  # the largest `Rows.count`, a reply's weight


class Draw(NamedTuple):
    """What one task asks a sampler for."""

    sampler: Sampler
    at: Local
    batch: int
    epochs: int
    steps: int | None


@runtime_checkable
class ManySampler(Sampler, Protocol):
    """A sampler that draws for many tasks at once, faster than one by one."""

    @staticmethod
    def draw_all(asked: Sequence[Draw]) -> list[Rows]: ...  # all by samplers of this kind


@value
class Shuffled:
    """Every row once an epoch, in a new order each; the last batch of an epoch may be partial."""

    limit: int | None = None  # use at most this many rows

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows:
        return self.draw_all([Draw(self, at, batch, epochs, steps)])[0]

    @staticmethod
    def draw_all(asked: Sequence[Draw]) -> list[Rows]:
        """What each would draw, all orders at once."""
        counts = [ask.sampler.passes(ask.at, ask.batch, 1, None) for ask in asked]  # rows of an epoch
        wholes = [_epochs(n, b, e, steps) for n, (_, _, b, e, steps) in zip(counts, asked, strict=True)]
        seeds = [keys.derive(a[1].seed, e) for a, n in zip(asked, wholes, strict=True) for e in range(n)]
        sizes = [len(a[1].rows) for a, n in zip(asked, wholes, strict=True) for _ in range(n)]
        orders = keys.permute_all(seeds, sizes)
        # One table for all, a row an epoch, of which everybody's batches are a part.
        widths = [-(-n // a[2]) * a[2] for n, a in zip(counts, asked, strict=True)]
        real = np.arange(max(widths, default=0)) < np.repeat(counts, wholes)[:, None]
        index, weight = np.zeros(real.shape, np.int64), real.astype(np.float32)
        filled = min(orders.shape[1], real.shape[1])
        np.copyto(index[:, :filled], orders[:, :filled], where=real[:, :filled])
        out, first = [], 0
        for (_, _, batch, _, steps), n, width, epochs in zip(asked, counts, widths, wholes, strict=True):
            mine, first = slice(first, first + epochs), first + epochs
            places = index[mine, :width].reshape(-1, batch)[:steps]
            out.append(Rows(places, weight[mine, :width].reshape(-1, batch)[:steps], float(n)))
        return out

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        n = len(at.rows) if self.limit is None else min(self.limit, len(at.rows))
        return count_passes(n, batch, epochs, steps)

    def most(self, at: Local, batch: int) -> float:
        """Its rows, each counted once however often it comes."""
        return float(self.passes(at, batch, 1, None))


@value
class AtMost:
    """What another sampler draws, up to a number of batches: for a device that has no time for all of it."""

    sampler: Sampler = Shuffled()
    batches: int = 1

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows:
        return self.sampler.draw(at, batch, epochs, self._stop(at, batch, epochs, steps))

    @staticmethod
    def draw_all(asked: Sequence[Draw]) -> list[Rows]:
        """What each would draw; all orders at once where the samplers within are shuffled."""
        inner = [ask.sampler._within(ask) for ask in asked if isinstance(ask.sampler, AtMost)]
        if all(type(ask.sampler) is Shuffled for ask in inner):
            return Shuffled.draw_all(inner)
        return [d.sampler.draw(d.at, d.batch, d.epochs, d.steps) for d in inner]

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        return self.sampler.passes(at, batch, epochs, self._stop(at, batch, epochs, steps))

    def most(self, at: Local, batch: int) -> float:
        """Its rows, also those that it has no time for."""
        return self.sampler.most(at, batch)

    def _within(self, ask: Draw) -> Draw:
        return ask._replace(sampler=self.sampler, steps=self._stop(*ask[1:]))

    def _stop(self, at: Local, batch: int, epochs: int, steps: int | None) -> int | None:
        """The batches to draw; None: whole epochs, which are fewer."""
        whole = self.sampler.passes(at, batch, epochs, steps)
        return steps if whole <= self.sampler.passes(at, batch, epochs, self.batches) else self.batches


@value
class InPart:
    """What `AtMost` draws, weighed by what is drawn: rows gone through over epochs, not all rows."""

    sampler: Sampler = Shuffled()
    batches: int = 1

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows:
        return self.draw_all([Draw(self, at, batch, epochs, steps)])[0]

    @staticmethod
    def draw_all(asked: Sequence[Draw]) -> list[Rows]:
        """What each would draw; all orders at once where the samplers within are shuffled."""
        parts = [(ask, ask.sampler) for ask in asked if isinstance(ask.sampler, InPart)]
        drawn = AtMost.draw_all([ask._replace(sampler=part._less) for ask, part in parts])
        shares = [part.passes(*ask[1:]) / max(1, ask.epochs) for ask, part in parts]
        return [replace(rows, count=share) for rows, share in zip(drawn, shares, strict=True)]

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        return self._less.passes(at, batch, epochs, steps)

    def most(self, at: Local, batch: int) -> float:
        """As if all its batches were of one epoch, and never more than its rows."""
        return min(self.sampler.most(at, batch), float(self.sampler.passes(at, batch, 1, self.batches)))

    @property
    def _less(self) -> AtMost:
        return AtMost(self.sampler, self.batches)


def count_passes(rows: int, batch: int, epochs: int, steps: int | None) -> int:
    """Rows that are gone through, each as often as it comes; the last batch of an epoch may be partial."""
    if steps is None or rows == 0:
        return rows * epochs
    whole, rest = divmod(steps, -(-rows // batch))
    return rows * whole + min(rows, rest * batch)


def count_batches(passes: int, rows: int, batch: int) -> int:
    """Whole batches that are drawn until so many rows are gone through: `count_passes` the other way round.

    Without rows it isn't known where an epoch ends: they are all full.
    """
    epochs, rest = divmod(passes, rows) if rows else (0, passes)
    return epochs * -(-rows // batch) + rest // batch


def _epochs(rows: int, batch: int, epochs: int, steps: int | None) -> int:
    """Epochs that are begun."""
    if rows == 0:
        return 0
    return epochs if steps is None else -(-steps // -(-rows // batch))
