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
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from potluck.contracts import Local, Nets, Result, Samples, Training
from potluck.errors import PotluckError
from potluck.runtime.process import start
from potluck.runtime.shared import Arena, Lender, Where, aligned, packed, unpacked, viewed
from potluck.runtime.training import Item, train
from potluck.trees import Tree, leaves

Form = tuple[tuple[torch.dtype, tuple[int, ...]], ...]  # of a tree's tensors

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
            self.workers.append(_Worker(pipes, self._server(at)))

    def _server(self, at: Local) -> "Server":
        return _Trainer(self.inboxes, self.bodies.arena, at.pool, at.models)

    def _run(self, items: Sequence[Item]) -> list[Result]:
        costs = [job.cost(at) for job, at in items]
        todo = sorted(range(len(items)), key=lambda i: costs[i].ops)  # taken from the end: longest first
        heads, stacks = Heads(self.inboxes), _Stacks(self.bodies, [cost.sends for cost in costs])
        results: dict[int, Result] = {}

        def wants(worker: _Worker) -> bool:
            # Towards the end nothing is given ahead: the last tasks go to whoever is free first.
            return bool(todo) and len(worker.given) < (AHEAD if len(todo) > self.count else 1)

        def give(worker: _Worker) -> None:
            place = todo.pop()
            (job, at), (stack, row) = items[place], stacks.places[place]
            head = heads.of(job, at, stack.leaves)
            content = head, row, at.node, at.rows, at.keep, at.seed, at.test
            worker.give(place, packed(content, worker.room().put))

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


class Slot(NamedTuple):
    """Memory for one task; a worker has as many as it may have tasks, and they take turns."""

    task: Arena
    answer: Arena


class Server(Protocol):
    """What a process does with the messages that it is sent."""

    def answer(self, message: bytes, slot: Slot) -> bytes: ...


class _Worker:
    """A process, as its parent sees it."""

    def __init__(self, others: list[Connection], server: Server) -> None:
        context = multiprocessing.get_context("fork")
        self.slots = [Slot(Arena(), Arena()) for _ in range(AHEAD)]
        self.given: deque[int] = deque()  # places of its tasks, oldest first
        self._tasks, self._answers = itertools.cycle(self.slots), itertools.cycle(self.slots)
        self.pipe, theirs = context.Pipe()
        given = theirs, [*others, self.pipe], self.slots, server
        self.process = context.Process(target=_quietly, args=given, daemon=True)
        start(self.process)
        theirs.close()

    def room(self) -> Arena:
        """Where the tensors of its next task may lie."""
        memory = next(self._tasks).task
        memory.clear()
        return memory

    def give(self, place: int, message: bytes) -> None:
        """Its next task; tensors in it lie in its `room`, or where all find them."""
        self.pipe.send_bytes(message)
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


