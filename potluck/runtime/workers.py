"""One lean loop per core: forked processes that share the data and train one client at a time.

Forked, because the data and the user's own models are then simply there; each uses one thread, since two on
small batches are slower than one. Tensors cross as plain arrays, longest task first.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch

from potluck.contracts import Local, Result
from potluck.errors import PotluckError
from potluck.runtime.training import Item, train
from potluck.trees import Tree


def _packed(tree: Tree) -> Tree:
    """Tensors as arrays: torch's own pickling would open a shared-memory file for each."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu().numpy()
    if isinstance(tree, dict):
        return {k: _packed(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_packed(v) for v in tree)
    return tree


def _unpacked(tree: Tree) -> Tree:
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree)
    if isinstance(tree, dict):
        return {k: _unpacked(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_unpacked(v) for v in tree)
    return tree


def _serve(mine: Connection, others: list[Connection], pool: Any, models: Any) -> None:
    for other in others:
        other.close()  # else a sibling would keep this pipe open after the parent's death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    torch.set_num_threads(1)
    inboxes: list[Tree] = []
    while True:
        try:
            message = mine.recv()
        except (EOFError, OSError):
            return
        if message is None:
            return
        kind, content = message
        if kind == "inboxes":
            inboxes = [_unpacked(tree) for tree in content]
            continue
        job, node, rows, inbox, keep, seed, test = content
        try:
            at = Local(node, rows, inboxes[inbox], _unpacked(keep), seed, models, pool, test)
            r = train(Item(job, at))
            mine.send((True, (_packed(r.body), r.weight, _packed(r.keep), dict(r.metrics))))
        except OSError:
            return  # the parent has gone
        except Exception as error:
            mine.send((False, f"{type(error).__name__}: {error}"))


class Workers:
    """A pool of forked processes, started at the first batch so that they see the data it needs."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []

    def run(self, items: Sequence[Item]) -> list[Result]:
        if not items:
            return []
        if not self.pipes:
            self._start(items[0].at)
        inboxes: dict[int, int] = {}
        trees: list[Tree] = []
        for item in items:
            if id(item.at.inbox) not in inboxes:
                inboxes[id(item.at.inbox)] = len(trees)
                trees.append(_packed(item.at.inbox))
        results: list[Result | None] = [None] * len(items)
        todo = sorted(range(len(items)), key=lambda i: len(items[i].at.rows))  # popped from the end: longest
        working: dict[Connection, int] = {}
        try:
            for pipe in self.pipes:
                pipe.send(("inboxes", trees))
                self._give(pipe, items, inboxes, todo, working)
            while working:
                for ready in wait(list(working)):
                    pipe = next(p for p in working if p is ready)
                    good, content = pipe.recv()
                    place = working.pop(pipe)
                    if not good:
                        self.close()  # others still work on this batch
                        raise PotluckError(
                            f"device {items[place].at.node}: {type(items[place].job).__name__}: {content}"
                        )
                    body, weight, keep, metrics = content
                    results[place] = Result(_unpacked(body), weight, _unpacked(keep), metrics)
                    self._give(pipe, items, inboxes, todo, working)
        except (EOFError, OSError) as error:
            self.close()
            raise PotluckError("a worker process died (out of memory?): try run.executor = 'loop'") from error
        return [r for r in results if r is not None]

    def close(self) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)  # closing isn't enough: processes forked since then hold this end too
            pipe.close()
        for process in self.processes:
            process.join(timeout=1)
            if process.is_alive():  # at work on what nobody waits for
                process.terminate()
                process.join()
        self.pipes, self.processes = [], []

    def _start(self, at: Local) -> None:
        context = multiprocessing.get_context("fork")
        for _ in range(self.count):
            ours, theirs = context.Pipe()
            others = [*self.pipes, ours]
            process = context.Process(target=_serve, args=(theirs, others, at.pool, at.models), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def _give(
        self,
        pipe: Connection,
        items: Sequence[Item],
        inboxes: dict[int, int],
        todo: list[int],
        working: dict[Connection, int],
    ) -> None:
        if todo:
            place = todo.pop()
            job, at = items[place]
            inbox = inboxes[id(at.inbox)]
            pipe.send(("train", (job, at.node, at.rows, inbox, _packed(at.keep), at.seed, at.test)))
            working[pipe] = place
