"""How one device trains, and how a model is scored: the reference that every executor agrees with."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck import keys
from potluck.contracts import Batch, Job, Local, Net, Result, Rows, Trace, Training
from potluck.errors import PotluckError
from potluck.trees import Params, Tree, form, leaves, tmap

SCORING_BATCH = 2048  # rows a forward pass when scoring; bounds memory


class Item(NamedTuple):
    """A training job where it is to run."""

    job: Training
    at: Local


def batch_shape(job: Job) -> Hashable | None:
    """Training jobs of equal shape may be computed together; None for jobs that run as they like."""
    shape: Callable[[], Hashable] | None = getattr(job, "shape", None)
    return None if shape is None else shape()


def run_alone(job: Job, at: Local) -> Result:
    """Run a job that is not training."""
    try:
        result: Result = job.run(at)  # type: ignore[attr-defined]
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise PotluckError(f"device {at.node}: {type(job).__name__}: {error}") from error
    return result


def train(item: Item) -> Result:
    """Run one training job, a lean loop: no optimiser object, no `.grad`, no copies between steps."""
    job, at = item
    net, rows = at.models[job.model], job.draw(at)
    sent, keep = at.inbox, memory(item)
    own = looked_at(item, net, at.rows) if job.looks else None
    with torch.no_grad():
        started, held = job.begin(net, sent, keep, own)
    tensors = [p.detach().clone().requires_grad_() for p in started.values()]
    params = dict(zip(started, tensors, strict=True))
    state = job.optim.start(tensors)
    pick, weight, step_keys = laid_out(item, rows)
    sums: dict[str, Tensor] = {}
    for s in range(len(rows.index)):
        seen = None if own is None else tmap(lambda t, s=s: t[rows.index[s]], own.seen)
        batch = Batch(at.pool.x[pick[s]], at.pool.y[pick[s]], weight[s], step_keys[s], seen)
        loss, means = job.loss(net, params, batch, held)
        grads = torch.autograd.grad(loss, tensors, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            job.optim.step(tensors, grads, state, job.optim.lr, s + 1)
        for name, mean in means.items():
            sums[name] = sums[name] + mean if name in sums else mean
    with torch.no_grad():
        final = {name: p.detach() for name, p in params.items()}
        steps = weight.new_tensor(float(len(rows.index)))
        means = {name: total / steps for name, total in sums.items()}
        if own is not None:
            means |= weighted_means(job.review(net, final, own, held), own.weight)
        trace = Trace(means, steps, weight.new_tensor(job.optim.lr))
        body, kept, metrics = job.finish(final, sent, keep, held, trace)
        report = {name: float(m) for name, m in metrics.items()}
        if at.test is not None:
            report = scored(item, net, final, held)
    return Result(body, rows.count, kept, report)


def memory(item: Item) -> Tree:
    """What the device kept, or what one starts from that kept nothing."""
    return item.job.blank(item.at.inbox) if item.at.keep is None else item.at.keep


def laid_out(item: Item, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the pool, weights and keys of every step."""
    x = item.at.pool.x
    steps = len(rows.index)
    hashes = keys.hashed(keys.derive(item.at.seed, -1), np.arange(steps)).view(np.int64)
    pick = item.at.rows[rows.index] if steps else rows.index
    return (
        torch.from_numpy(pick).to(x.device),
        torch.from_numpy(rows.weight).to(x.device, x.dtype),
        torch.from_numpy(hashes).to(x.device),
    )


def looked_at(item: Item, net: Net, rows: NDArray[np.int64]) -> Batch:
    """Rows as one batch, with what the job's frozen models make of them."""
    batch = whole(item, rows)
    if not item.job.looks:
        return batch
    with torch.no_grad():
        seen = item.job.look(item.at.models, net, item.at.inbox, memory(item), batch)
    return batch._replace(seen=seen)


def whole(item: Item, rows: NDArray[np.int64]) -> Batch:
    """All given rows of a device as one batch."""
    pool = item.at.pool
    ones = torch.ones(len(rows), dtype=pool.x.dtype, device=pool.x.device)
    key = keys.as_tensor(keys.derive(item.at.seed, -2)).to(pool.x.device)
    pick = torch.tensor(rows, device=pool.x.device)
    return Batch(pool.x[pick], pool.y[pick], ones, key, None)


def weighted_means(columns: dict[str, Tensor], weight: Tensor) -> dict[str, Tensor]:
    """Means over rows; padding has weight 0."""
    total = weight.sum().clamp_min(1e-12)
    return {name: (column * weight).sum() / total for name, column in columns.items()}


def scored(item: Item, net: Net, params: Params, held: Tree) -> dict[str, float]:
    """Means of a job's scores over the rows that it is tested on, and how many these were."""
    rows = item.at.test
    assert rows is not None
    parts = [_scores(item, net, params, held, rows[i : i + SCORING_BATCH]) for i in _starts(len(rows))]
    names = parts[0].keys() if parts else ()
    means = {name: float(torch.cat([p[name] for p in parts]).double().mean()) for name in names}
    return {**means, "rows": float(len(rows))}


def scored_together(items: list[Item]) -> list[dict[str, float]]:
    """`scored` for jobs of no steps that use the same model: one pass over all their rows."""
    job, at = items[0]
    net = at.models[job.model]
    with torch.no_grad():
        own = looked_at(items[0], net, at.rows) if job.looks else None
        params, held = job.begin(net, at.inbox, memory(items[0]), own)
        tests = [i.at.test for i in items if i.at.test is not None]
        rows = np.concatenate(tests)
        parts = [
            _scores(items[0], net, params, held, rows[i : i + SCORING_BATCH]) for i in _starts(len(rows))
        ]
        columns = {n: torch.cat([p[n] for p in parts]).double() for n in (parts[0] if parts else ())}
    out, start = [], 0
    for test in tests:
        stop = start + len(test)
        means = {n: float(c[start:stop].mean()) for n, c in columns.items()} if stop > start else {}
        out.append({**means, "rows": float(len(test))})
        start = stop
    return out


def shared_model(item: Item) -> Hashable:
    """Equal for served jobs that score the very same model; one that looks at its own rows is its own."""
    if item.job.looks:
        return id(item.at)
    given = (item.at.inbox, item.at.keep)
    return item.job.shape(), form(given), tuple(id(t) for t in leaves(given))


def _starts(count: int) -> range:
    return range(0, count, SCORING_BATCH)


def _scores(item: Item, net: Net, params: Params, held: Tree, rows: NDArray[np.int64]) -> dict[str, Tensor]:
    return item.job.score(net, params, looked_at(item, net, rows), held)
