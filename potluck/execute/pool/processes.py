"""One lean loop per core: forked processes that share the data and train one client at a time.

Forked, because the data and the user's own models are then simply there; each uses one thread, since two on
small batches are slower than one. Tensors lie in shared memory, and pipes carry small messages: results are
written where they stay, side by side, so that folding them is one product. The longest task goes first, and a
worker has its next task before it ends the last, so that it never waits. Who has begun a batch may do other
work, and begin a few more, before it asks for results.
"""

import contextlib
import itertools
import multiprocessing
import os
import pickle
import selectors
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple, Protocol

import torch

from potluck.core.errors import PotluckError
from potluck.core.job import Local, Nets, Result, Samples, Training
from potluck.core.trees import Tree
from potluck.execute.pool.arena import Arena, Lender, Where, pack, unpack
from potluck.execute.pool.results import Heads, Tables, Writer
from potluck.execute.process import Failure, end_early, start_process
from potluck.execute.reference import Item, train

AHEAD = 2  # tasks that a worker has at a time: the one that it works on, and the next


class TaskBatch(ABC):
    """Tasks that were begun together; some of them may be one message."""

    todo: list[int]  # places of messages that nobody has yet, taken from the end

    def __init__(self, items: Sequence[Item], inbox: int) -> None:
        self.items, self.inbox = items, inbox  # which arena holds what they are sent
        self.missing = len(items)  # results that are still to come
        self.done: dict[int, Result] = {}

    @abstractmethod
    def message(self, place: int, room: Arena) -> bytes:
        """What a worker is to do; its tensors lie in the inbox, or in this room."""

    @abstractmethod
    def take_answer(self, place: int, answer: bytes, arena: Arena) -> None:
        """Take the answer to a message; tensors that have no place of their own lie in this arena."""

    def results(self) -> list[Result]:
        return [self.done[place] for place in range(len(self.items))]


class Workers:
    """A pool of forked processes, started at the first batch so that they see the data it needs."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.workers: list[_Worker] = []
        self.batches: list[TaskBatch] = []  # under way, oldest first; one more than there are workers at most

    @property
    def processes(self) -> list[BaseProcess]:
        return [worker.process for worker in self.workers]

    def run(self, items: Sequence[Item]) -> list[Result]:
        return self.begin(items)() if items else []

    def begin(self, items: Sequence[Item], ahead: bool = False) -> Callable[[], list[Result]]:
        """Hand items out; what comes back waits for their results. `ahead`: nobody waits for them yet."""
        with self._watching():
            if not self.workers:
                self._start(items[0].at)
            while len(self.batches) == len(self.inboxes):
                self._listen()
            used = {batch.inbox for batch in self.batches}
            batch = self._batch(items, min(set(range(len(self.inboxes))) - used), ahead)
            self.batches.append(batch)
            self._listen(0)  # who has become free meanwhile?
            self._feed(self.workers)
        return partial(self._results, batch)

    def close(self) -> None:
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.close()
        if self.workers:
            self.pipes.close()
            for arena in (*self.inboxes, self.bodies.arena):
                arena.close()
        self.workers, self.batches = [], []

    def _start(self, at: Local) -> None:
        # What is sent lies in an arena of its batch, which the first byte of a message names.
        self.inboxes, self.bodies = [Arena() for _ in range(min(self.count + 1, 256))], Lender()
        self.pipes = selectors.DefaultSelector()
        for _ in range(self.count):
            pipes = [worker.pipe for worker in self.workers]
            self.workers.append(_Worker(pipes, self._server(at)))
            self.pipes.register(self.workers[-1].pipe, selectors.EVENT_READ, self.workers[-1])

    def _server(self, at: Local) -> "Server":
        return _Trainer(self.inboxes, self.bodies.arena, at.pool, at.models)

    def _batch(self, items: Sequence[Item], inbox: int, ahead: bool) -> TaskBatch:
        return _Tasks(items, inbox, self.inboxes[inbox], self.bodies)

    def _results(self, batch: TaskBatch) -> list[Result]:
        with self._watching():
            while batch.missing:
                if batch not in self.batches:
                    raise PotluckError("training was broken off: another batch has failed")
                self._listen()
        return batch.results()

    def _listen(self, seconds: float | None = None) -> None:
        """Take what workers have sent, and give them more; wait so long for the first, or without an end."""
        for ready, _ in self.pipes.select(seconds):
            worker: _Worker = ready.data
            (batch, place), answer, arena = worker.take_answer()
            if not worker.given:
                self._feed([worker], 1)  # it waits: that before anything else; a second would use this arena
            batch.take_answer(place, answer, arena)
            if not batch.missing:
                self.batches.remove(batch)
            self._feed([worker])

    def _feed(self, workers: "list[_Worker]", most: int = AHEAD) -> None:
        """Give tasks to those that have few; towards the end none ahead: the last go to who is free first."""
        left = [batch for batch in self.batches if batch.todo]
        tasks = sum(len(batch.todo) for batch in left)
        given: list[tuple[_Worker, TaskBatch, int]] = []
        for ahead in range(most):
            for worker in workers:
                if left and len(worker.given) == ahead < (most if tasks > self.count else 1):
                    given.append((worker, left[0], left[0].todo.pop()))
                    worker.given.append(given[-1][1:])
                    tasks -= 1
                    left = left if left[0].todo else left[1:]
        # All are packed before any is sent: who is woken up may take this process's core.
        for worker, message in [(w, bytes([b.inbox]) + b.message(p, w.room())) for w, b, p in given]:
            worker.pipe.send_bytes(message)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Whatever goes wrong, nobody works on."""
        try:
            yield
        except (EOFError, ConnectionError) as error:
            self.close()
            raise PotluckError("a worker process died (out of memory?): try run.executor = 'loop'") from error
        except BaseException:
            self.close()  # others still work on this batch
            raise