class Heads:
    """What tasks have in common, as messages; its tensors are put into shared memory once a batch."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.made: dict[tuple[int, ...], bytes] = {}
        self.lying: dict[int, tuple[Tensor, Where]] = {}  # by id, so the tensors must live on
        arena.clear()

    def of(self, job: Training, at: Local, leaves: list[Where]) -> bytes:
        name = id(job), id(at.inbox), id(leaves)
        if name not in self.made:
            self.made[name] = packed((job, at.inbox, leaves), self.put)
        return self.made[name]

    def put(self, tensor: Tensor) -> Where:
        if id(tensor) not in self.lying:
            self.lying[id(tensor)] = tensor, self.arena.put(tensor)
        return self.lying[id(tensor)][1]


class Table:
    """Results of one form, each leaf a table whose rows are theirs."""

    def __init__(self, lender: Lender, count: int, form: Form) -> None:
        self.leaves: list[Where] = []  # the tables' first rows
        end = 0
        for dtype, shape in form:
            self.leaves.append((end, dtype, shape))
            end = aligned(end + count * math.prod(shape) * dtype.itemsize)
        start, memory = lender.lend(end)
        self.tables = [viewed(memory, (at, dtype, (count, *shape))) for at, dtype, shape in self.leaves]
        self.leaves = [(start + at, dtype, shape) for at, dtype, shape in self.leaves]


class _Stacks:
    """Where the results of a batch will lie, by the form that their jobs promise."""

    def __init__(self, lender: Lender, promised: Sequence[Tree]) -> None:
        alike: dict[Form, list[int]] = {}
        for place, tree in enumerate(promised):
            alike.setdefault(form_of(tree), []).append(place)
        self.places: dict[int, tuple[Table, int]] = {}  # the stack and the row of each
        self.rows: dict[int, list[tuple[Tensor, ...]]] = {}
        for form, places in alike.items():
            stack = Table(lender, len(places), form)
            rows = [table.unbind() for table in stack.tables]
            self.places |= {place: (stack, row) for row, place in enumerate(places)}
            self.rows |= dict.fromkeys(places, rows)

    def finding(self, place: int, arena: Arena) -> Callable[[Any], Tensor]:
        """Where the tensors of an answer are: in their rows, or to be copied before the next answer comes."""
        rows, (_, row) = self.rows[place], self.places[place]
        return lambda name: rows[name][row] if isinstance(name, int) else arena.at(name).clone()


def form_of(tree: Tree) -> Form:
    """Types and shapes of a tree's tensors."""
    return tuple((t.dtype, tuple(t.shape)) for t in leaves(tree))


class Writer:
    """Writes a result's tensors to their rows if they have the form that was promised, or aside."""

    def __init__(self, bodies: Arena, leaves: list[Where], row: int, aside: Arena) -> None:
        self.bodies, self.leaves, self.row, self.aside = bodies, leaves, row, aside
        self.count = 0
        aside.clear()

    def put(self, tensor: Tensor) -> Any:
        leaf, self.count = self.count, self.count + 1
        place = self._place(tensor, *self.leaves[leaf]) if leaf < len(self.leaves) else None
        if place is None:
            return self.aside.put(tensor)
        place.copy_(tensor.detach())
        return leaf

    def _place(self, tensor: Tensor, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor | None:
        if (tensor.dtype, tensor.shape) != (dtype, shape):
            return None
        return self.bodies.at((start + self.row * tensor.numel() * tensor.itemsize, dtype, shape))


class _Trainer:
    """Trains one client at a time."""

    def __init__(self, inboxes: Arena, bodies: Arena, pool: Samples, models: Nets) -> None:
        self.inboxes, self.bodies, self.pool, self.models = inboxes, bodies, pool, models
        self.known, self.last = b"", tuple[Any, ...]()  # tasks of one round have the same head

    def answer(self, message: bytes, slot: Slot) -> bytes:
        head, row, node, rows, keep, seed, test = unpacked(message, slot.task.at)
        if head != self.known:
            self.last, self.known = unpacked(head, self.inboxes.at), head
        job, inbox, tables = self.last
        r = train(Item(job, Local(node, rows, inbox, keep, seed, self.models, self.pool, test)))
        writer = Writer(self.bodies, tables, row, slot.answer)
        return packed((r.body, r.weight, r.keep, dict(r.metrics), r.finite), writer.put)


def _quietly(*given: Any) -> None:
    """Serve; whatever ends it early, the parent sees the closed pipe and says so. A child has no say."""
    try:
        _serve(*given)
    except BaseException:
        os._exit(1)


def _serve(pipe: Connection, others: list[Connection], slots: list[Slot], server: Server) -> None:
    for other in others:
        other.close()  # else a sibling would keep this pipe open after the parent's death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    torch.set_num_threads(1)
    for slot in itertools.cycle(slots):
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        if not message:
            return
        try:
            answer = server.answer(message, slot)
        except Exception as error:
            kind = "" if isinstance(error, PotluckError) else f"{type(error).__name__}: "
            answer = pickle.dumps(f"{kind}{error}")
        try:
            pipe.send_bytes(answer)
        except OSError:
            return  # the parent has gone
