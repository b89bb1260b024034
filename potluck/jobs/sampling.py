"""Which rows a device trains on, in which order."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.columns import Draws, Places
from potluck.core.job import Local, Rows

ENDLESS = np.iinfo(np.int64).max  # batches, where no number of them is said


class Sampler(Protocol):
    """Draws a task's batches; `epochs` and `steps` are per-task, so they are arguments."""

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows: ...
    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int: ...  # rows that it draws
    def most(self, at: Local, batch: int) -> float: ...  # the largest `Rows.count`, a reply's weight


class Asked(NamedTuple):
    """What many tasks ask of samplers of one class, in columns."""

    samplers: Sequence[Sampler]
    at: Places
    batch: int
    epochs: Sequence[int]
    steps: Sequence[int | None]

    @classmethod
    def alone(cls, sampler: Sampler, at: Local, batch: int, epochs: int, steps: int | None) -> "Asked":
        """What one asks."""
        return cls([sampler], Places.of([at]), batch, [epochs], [steps])

    def each(self) -> list[tuple[Local, int, int, int | None]]:
        """One by one: what a sampler is given."""
        batches = [self.batch] * len(self.at)
        return list(zip(self.at, batches, self.epochs, self.steps, strict=True))


@runtime_checkable
class ManySampler(Sampler, Protocol):
    """A sampler that draws for many tasks at once, faster than one by one."""

    @staticmethod
    def draw_all(asked: Asked) -> Draws: ...  # all by samplers of this kind


@runtime_checkable
class CountsRows(Sampler, Protocol):
    """A sampler whose numbers follow from how many rows a device has."""

    def count_all(
        self, sizes: NDArray[np.int64], batch: int, epochs: int, steps: int | None
    ) -> tuple[list[int], list[float]]: ...  # `passes` and `most` of each


@value
class Shuffled:
    """Every row once an epoch, in a new order each; the last batch of an epoch may be partial."""

    limit: int | None = None  # use at most this many rows

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows:
        return self.draw_all(Asked.alone(self, at, batch, epochs, steps)).rows(0)

    @staticmethod
    def draw_all(asked: Asked) -> Draws:
        """What each would draw, all orders at once."""
        _, at, batch, _, _ = asked
        limits = [s.limit for s in asked.samplers if isinstance(s, Shuffled)]
        most = np.array([ENDLESS if limit is None else limit for limit in limits], np.int64)
        counts = np.minimum(at.sizes, most)  # rows of an epoch
        batches = -(-counts // batch)  # of an epoch
        whole = batches * np.array(asked.epochs, np.int64)
        wanted = np.array([ENDLESS if n is None else n for n in asked.steps], np.int64)
        steps = np.where(batches > 0, np.where(wanted < ENDLESS, wanted, whole), 0)
        turns = -(-steps // np.maximum(batches, 1))  # epochs that are begun
        # A row an epoch: whose it is, and which of theirs.
        owner = np.repeat(np.arange(len(at)), turns)
        turn = np.arange(len(owner)) - np.repeat(np.cumsum(turns) - turns, turns)
        shape = len(at), int(steps.max(initial=0)), batch
        if len(owner) == len(at) and (turns == 1).all() and (steps == batches).all():
            # As mostly: one epoch, whose batches are in their places.
            index, real = _shuffle(at, owner, turn, counts, batch)
            return Draws(index.reshape(shape), real.reshape(shape).astype(np.float32), steps, counts * 1.0)
        place, weight = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        # By size: who has most rows has few epochs, and would make the tables of all others as wide.
        magnitude = np.frexp(at.sizes[owner])[1]
        for some in (np.flatnonzero(magnitude == each) for each in np.unique(magnitude)):
            who, epoch = owner[some], turn[some]
            index, real = _shuffle(at, who, epoch, counts[who], batch)
            piece = np.arange(index.shape[1] // batch)
            step = epoch[:, None] * batches[who][:, None] + piece
            taken = (piece < batches[who][:, None]) & (step < steps[who][:, None])
            at_row, at_piece = np.nonzero(taken)
            to = who[at_row], step[taken]
            place[to] = index.reshape(len(some), -1, batch)[at_row, at_piece]
            weight[to] = real.reshape(len(some), -1, batch)[at_row, at_piece]
        return Draws(place, weight, steps, counts * 1.0)

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        n = len(at.rows) if self.limit is None else min(self.limit, len(at.rows))
        return count_passes(n, batch, epochs, steps)

    def most(self, at: Local, batch: int) -> float:
        """Its rows, each counted once however often it comes."""
        return float(self.passes(at, batch, 1, None))

    def count_all(
        self, sizes: NDArray[np.int64], batch: int, epochs: int, steps: int | None
    ) -> tuple[list[int], list[float]]:
        """`passes` and `most` of many."""
        rows = (sizes if self.limit is None else np.minimum(sizes, self.limit)).tolist()
        return [count_passes(n, batch, epochs, steps) for n in rows], [float(n) for n in rows]


def _shuffle(
    at: Places, who: NDArray[np.int64], turn: NDArray[np.int64], counts: NDArray[np.int64], batch: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of epochs in orders of their own [epochs, whole batches of rows], and which are no padding."""
    orders = keys.permute_all(keys.hash_all(at.looked.seeds[who], turn), at.sizes[who])
    width = -(-int(counts.max(initial=0)) // batch) * batch
    real = np.arange(width) < counts[:, None]
    index, filled = np.zeros(real.shape, np.int64), min(orders.shape[1], width)
    np.copyto(index[:, :filled], orders[:, :filled], where=real[:, :filled])
    return index, real


@value
class AtMost:
    """What another sampler draws, up to a number of batches: for a device that has no time for all of it."""

    sampler: Sampler = Shuffled()
    batches: int = 1

    def draw(self, at: Local, batch: int, epochs: int, steps: int | None) -> Rows:
        return self.sampler.draw(at, batch, epochs, self._stop(at, batch, epochs, steps))

    @staticmethod
    def draw_all(asked: Asked) -> Draws:
        """What each would draw; all orders at once where the samplers within are shuffled."""
        mine = [s for s in asked.samplers if isinstance(s, AtMost)]
        steps = [s._stop(*each) for s, each in zip(mine, asked.each(), strict=True)]
        inner = asked._replace(samplers=[s.sampler for s in mine], steps=steps)
        if all(type(sampler) is Shuffled for sampler in inner.samplers):
            return Shuffled.draw_all(inner)
        pairs = zip(inner.samplers, inner.each(), strict=True)
        return Draws.of([sampler.draw(*each) for sampler, each in pairs])

    def passes(self, at: Local, batch: int, epochs: int, steps: int | None) -> int:
        return self.sampler.passes(at, batch, epochs, self._stop(at, batch, epochs, steps))

    def most(self, at: Local, batch: int) -> float:
        """Its rows, also those that it has no time for."""
        return self.sampler.most(at, batch)

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
        return self.draw_all(Asked.alone(self, at, batch, epochs, steps)).rows(0)

    @staticmethod
    def draw_all(asked: Asked) -> Draws:
        """What each would draw; all orders at once where the samplers within are shuffled."""
        parts = [s for s in asked.samplers if isinstance(s, InPart)]
        drawn = AtMost.draw_all(asked._replace(samplers=[part._less for part in parts]))
        shares = [
            part.passes(*each) / max(1, each[2]) for part, each in zip(parts, asked.each(), strict=True)
        ]
        return drawn._replace(counts=np.array(shares, np.float64))

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
