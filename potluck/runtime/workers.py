"""One lean loop per core: forked processes that share the data and train one client at a time.

Forked, because the data and the user's own models are then simply there; each uses one thread, since two on
small batches are slower than one. Tensors lie in shared memory, and pipes carry small messages: results are
written where they stay, side by side, so that folding them is one product. The longest task goes first, and a
worker has its next task before it ends the last, so that it never waits.
"""

import contextlib
import itertools
import math
import multiprocessing
import os
import pickle
import selectors
import signal
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch import Tensor

from potluck.contracts import Local, Nets, Result, Samples, Training
from potluck.errors import PotluckError
from potluck.runtime.shared import Arena, Lender, Where, aligned, packed, unpacked, viewed
from potluck.runtime.training import Item, train
from potluck.trees import Tree, leaves

_Form = tuple[tuple[torch.dtype, tuple[int, ...]], ...]  # of a tree's tensors

AHEAD = 2  # tasks that a worker has at a time: the one that it works on, and the next


class Workers:
    """A pool of forked processes, started at the first batch so that they see the data it needs."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.workers: list[_Worker] = []

    @property
    def processes(self) -> list[Any]:
        return [worker.process for worker in self.workers]

    def run(self, items: Sequence[Item]) -> list[Result]:
        if not items:
            return []
        try:
            if not self.workers:
                self._start(items[0].at)
            return self._run(items)
        except (EOFError, ConnectionError) as error:
            self.close()
            raise PotluckError("a worker process died (out of memory?): try run.executor = 'loop'") from error
        except BaseException:
            self.close()  # others still work on this batch
            raise

    def close(self) -> None:
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.close()
        if self.workers:
            self.inboxes.close()
            self.bodies.arena.close()
        self.workers = []

    def _start(self, at: Local) -> None:
        self.inboxes, self.bodies = Arena(), Lender()
        for _ in range(self.count):
            pipes = [worker.pipe for worker in self.workers]
            self.workers.append(_Worker(self.inboxes, self.bodies.arena, pipes, at.pool, at.models))

    def _run(self, items: Sequence[Item]) -> list[Result]:
        costs = [job.cost(at) for job, at in items]
        todo = sorted(range(len(items)), key=lambda i: costs[i].ops)  # taken from the end: longest first
        heads, stacks = _Heads(self.inboxes), _Stacks(self.bodies, [cost.sends for cost in costs])
        results: dict[int, Result] = {}

        def wants(worker: _Worker) -> bool:
            # Towards the end nothing is given ahead: the last tasks go to whoever is free first.
            return bool(todo) and len(worker.given) < (AHEAD if len(todo) > self.count else 1)

        def give(worker: _Worker) -> None:
            place = todo.pop()
            (job, at), (stack, row) = items[place], stacks.places[place]
            worker.give(place, heads.of(job, at, stack.leaves), row, at)

        with selectors.DefaultSelector() as pipes:
            for worker in self.workers:
                pipes.register(worker.pipe, selectors.EVENT_READ, worker)
            for worker in self.workers * AHEAD:
                if wants(worker):
                    give(worker)
            while len(results) < len(items):
                for ready, _ in pipes.select():
                    worker = ready.data
                    place, content, arena = worker.heard()
                    if not worker.given and wants(worker):
                        give(worker)  # it waits: that before anything else
                    answer = unpacked(content, stacks.finding(place, arena))
                    if isinstance(answer, str):
                        job, at = items[place]
                        raise PotluckError(f"device {at.node}: {type(job).__name__}: {answer}")
                    results[place] = Result(*answer)
                    if wants(worker):
                        give(worker)
        return [results[place] for place in range(len(items))]


class _Slot(NamedTuple):
    """Memory for one task; a worker has as many as it may have tasks, and they take turns."""

    task: Arena
    answer: Arena


class _Worker:
    """A process, as its parent sees it."""

    def __init__(
        self, inboxes: Arena, bodies: Arena, others: list[Connection], pool: Samples, models: Nets
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.slots = [_Slot(Arena(), Arena()) for _ in range(AHEAD)]
        self.given: deque[int] = deque()  # places of its tasks, oldest first
        self._tasks, self._answers = itertools.cycle(self.slots), itertools.cycle(self.slots)
        self.pipe, theirs = context.Pipe()
        others = [*others, self.pipe]
        self.process = context.Process(
            target=_quietly, args=(theirs, others, inboxes, bodies, self.slots, pool, models), daemon=True
        )
        # Ctrl-C is the parent's to handle, also while the child hasn't learnt yet to ignore it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def give(self, place: int, head: bytes, row: int, at: Local) -> None:
        memory = next(self._tasks).task
        memory.clear()
        content = head, row, at.node, at.rows, at.keep, at.seed, at.test
        self.pipe.send_bytes(packed(content, memory.put))
        self.given.append(place)

    def heard(self) -> tuple[int, bytes, Arena]:
        """The oldest task's place, the answer to it, and where the tensors of that lie."""
        content = self.pipe.recv_bytes()
        return self.given.popleft(), content, next(self._answers).answer

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(b"")  # closing isn't enough: processes forked since then hold this end too
        self.pipe.close()

    def close(self) -> None:
        if not self.given:
            self.process.join(timeout=1)
        if self.process.is_alive():  # at work on what nobody waits for
            self.process.terminate()
            self.process.join()
        for slot in self.slots:
            for arena in slot:
                arena.close()


