"""Stacks in worker processes: each trains its share of a batch as one stack, on its own core and cache.

What is stacked with what depends on the batch alone (every n-th client is in the same share), never on who
was done first, so the same plan gives the same bytes. A share's results are written to every n-th row of the
batch's tables: all of them lie in the order of their tasks, and folding them is still one product.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core.columns import Results
from potluck.core.job import Local, Nets, Samples, Training
from potluck.core.trees import Tree
from potluck.execute.pool.arena import Arena, Name, Where, pack, unpack
from potluck.execute.pool.processes import Server, Slot, TaskBatch, Workers
from potluck.execute.pool.results import Heads, ResultTable, Writer, find_form
from potluck.execute.process import Failure
from potluck.execute.reference import Item
from potluck.execute.vectorised.executor import Stacked


class StackedWorkers(Workers):
    """A pool of forked processes that train stacks of clients."""

    def __init__(self, count: int, stacked: Stacked, on_shrink: Callable[[int], None] | None = None) -> None:
        super().__init__(count)
        self.stacked, self.on_shrink = stacked, on_shrink
        self.unmapped: list[str] = []  # what was said of jobs that must be trained one by one

    @property
    def chunk(self) -> int:
        return self.stacked.chunk

    @property
    def fell_back(self) -> str:
        return self.unmapped[0] if self.unmapped else ""

    def _server(self, at: Local) -> Server:
        return _Stacker(self.inboxes, self.bodies.arena, at.pool, at.models, self.stacked)

    def _batch(self, items: Sequence[Item], inbox: int, ahead: bool) -> TaskBatch:
        # Ahead, others have batches of their own, and a large stack costs less; one by one it doesn't.
        workers = 1 if ahead and self.stacked.pieces == 1 else self.count
        count = min(len(items), workers * -(-len(items) // (workers * self.stacked.together)))
        return _Stacks(items, count, inbox, self)

    def heed(self, chunk: int, notices: list[str]) -> None:
        for text in notices:
            if text not in self.unmapped:
                self.unmapped.append(text)
                warnings.warn(text, stacklevel=2)
        if chunk < self.chunk:
            self.stacked.chunk = chunk
            if self.on_shrink is not None:
                self.on_shrink(chunk)


class _Stacks(TaskBatch):
    """A batch whose clients are trained in so many stacks; a stack's place is its share."""

    def __init__(self, items: Sequence[Item], count: int, inbox: int, pool: StackedWorkers) -> None:
        super().__init__(items, inbox)
        self.count, self.pool, self.todo = count, pool, list(range(count))[::-1]
        job, at = items[0]
        self.heads = Heads(pool.inboxes[inbox])
        self.table = ResultTable(pool.bodies, len(items), find_form(job.cost(at).sends))
        # Now, not when a worker is free: a task may be called off meanwhile, and its device do other work.
        self.asked = [_Share.of(items[share::count]) for share in range(count)]

    def message(self, place: int, room: Arena) -> bytes:
        content = self.asked[place], place, self.count, self.table.leaves, self.pool.chunk
        return pack(content, self.heads.put)

    def take_answer(self, place: int, answer: bytes, arena: Arena) -> None:
        mine = self.items[place :: self.count]
        parts = [t[place :: self.count] for t in self.table.tables]
        content = unpack(answer, _find_tensor(parts, arena))
        if isinstance(content, Failure):
            raise content.as_error(f"{type(mine[0].job).__name__} on devices {[i.at.node for i in mine]}")
        trained, chunk, notices = content
        for places, done in trained:
            apart = done.split() if isinstance(done, Results) else done
            self.done.update(zip((place + self.count * p for p in places), apart, strict=True))
        self.missing -= len(mine)
        self.pool.heed(chunk, notices)


class _Share(NamedTuple):
    """A share as columns: a message of few parts is made and read several times as fast."""

    work: list[tuple[Training, Tree]]  # jobs and what was sent, each once
    which: NDArray[np.int64]
    nodes: NDArray[np.int64]
    seeds: NDArray[np.uint64]
    rows: NDArray[np.int64]  # of all, end to end
    sizes: NDArray[np.int64]
    keeps: list[Tree] | None
    tests: list[NDArray[np.int64] | None] | None

    @classmethod
    def of(cls, items: Sequence[Item]) -> Self:
        work = {(id(job), id(at.inbox)): (job, at.inbox) for job, at in items}
        places = {name: place for place, name in enumerate(work)}
        rows, keeps = [i.at.rows for i in items], [i.at.keep for i in items]
        tests = [i.at.test for i in items]
        return cls(
            list(work.values()),
            np.array([places[id(job), id(at.inbox)] for job, at in items]),
            np.array([i.at.node for i in items]),
            np.array([i.at.seed for i in items], np.uint64),
            np.concatenate(rows),
            np.array([len(r) for r in rows]),
            None if all(k is None for k in keeps) else keeps,
            None if all(t is None for t in tests) else tests,
        )

    def items(self, models: Nets, pool: Samples) -> list[Item]:
        nobody = [None] * len(self.nodes)
        rows = np.split(self.rows, np.cumsum(self.sizes)[:-1])
        columns = self.which.tolist(), self.nodes.tolist(), rows, self.keeps or nobody, self.seeds.tolist()
        return [
            Item(self.work[w][0], Local(node, own, self.work[w][1], keep, seed, models, pool, test))
            for w, node, own, keep, seed, test in zip(*columns, self.tests or nobody, strict=True)
        ]


class _Stacker:
    """Trains a share at a time."""

    def __init__(
        self, inboxes: list[Arena], bodies: Arena, pool: Samples, models: Nets, stacked: Stacked
    ) -> None:
        self.inboxes, self.bodies, self.pool, self.models = inboxes, bodies, pool, models
        self.stacked = stacked
        self.notices: list[str] = []

    def answer(self, message: bytes, slot: Slot) -> bytes:
        self.stacked.tell = self.notices.append
        asked, share, count, tables, self.stacked.chunk = unpack(message[1:], self.inboxes[message[0]].at)
        trained = self.stacked.train(asked.items(self.models, self.pool))
        whole = len(trained) == 1 and isinstance(trained[0][1], Results)
        writer = _Writer(self.bodies, tables if whole else [], share, count, slot.answer)
        answer = pack((trained, self.stacked.chunk, self.notices), writer.put)
        self.notices.clear()
        return answer


class _Writer(Writer):
    """The same for a stack's tensors and every n-th row."""

    def __init__(self, bodies: Arena, leaves: list[Where], row: int, step: int, aside: Arena) -> None:
        super().__init__(bodies, leaves, row, aside)
        self.step = step

    def _place(self, tensor: Tensor, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor | None:
        if tensor.dtype != dtype or tensor.shape[1:] != shape:
            return None
        rows = self.row + self.step * (len(tensor) - 1) + 1
        return self.bodies.at((start, dtype, (rows, *shape)))[self.row :: self.step]


def _find_tensor(parts: list[Tensor], arena: Arena) -> Callable[[Name], Tensor]:
    """Where the tensors of an answer are: in their tables, or to be copied before the next answer comes."""
    return lambda name: parts[name] if isinstance(name, int) else arena.at(name).clone()
