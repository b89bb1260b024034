"""Many clients' training in one vectorised call: `vmap` over a stack of models.

Clients are sorted by their number of steps, most first, so those still training at step s are a prefix of the
stack and momentum needs no mask. What all clients were sent alike is not copied.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from potluck.contracts import Batch, Net, Result, Rows, Trace
from potluck.runtime.training import Item, laid_out, memory, scored, weighted_means, whole
from potluck.trees import Tree, form, leaves, split

Rebuild = Callable[[Sequence[Tensor]], Tree]
Part = tuple[list[Tensor], list[int | None]]  # tensors, and which axis of each counts clients (None: shared)


class Stacked:
    """Chunks of clients, each trained as one stack."""

    def __init__(self, chunk: int) -> None:
        self.chunk = chunk

    def run(self, items: Sequence[Item]) -> list[Result]:
        draws = [item.job.draw(item.at) for item in items]
        alike: dict[Hashable, list[int]] = {}
        for i in sorted(range(len(items)), key=lambda i: -len(draws[i].index)):
            item, trains = items[i], len(draws[i].index) > 0  # no steps, no means of them
            alike.setdefault((item.job.shape(), trains, form((item.at.inbox, memory(item)))), []).append(i)
        results: dict[int, Result] = {}
        for group in alike.values():
            for start in range(0, len(group), self.chunk):
                places = group[start : start + self.chunk]
                done = _train_stack([items[i] for i in places], [draws[i] for i in places])
                results.update(zip(places, done, strict=True))
        return [results[i] for i in range(len(items))]

    def close(self) -> None:
        pass


class _Common:
    """A tree that every client has: leaves that are the same tensor are shared, others are stacked."""

    def __init__(self, trees: Sequence[Tree]) -> None:
        columns = list(zip(*(leaves(tree) for tree in trees), strict=True))
        _, self.rebuild = split(trees[0])
        alike = [all(t is column[0] for t in column) for column in columns]
        tensors = [c[0] if a else torch.stack(c) for c, a in zip(columns, alike, strict=True)]
        self.part: Part = (tensors, [None if a else 0 for a in alike])


def _mapped(tensors: list[Tensor]) -> Part:
    return tensors, [0] * len(tensors)


def _map(fn: Callable[..., Tree], count: int, *parts: Part) -> Tree:
    """vmap over lists of tensors; a counter is mapped too, since everything else may be shared."""
    made: list[Rebuild] = []

    def flat(_: Tensor, *lists: list[Tensor]) -> list[Tensor]:
        tensors, rebuild = split(fn(*lists))
        made[:] = [rebuild]
        return tensors

    dims = (0, *(dims for _, dims in parts))
    out = vmap(flat, in_dims=dims)(torch.arange(count), *(tensors for tensors, _ in parts))
    return made[0](out)


def _batch(parts: Sequence[Tensor], rebuild: Rebuild | None) -> Batch:
    """A batch out of a flat list: rows, labels, weights, key, and what was seen."""
    x, y, weight, key, *seen = parts
    return Batch(x, y, weight, key, None if rebuild is None else rebuild(seen))


def _train_stack(items: Sequence[Item], draws: Sequence[Rows]) -> list[Result]:
    job, at = items[0]
    pool, count, net = at.pool, len(items), at.models[job.model]
    sent, keep = _Common([i.at.inbox for i in items]), _Common([memory(i) for i in items])
    own, rebuild_seen = _own_rows(items, net, sent, keep) if job.looks else ([], None)

    def begin(s: list[Tensor], k: list[Tensor], o: list[Tensor]) -> Tree:
        return job.begin(net, sent.rebuild(s), keep.rebuild(k), _batch(o, rebuild_seen) if o else None)

    with torch.no_grad():
        begun, held = _map(begin, count, sent.part, keep.part, _mapped(own))
    names, (held_tensors, rebuild_held) = list(begun), split(held)
    params = [begun[name].detach().clone(memory_format=torch.contiguous_format) for name in names]
    state, rates = job.optim.start(params), [i.job.optim.lr for i in items]
    steps = [len(d.index) for d in draws]
    pick, weight, step_keys, place = _tables(items, draws)
    sums: dict[str, Tensor] = {}

    def loss(p: list[Tensor], b: list[Tensor], h: list[Tensor]) -> Any:
        return job.loss(net, dict(zip(names, p, strict=True)), _batch(b, rebuild_seen), rebuild_held(h))

    step = vmap(grad(loss, has_aux=True))
    for s in range(steps[0]):
        k = sum(n > s for n in steps)  # still training: a prefix
        client, now = torch.arange(k).unsqueeze(1), pick[:k, s]
        seen = [t[client, place[:k, s]] for t in own[4:]]
        active = [p[:k] for p in params]
        batch = [pool.x[now], pool.y[now], weight[:k, s], step_keys[:k, s], *seen]
        grads, means = step(active, batch, [t[:k] for t in held_tensors])
        job.optim.step(
            active, grads, [[t[:k] for t in row] for row in state], _rates(rates[:k], active), s + 1
        )
        for name, mean in means.items():
            total = sums.setdefault(name, mean.new_zeros(count))
            total[:k] += mean

    taken = weight.new_tensor(steps)
    traced = [*(total / taken.clamp_min(1) for total in sums.values()), taken, weight.new_tensor(rates)]

    def finish(*parts: list[Tensor]) -> Tree:
        p, s, k, h, t, o = parts
        trained, held = dict(zip(names, p, strict=True)), rebuild_held(h)
        means = dict(zip(sums, t, strict=False))
        if o:
            rows = _batch(o, rebuild_seen)
            means |= weighted_means(job.review(net, trained, rows, held), rows.weight)
        return job.finish(trained, sent.rebuild(s), keep.rebuild(k), held, Trace(means, t[-2], t[-1]))

    with torch.no_grad():
        all_parts = (
            _mapped(params),
            sent.part,
            keep.part,
            _mapped(held_tensors),
            _mapped(traced),
            _mapped(own),
        )
        body, kept, metrics = _map(finish, count, *all_parts)
        body_rows, kept_rows, reports = _rows(body, count), _rows(kept, count), _floats(metrics, count)
        for i, item in enumerate(items):
            if item.at.test is not None:
                mine = {name: p[i] for name, p in zip(names, params, strict=True)}
                reports[i] = scored(item, net, mine, rebuild_held([t[i] for t in held_tensors]))
    return [Result(body_rows[i], draws[i].count, kept_rows[i], reports[i]) for i in range(count)]


def _tables(items: Sequence[Item], draws: Sequence[Rows]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of the pool, weights, keys and places [client, step, batch], padded with steps nobody takes."""
    most = max(len(d.index) for d in draws)
    laid = [laid_out(item, d) for item, d in zip(items, draws, strict=True)]

    def padded(columns: list[Tensor]) -> Tensor:
        table = columns[0].new_zeros((len(columns), most, *columns[0].shape[1:]))
        for row, column in zip(table, columns, strict=True):
            row[: len(column)] = column
        return table

    places = padded([torch.from_numpy(d.index) for d in draws])
    return padded([a[0] for a in laid]), padded([a[1] for a in laid]), padded([a[2] for a in laid]), places


