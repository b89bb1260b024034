"""A stack: clients that train as one, their parameters along a first axis.

Clients are sorted by their number of steps, most first, so those still training at step s are a prefix of the
stack and momentum needs no mask. What all clients were sent alike is not copied.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core import keys
from potluck.core.columns import Draws, Results
from potluck.core.job import Batch, Trace
from potluck.core.trees import Tree, form, leaves, split
from potluck.core.vmap import Part, over
from potluck.execute.reference import (
    BATCHES,
    SCORING_BATCH,
    SENDING,
    WHOLE,
    Items,
    count_filled,
    weight_dtype,
    weighted_means,
)
from potluck.execute.vectorised.step import Rates, Rebuild, Recipe, Step, count_all, take_rows

# What stacks of one kind are laid into, one after another: captured steps find them where others were before.
Rooms = dict[tuple[str, int], Tensor]


class Stack:
    """A chunk of clients, from their first step to their results."""

    def __init__(self, items: Items, draws: Draws, rooms: Rooms | None = None) -> None:
        self.items, self.draws, self.rooms, self.at = items, draws, rooms, items.at
        self.job, self.models, self.pool = items.jobs[0], items.at.models, items.at.pool
        self.net = self.models[self.job.model]
        self.steps = draws.steps
        self._falling = (-draws.steps).tolist()  # sorted, as bisection wants it
        self.rates = [float(job.optim.lr) for job in items.jobs]
        self.sent = _Common(items.at.inboxes, rooms, "sent")
        self.keep = _Common(items.recall(), rooms, "keep")
        self.own, rebuild_seen = self._own_rows() if self.job.looks else ([], None)
        with torch.no_grad():
            parts = self.sent.part, self.keep.part, count_all(self.own)
            (begun, held), counted = over(self._begin(rebuild_seen), len(items), *parts)
        started = zip(begun.values(), counted, strict=False)
        self.begun = [p if counts else p.expand(len(items), *p.shape) for p, counts in started]
        self.params: list[Tensor] = []  # once trained
        self.held, rebuild_held = split(held)
        counts = tuple(counted[len(begun) :])  # a frozen model that all share stays one
        mine = rebuild_held([t[0] if n else t for t, n in zip(self.held, counts, strict=True)])
        shapes = form(([p[0] for p in self.begun], mine, [t[0, 0] for t in self.seen]))
        kind = self.job.shape(), shapes, counts, draws.place.shape[2]
        self.recipe = Recipe(
            self.job, self.net, self.pool, tuple(begun), counts, rebuild_held, rebuild_seen, kind
        )
        self.sums: dict[str, Tensor] = {}
        self.table = self._table()

    def __len__(self) -> int:
        return len(self.items)

    @property
    def seen(self) -> list[Tensor]:
        """What frozen models make of all own rows [clients, rows, ...]."""
        return self.own[4:]

    def count_still(self, step: int, start: int = 0, stop: int | None = None) -> int:
        """How many of some clients still train at a step: the first of them."""
        return bisect_left(self._falling, -step, start, len(self) if stop is None else stop) - start

    @cached_property
    def filled(self) -> NDArray[np.int64]:
        """Rows of every batch [step, client] up to the last that counts, at least one."""
        return count_filled(self.table.weight.numpy())

    def find_rates(self, count: int) -> Rates:
        """The first clients' learning rates; one number if they are equal."""
        rates = self.rates[:count]
        return rates[0] if all(r == rates[0] for r in rates) else self.begun[0].new_tensor(rates)

    @cached_property
    def descent(self) -> Tensor:
        """Learning rates [step, client, 0], and [..., 1] whether there is such a step: 0 for both if not."""
        left = self.steps[None] > np.arange(self.steps[0])[:, None]
        return torch.from_numpy(np.stack([left * np.array(self.rates), left], 2)).to(self.begun[0])

    def train(self) -> None:
        """All steps, one after another."""
        self.params, self.sums = [_copy(p) for p in self.begun], {}
        state, k = self.job.optim.start(self.params), 0
        for s in range(int(self.steps[0])):
            if (still := self.count_still(s)) != k:
                k = still
                active = [p[:k].detach().requires_grad_() for p in self.params]
                held = [t[:k] if n else t for t, n in zip(self.held, self.recipe.held, strict=True)]
                current = [[t[:k] for t in row] for row in state]
                seen, rates = [t[:k] for t in self.seen], self.find_rates(k)
            step = Step(*(t[s, :k] for t in self.table))
            means = self.recipe.descend(active, current, step, seen, held, rates, s + 1, mapped=True)
            for name, mean in means.items():
                self.sums.setdefault(name, mean.new_zeros(len(self)))[:k] += mean

    # --------------------------------------------------------------------------------------------- results

    def outcome(self, order: NDArray[np.intp]) -> Results:
        """What came of the clients, in this order."""
        count, weight = len(self), self.table.weight
        taken = weight.new_tensor(self.steps)
        means = [t / taken.clamp_min(1) for t in self.sums.values()]
        traced = [*means, taken, weight.new_tensor(self.rates), self._derive(SENDING)]
        held = self.held, self.recipe.held
        parts = (
            count_all(self.params),
            self.sent.part,
            self.keep.part,
            held,
            count_all(traced),
            count_all(self.own),
        )
        with torch.no_grad():
            made = _stack_tree(
                *over(self._finish, count, *parts), count, torch.from_numpy(order).to(weight.device)
            )
            body, kept, metrics = made
            good, reports = _find_finite(body, count), _read_floats(metrics)
            if self.at.looked.tests[0] is not None:
                reports, told = self._scores(order)
                body = told or body
        return Results(body, kept, self.draws.counts[order], reports, good)

    def _scores(self, order: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.float64]], dict[str, Tensor]]:
        """The means of their scores over their test rows, all at once: all are tested, or have no such rows.

        And what is more than a number a row [clients, rows, ...]; who has fewer rows has padding after them.
        """
        tests = [np.zeros(0, np.int64) if test is None else test for test in self.at.looked.tests]
        sizes, device = np.array([len(t) for t in tests]), self.pool.x.device
        table = np.zeros((len(self), int(sizes.max())), np.int64)
        for row, test in zip(table, tests, strict=True):
            row[: len(test)] = test
        sums: dict[str, Tensor] = {}
        told: dict[str, list[Tensor]] = {}
        width = max(1, table.shape[1] if self.job.whole else SCORING_BATCH // len(self))
        for start in range(0, table.shape[1], width):
            pick = torch.from_numpy(table[:, start : start + width]).to(device)
            real = torch.from_numpy(np.arange(start, start + pick.shape[1]) < sizes[:, None]).to(device)
            batch = [*take_rows(self.pool, pick), real.to(weight_dtype(self.pool.x)), self._keys()]
            held = self.held, self.recipe.held
            parts = count_all(self.params), self.sent.part, self.keep.part, held, count_all(batch)
            for name, column in _stack_tree(*over(self._score, len(self), *parts), len(self)).items():
                if column.dim() > 2:
                    told.setdefault(name, []).append(column)
                    continue
                part = torch.where(real, column.double(), 0.0).sum(1)
                sums[name] = sums[name] + part if name in sums else part
        columns = {name: (t.cpu().numpy() / np.maximum(sizes, 1))[order] for name, t in sums.items()}
        columns["rows"] = sizes[order].astype(np.float64)
        place = torch.from_numpy(order).to(device)
        return columns, {name: torch.cat(parts, 1).index_select(0, place) for name, parts in told.items()}

    # ------------------------------------------------------------------------- one client's view, for vmap

    def _begin(self, rebuild_seen: Rebuild | None) -> Callable[..., Tree]:
        def begin(s: list[Tensor], k: list[Tensor], o: list[Tensor]) -> Tree:
            seen = None if rebuild_seen is None else rebuild_seen(o[4:])
            own = Batch(o[0], o[1], o[2], o[3], seen) if o else None
            return self.job.begin(self.net, self.sent.rebuild(s), self.keep.rebuild(k), own)

        return begin

    def _look(self, s: list[Tensor], k: list[Tensor], o: list[Tensor]) -> Tree:
        x, y, weight, key = o
        batch = Batch(x, y, weight, key, None)
        return self.job.look(self.models, self.net, self.sent.rebuild(s), self.keep.rebuild(k), batch)

    def _finish(self, *parts: list[Tensor]) -> Tree:
        p, s, k, h, t, o = parts
        trained, held = dict(zip(self.recipe.names, p, strict=True)), self.recipe.rebuild_held(h)
        means = dict(zip(self.sums, t, strict=False))
        if o:
            rows = self.recipe.rebuild_batch(o)
            means |= weighted_means(self.job.review(self.net, trained, rows, held), rows.weight)
        trace = Trace(means, *t[-3:])
        return self.job.finish(trained, self.sent.rebuild(s), self.keep.rebuild(k), held, trace)

    def _score(self, *parts: list[Tensor]) -> Tree:
        p, s, k, h, b = parts
        x, y, weight, key = b
        batch = Batch(x, y, weight, key, None)
        if self.job.looks:
            batch = batch._replace(seen=self._look(s, k, b))
        params = dict(zip(self.recipe.names, p, strict=True))
        return self.job.score(self.net, params, batch, self.recipe.rebuild_held(h))

    # ---------------------------------------------------------------------------------------------- tables

    def _table(self) -> Step:
        """All steps' rows [step, client, batch], padded with steps that nobody takes."""
        looked, most = self.at.looked, int(self.steps[0])
        left = self.steps > np.arange(most)[:, None]
        place = np.ascontiguousarray(self.draws.place.swapaxes(0, 1))
        weight = np.ascontiguousarray(self.draws.weight.swapaxes(0, 1))
        if ((place < 0) | (place >= self.at.sizes[:, None]))[left].any():
            raise IndexError(f"{type(self.job).__name__} draws rows that a device doesn't have")
        pick = np.zeros(place.shape, np.int64)
        pick[left] = looked.source[(place + looked.first[:, None])[left]]  # one look-up for all
        if not self.job.looks:
            place = place[..., :0]
        hashes = keys.hash_all(
            keys.hash_all(looked.seeds, np.array([BATCHES])), np.arange(most)[:, None]
        ).view(np.int64)
        x = self.pool.x
        picks, key, places = (torch.from_numpy(a).to(x.device) for a in (pick, hashes, place))
        return Step(picks, torch.from_numpy(weight).to(x.device, weight_dtype(x)), key, places)

    def _own_rows(self) -> tuple[list[Tensor], Rebuild | None]:
        """Every client's rows [client, row, ...] and what is seen of them; padding has weight 0."""
        most = max(1, int(self.at.sizes.max()))
        padded, weight = np.zeros((len(self), most), np.int64), np.zeros((len(self), most), np.float32)
        for i, size in enumerate(self.at.sizes.tolist()):
            padded[i, :size], weight[i, :size] = self.at.rows(i), 1.0
        x = self.pool.x
        real = torch.from_numpy(weight).to(x.device, weight_dtype(x))
        own = [*take_rows(self.pool, torch.from_numpy(padded).to(x.device)), real, self._keys()]
        with torch.no_grad():
            looked = over(self._look, len(self), self.sent.part, self.keep.part, count_all(own))
            seen, rebuild = split(_stack_tree(*looked, len(self)))
        return [*own, *seen], rebuild

    def _keys(self) -> Tensor:
        """Of every client's rows as a whole."""
        return self._derive(WHOLE)

    def _derive(self, part: int) -> Tensor:
        """A key of each client's, for one purpose."""
        found = keys.hash_all(self.at.looked.seeds, np.array([part])).view(np.int64)
        return torch.from_numpy(found).to(self.pool.x.device)


class _Common:
    """A tree that every client has: leaves that are the same tensor are shared, others are stacked."""

    def __init__(self, trees: Sequence[Tree], rooms: Rooms | None, name: str) -> None:
        first, self.rebuild = split(trees[0])
        if all(tree is trees[0] for tree in trees):
            self.part: Part = first, [False] * len(first)
            return
        apart = {id(tree): tree for tree in trees}  # several may have the same
        tensors = {place: leaves(tree) for place, tree in apart.items()}
        columns = list(zip(*(tensors[id(tree)] for tree in trees), strict=True))
        counts = [any(t is not column[0] for t in column) for column in columns]
        both = enumerate(zip(columns, counts, strict=True))
        self.part = [_lay(c, rooms, (name, i)) if n else c[0] for i, (c, n) in both], counts


def _lay(rows: tuple[Tensor, ...], rooms: Rooms | None, name: tuple[str, int]) -> Tensor:
    """Rows as one tensor, in the room of this name if there are rooms."""
    if rooms is None:
        return torch.stack(rows)
    if name not in rooms or len(rooms[name]) < len(rows):
        rooms[name] = rows[0].new_zeros(17 * len(rows) // 16 + 1, *rows[0].shape)  # a few more may come
    return torch.stack(rows, out=rooms[name][: len(rows)])


def _stack_tree(tree: Tree, counted: list[bool], clients: int, order: Tensor | None = None) -> Tree:
    """A tree whose tensors all count clients, in one piece and in this order."""
    tensors, rebuild = split(tree)
    full = [t if n else t.expand(clients, *t.shape) for t, n in zip(tensors, counted, strict=True)]
    return rebuild([t.contiguous() if order is None else t.index_select(0, order) for t in full])


def _copy(t: Tensor) -> Tensor:
    return t.detach().clone(memory_format=torch.contiguous_format)


def _find_finite(tree: Tree, count: int) -> NDArray[np.bool_]:
    """Of every client, whether a finite sum proves all its numbers finite."""
    floats = [t for t in leaves(tree) if t.is_floating_point()]
    sums = [t if t.dim() == 1 else t.flatten(1).sum(1) for t in floats]
    return torch.stack(sums).isfinite().all(0).cpu().numpy() if sums else np.zeros(count, np.bool_)


def _read_floats(metrics: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    if not metrics:
        return {}
    table = torch.stack([m.double() for m in metrics.values()]).cpu().numpy()  # one copy from the device
    return dict(zip(metrics, table, strict=True))
