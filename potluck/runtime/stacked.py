"""Many clients' training in one vectorised call: `vmap` over a stack of models.

Clients are sorted by their number of steps, most first, so those still training at step s are a prefix of the
stack and momentum needs no mask. What all clients were sent alike is not copied.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from potluck.contracts import Batch, Result, Rows, Trace
from potluck.runtime.training import Item, laid_out, memory, scored, whole
from potluck.trees import Tree, leaves, split


class Stacked:
    """Chunks of clients, each trained as one stack."""

    def __init__(self, chunk: int) -> None:
        self.chunk = chunk

    def run(self, items: Sequence[Item]) -> list[Result]:
        draws = [item.job.draw(item.at) for item in items]
        order = sorted(range(len(items)), key=lambda i: -len(draws[i].index))
        results: list[Result | None] = [None] * len(items)
        for start in range(0, len(order), self.chunk):
            places = order[start : start + self.chunk]
            done = _train_stack([items[i] for i in places], [draws[i] for i in places])
            for i, result in zip(places, done, strict=True):
                results[i] = result
        return [r for r in results if r is not None]

    def close(self) -> None:
        pass


class _Common:
    """A tree that every client has: leaves that are the same tensor are shared, others are stacked."""

    def __init__(self, trees: Sequence[Tree]) -> None:
        columns = list(zip(*(leaves(tree) for tree in trees), strict=True))
        _, self.rebuild = split(trees[0])
        alike = [all(t is column[0] for t in column) for column in columns]
        self.tensors = [c[0] if a else torch.stack(c) for c, a in zip(columns, alike, strict=True)]
        self.dims = [None if a else 0 for a in alike]


def _map(fn: Callable[..., Tree], count: int, *parts: tuple[list[Tensor], list[int | None]]) -> Tree:
    """vmap over lists of tensors; a counter is mapped too, since everything else may be shared."""
    form: list[Callable[[Sequence[Tensor]], Tree]] = []

    def flat(_: Tensor, *lists: list[Tensor]) -> list[Tensor]:
        tensors, rebuild = split(fn(*lists))
        form[:] = [rebuild]
        return tensors

    dims = (0, *(dims for _, dims in parts))
    out = vmap(flat, in_dims=dims)(torch.arange(count), *(tensors for tensors, _ in parts))
    return form[0](out)


def _train_stack(items: Sequence[Item], draws: Sequence[Rows]) -> list[Result]:
    job, at = items[0]
    pool, models, count = at.pool, at.models, len(items)
    net = models[job.model]
    sent, keep = _Common([i.at.inbox for i in items]), _Common([memory(i) for i in items])
    given = ((sent.tensors, sent.dims), (keep.tensors, keep.dims))

    with torch.no_grad():
        begun, held = _map(lambda s, k: job.begin(net, sent.rebuild(s), keep.rebuild(k)), count, *given)
    names = list(begun)
    params = [begun[name].detach().clone(memory_format=torch.contiguous_format) for name in names]
    held_tensors, rebuild_held = split(held)
    state = job.optim.start(params)
    rates = [i.job.optim.lr for i in items]
    seen_tensors, rebuild_seen = _looked(items, sent)

    steps = [len(d.index) for d in draws]
    pick, weight, step_keys, place = _tables(items, draws)
    sums: dict[str, Tensor] = {}

    def loss(p: list[Tensor], x: Tensor, y: Tensor, w: Tensor, key: Tensor, seen: Any, h: Any) -> Any:
        batch = Batch(x, y, w, key, None if rebuild_seen is None else rebuild_seen(seen))
        return job.loss(net, dict(zip(names, p, strict=True)), batch, rebuild_held(h))

    step = vmap(grad(loss, has_aux=True))
    for s in range(steps[0] if steps else 0):
        k = sum(n > s for n in steps)  # still training: a prefix
        rows = torch.arange(k).unsqueeze(1)
        seen = [t[rows, place[:k, s]] for t in seen_tensors]
        now = pick[:k, s]
        active = [p[:k] for p in params]
        grads, means = step(
            active,
            pool.x[now],
            pool.y[now],
            weight[:k, s],
            step_keys[:k, s],
            seen,
            [t[:k] for t in held_tensors],
        )
        job.optim.step(
            active, grads, [[t[:k] for t in row] for row in state], _rates(rates[:k], active), s + 1
        )
        for name, mean in means.items():
            total = sums.setdefault(name, mean.new_zeros(count))
            total[:k] += mean

    taken = torch.tensor(steps, dtype=weight.dtype)
    traced = [
        *(total / taken.clamp_min(1) for total in sums.values()),
        taken,
        torch.tensor(rates, dtype=weight.dtype),
    ]

    def finish(p: list[Tensor], s: list[Tensor], k: list[Tensor], h: list[Tensor], t: list[Tensor]) -> Tree:
        trace = Trace(dict(zip(sums, t, strict=False)), t[-2], t[-1])
        params = dict(zip(names, p, strict=True))
        return job.finish(params, sent.rebuild(s), keep.rebuild(k), rebuild_held(h), trace)

    def all_mapped(ts: list[Tensor]) -> tuple[list[Tensor], list[int | None]]:
        return ts, [0] * len(ts)

    with torch.no_grad():
        body, kept, metrics = _map(
            finish, count, all_mapped(params), *given, all_mapped(held_tensors), all_mapped(traced)
        )
    body_rows, kept_rows, metric_rows = (
        _unstacked(body, count),
        _unstacked(kept, count),
        _floats(metrics, count),
    )
    out = []
    for i, item in enumerate(items):
        report = metric_rows[i]
        if item.at.test is not None:
            with torch.no_grad():
                mine = {name: p[i] for name, p in zip(names, params, strict=True)}
                report = scored(item, net, mine, rebuild_held([t[i] for t in held_tensors]))
        out.append(Result(body_rows[i], draws[i].count, kept_rows[i], report))
    return out


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


def _looked(items: Sequence[Item], sent: _Common) -> tuple[list[Tensor], Callable[[Any], Tree] | None]:
    """What frozen models make of every client's rows [client, row, ...], padded by the last row."""
    job, at = items[0]
    most = max(len(i.at.rows) for i in items)
    if most == 0:
        return [], None
    padded = np.stack([np.pad(i.at.rows, (0, most - len(i.at.rows)), mode="edge") for i in items])
    first = whole(items[0], at.rows[:1])
    with torch.no_grad():
        if job.look(at.models, at.inbox, first) is None:
            return [], None
        x, y = at.pool.x[padded], at.pool.y[padded]
        keys = torch.stack([whole(i, i.at.rows[:0]).key for i in items])

        def look(s: list[Tensor], own: list[Tensor]) -> Tree:
            batch = Batch(own[0], own[1], torch.ones_like(own[1], dtype=x.dtype), own[2], None)
            return job.look(at.models, sent.rebuild(s), batch)

        seen = _map(look, len(items), (sent.tensors, sent.dims), ([x, y, keys], [0, 0, 0]))
    return split(seen)


def _rates(rates: list[float], params: Sequence[Tensor]) -> float | list[Tensor]:
    if all(r == rates[0] for r in rates):
        return rates[0]
    column = torch.tensor(rates, dtype=params[0].dtype, device=params[0].device)
    return [column.view(-1, *[1] * (p.dim() - 1)) for p in params]


def _unstacked(tree: Tree, count: int) -> list[Tree]:
    """One tree a client; its tensors are rows of the stack, so that folding them all is one product."""
    tensors, rebuild = split(tree)
    rows = [t.contiguous().unbind(0) for t in tensors]
    return [rebuild([r[i] for r in rows]) for i in range(count)]


def _floats(metrics: dict[str, Tensor], count: int) -> list[dict[str, float]]:
    columns = {name: m.tolist() for name, m in metrics.items()}
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]