def _own_rows(
    items: Sequence[Item], net: Net, sent: _Common, keep: _Common
) -> tuple[list[Tensor], Rebuild | None]:
    """Every client's rows as lists for `_batch` [client, row, ...]; padding has weight 0."""
    job, at = items[0]
    most = max(1, *(len(i.at.rows) for i in items))
    padded = np.zeros((len(items), most), np.int64)
    weight = at.pool.x.new_zeros((len(items), most))
    for i, item in enumerate(items):
        padded[i, : len(item.at.rows)] = item.at.rows
        weight[i, : len(item.at.rows)] = 1.0
    keys = torch.stack([whole(i, i.at.rows[:0]).key for i in items])
    own = [at.pool.x[padded], at.pool.y[padded], weight, keys]

    def look(s: list[Tensor], k: list[Tensor], o: list[Tensor]) -> Tree:
        return job.look(at.models, net, sent.rebuild(s), keep.rebuild(k), _batch(o, None))

    with torch.no_grad():
        seen, rebuild = split(_map(look, len(items), sent.part, keep.part, _mapped(own)))
    return [*own, *seen], rebuild


def _rates(rates: list[float], params: Sequence[Tensor]) -> float | list[Tensor]:
    if all(r == rates[0] for r in rates):
        return rates[0]
    column = params[0].new_tensor(rates)
    return [column.view(-1, *[1] * (p.dim() - 1)) for p in params]


def _rows(tree: Tree, count: int) -> list[Tree]:
    """One tree a client; its tensors are rows of the stack, so that folding them all is one product."""
    tensors, rebuild = split(tree)
    rows = [t.contiguous().unbind(0) for t in tensors]
    return [rebuild([r[i] for r in rows]) for i in range(count)]


def _floats(metrics: dict[str, Tensor], count: int) -> list[dict[str, float]]:
    columns = {name: m.tolist() for name, m in metrics.items()}
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]