class _Tasks(TaskBatch):
    """A batch whose clients are trained one by one."""

    def __init__(self, items: Sequence[Item], inbox: int, arena: Arena, bodies: Lender) -> None:
        super().__init__(items, inbox)
        costs = [job.cost(at) for job, at in items]
        self.todo = sorted(range(len(items)), key=lambda i: costs[i].ops)  # longest first
        self.heads, self.tables = Heads(arena), Tables(bodies, [cost.sends for cost in costs])

    def message(self, place: int, room: Arena) -> bytes:
        (job, at), (table, row) = self.items[place], self.tables.places[place]
        head = self.heads.of(job, at, table.leaves)
        return pack((head, row, at.node, at.rows, at.keep, at.seed, at.test), room.put)

    def take_answer(self, place: int, answer: bytes, arena: Arena) -> None:
        content = unpack(answer, self.tables.find_tensor(place, arena))
        if isinstance(content, Failure):
            job, at = self.items[place]
            raise content.as_error(f"device {at.node}: {type(job).__name__}")
        self.done[place] = Result(*content)
        self.missing -= 1


class Slot(NamedTuple):
    """Memory for one task; a worker has as many as it may have tasks, and they take turns."""

    task: Arena
    answer: Arena


class Server(Protocol):
    """What a process does with the messages that it is sent; their first byte names the arena of the rest."""

    def answer(self, message: bytes, slot: Slot) -> bytes: ...


class _Worker:
    """A process, as its parent sees it."""

    def __init__(self, others: list[Connection], server: Server) -> None:
        context = multiprocessing.get_context("fork")
        self.slots = [Slot(Arena(), Arena()) for _ in range(AHEAD)]
        self.given: deque[tuple[TaskBatch, int]] = deque()  # its tasks, oldest first
        self._tasks, self._answers = itertools.cycle(self.slots), itertools.cycle(self.slots)
        self.pipe, theirs = context.Pipe()
        given = theirs, [*others, self.pipe], self.slots, server
        self.process = context.Process(target=_serve_quietly, args=given, daemon=True)
        start_process(self.process)
        theirs.close()

    def room(self) -> Arena:
        """Where the tensors of its next task may lie."""
        memory = next(self._tasks).task
        memory.clear()
        return memory

    def take_answer(self) -> tuple[tuple[TaskBatch, int], bytes, Arena]:
        """Its oldest task, the answer to it, and where the tensors of that lie."""
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


class _Trainer:
    """Trains one client at a time."""

    def __init__(self, inboxes: list[Arena], bodies: Arena, pool: Samples, models: Nets) -> None:
        self.inboxes, self.bodies, self.pool, self.models = inboxes, bodies, pool, models
        self.known = -1, b""  # tasks of one round have the same head

    def answer(self, message: bytes, slot: Slot) -> bytes:
        arena = message[0]
        head, row, node, rows, keep, seed, test = unpack(message[1:], slot.task.at)
        if (arena, head) != self.known:
            self.last: tuple[Training, Tree, list[Where]] = unpack(head, self.inboxes[arena].at)
            self.known = arena, head
        job, inbox, tables = self.last
        r = train(Item(job, Local(node, rows, inbox, keep, seed, self.models, self.pool, test)))
        writer = Writer(self.bodies, tables, row, slot.answer)
        return pack((r.body, r.weight, r.keep, dict(r.metrics), r.finite), writer.put)


def _serve_quietly(pipe: Connection, others: list[Connection], slots: list[Slot], server: Server) -> None:
    """Serve; whatever ends it early, the parent sees the closed pipe and says so."""
    try:
        _serve(pipe, others, slots, server)
    except BaseException as error:
        end_early(error)


def _serve(pipe: Connection, others: list[Connection], slots: list[Slot], server: Server) -> None:
    for other in others:
        other.close()  # else a sibling would keep this pipe open after the parent's death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # what the parent has set up for itself isn't this one's
    torch.set_num_threads(1)
    with contextlib.suppress(AttributeError, OSError):  # not every system has it
        # Woken up, it takes no core from its parent, who may have others to wake.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    for slot in itertools.cycle(slots):
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        if not message:
            return
        try:
            answer = server.answer(message, slot)
        except Exception as error:  # whatever a job does, the parent tells of it
            answer = pickle.dumps(Failure.of(error))
        try:
            pipe.send_bytes(answer)
        except OSError:
            return  # the parent has gone