class _Heads:
    """What tasks have in common, as messages; its tensors are put into shared memory once a batch."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.made: dict[tuple[int, ...], bytes] = {}
        self.lying: dict[int, tuple[Tensor, Where]] = {}  # by id, so the tensors must live on
        arena.clear()

    def of(self, job: Training, at: Local, leaves: list[Where]) -> bytes:
        name = id(job), id(at.inbox), id(leaves)
        if name not in self.made:
            self.made[name] = packed((job, at.inbox, leaves), self._put)
        return self.made[name]

    def _put(self, tensor: Tensor) -> Where:
        if id(tensor) not in self.lying:
            self.lying[id(tensor)] = tensor, self.arena.put(tensor)
        return self.lying[id(tensor)][1]


class _Stack:
    """Results of one form, each leaf a table whose rows are theirs."""

    def __init__(self, lender: Lender, count: int, form: _Form) -> None:
        self.leaves: list[Where] = []  # the tables' first rows
        end = 0
        for dtype, shape in form:
            self.leaves.append((end, dtype, shape))
            end = aligned(end + count * math.prod(shape) * dtype.itemsize)
        start, memory = lender.lend(end)
        tables = [viewed(memory, (at, dtype, (count, *shape))) for at, dtype, shape in self.leaves]
        self.rows = [table.unbind() for table in tables]
        self.leaves = [(start + at, dtype, shape) for at, dtype, shape in self.leaves]


class _Stacks:
    """Where the results of a batch will lie, by the form that their jobs promise."""

    def __init__(self, lender: Lender, promised: Sequence[Tree]) -> None:
        alike: dict[_Form, list[int]] = {}
        for place, tree in enumerate(promised):
            form = tuple((t.dtype, tuple(t.shape)) for t in leaves(tree))
            alike.setdefault(form, []).append(place)
        self.places: dict[int, tuple[_Stack, int]] = {}  # the stack and the row of each
        for form, places in alike.items():
            stack = _Stack(lender, len(places), form)
            self.places |= {place: (stack, row) for row, place in enumerate(places)}

    def finding(self, place: int, arena: Arena) -> Callable[[Any], Tensor]:
        """Where the tensors of an answer are: in their rows, or to be copied before the next answer comes."""
        stack, row = self.places[place]
        return lambda name: stack.rows[name][row] if isinstance(name, int) else arena.at(name).clone()


class _Writer:
    """Writes a result's tensors to their rows if they have the form that was promised, or aside."""

    def __init__(self, bodies: Arena, leaves: list[Where], row: int, aside: Arena) -> None:
        self.bodies, self.leaves, self.row, self.aside = bodies, leaves, row, aside
        self.count = 0
        aside.clear()

    def put(self, tensor: Tensor) -> Any:
        leaf, self.count = self.count, self.count + 1
        if leaf < len(self.leaves):
            start, dtype, shape = self.leaves[leaf]
            if (tensor.dtype, tensor.shape) == (dtype, shape):
                where = start + self.row * tensor.numel() * tensor.itemsize, dtype, shape
                self.bodies.at(where).copy_(tensor.detach())
                return leaf
        return self.aside.put(tensor)


def _quietly(*given: Any) -> None:
    """Serve; whatever ends it early, the parent sees the closed pipe and says so. A child has no say."""
    try:
        _serve(*given)
    except BaseException:
        os._exit(1)


def _serve(
    pipe: Connection,
    others: list[Connection],
    inboxes: Arena,
    bodies: Arena,
    slots: list[_Slot],
    pool: Samples,
    models: Nets,
) -> None:
    for other in others:
        other.close()  # else a sibling would keep this pipe open after the parent's death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    torch.set_num_threads(1)
    known, last = b"", tuple[Any, ...]()  # tasks of one round have the same head
    for slot in itertools.cycle(slots):
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        if not message:
            return
        try:
            head, row, node, rows, keep, seed, test = unpacked(message, slot.task.at)
            if head != known:
                last, known = unpacked(head, inboxes.at), head
            job, inbox, tables = last
            r = train(Item(job, Local(node, rows, inbox, keep, seed, models, pool, test)))
            writer = _Writer(bodies, tables, row, slot.answer)
            answer = packed((r.body, r.weight, r.keep, dict(r.metrics), r.finite), writer.put)
        except Exception as error:
            answer = pickle.dumps(f"{type(error).__name__}: {error}")
        try:
            pipe.send_bytes(answer)
        except OSError:
            return  # the parent has gone
