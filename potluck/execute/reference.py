"""How one device trains, and how a model is scored: the reference that every executor agrees with."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, overload, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core import keys
from potluck.core.columns import Draws, Places, does_together
from potluck.core.errors import JobError, PotluckError
from potluck.core.job import Batch, Job, Local, Net, Result, Rows, Trace, Training, runs, trains
from potluck.core.trees import Params, Tree, finite, form, leaves, tmap
from potluck.execute.attention import pin_attention
from potluck.execute.clip import clip_gradients

SCORING_BATCH = 2048  # rows a forward pass when scoring; bounds memory
BATCHES, WHOLE, SENDING = -1, -2, -3  # streams of a task's seed: for its steps, all its rows, what it sends


class Halted(Exception):  # noqa: N818 - nothing went wrong
    """Training was ended before its time, since nobody wants it any more."""


class Item(NamedTuple):
    """A training job where it is to run."""

    job: Training
    at: Local


class Items(Sequence[Item]):
    """Items in columns."""

    def __init__(self, jobs: Sequence[Training], at: Places, kept: list[Tree] | None = None) -> None:
        self.jobs, self.at = jobs, at
        self._kept = kept

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Items":
        """Of those that are there one by one."""
        if isinstance(items, Items):
            return items
        return cls([item.job for item in items], Places.of([item.at for item in items]))

    def __len__(self) -> int:
        return len(self.jobs)

    @overload
    def __getitem__(self, i: int) -> Item: ...
    @overload
    def __getitem__(self, i: slice) -> list[Item]: ...
    def __getitem__(self, i: int | slice) -> Item | list[Item]:
        if isinstance(i, slice):
            return [self[j] for j in range(len(self))[i]]
        return Item(self.jobs[i], self.at[i])

    def take(self, order: NDArray[np.intp]) -> "Items":
        """Some of them, in this order."""
        who: list[int] = order.tolist()
        return Items([self.jobs[i] for i in who], self.at.take(order), [self.recall()[i] for i in who])

    def recall(self) -> list[Tree]:
        """What each device kept, or what one starts from that kept nothing."""
        if self._kept is None:
            self._kept = self._recall()
        return self._kept

    def _recall(self) -> list[Tree]:
        blank: dict[tuple[int, int], Tree] = {}  # without tensors: all may share them

        def start(job: Training, inbox: Tree) -> Tree:
            name = id(job), id(inbox)
            if name in blank:
                return blank[name]
            made = job.blank(inbox)
            if not leaves(made):
                blank[name] = made
            return made

        columns = zip(self.jobs, self.at.inboxes, self.at.looked.keeps, strict=True)
        return [start(job, inbox) if keep is None else keep for job, inbox, keep in columns]

    def draw(self) -> Draws:
        """What every job draws; all at once if their class can. They are of one shape."""
        job = self.jobs[0]
        alike = all(type(other) is type(job) for other in self.jobs)
        if alike and isinstance(job, DrawsTogether) and does_together(type(job), "draw_all", "draw"):
            return job.draw_all(self.jobs, self.at)
        return Draws.of([item.job.draw(item.at) for item in self])


@runtime_checkable
class DrawsTogether(Protocol):
    """A class of training jobs that draws for many at once, several times as fast."""

    @staticmethod
    def draw_all(jobs: Sequence[Training], places: Places) -> Draws: ...  # jobs of one shape


def find_shape(job: Job) -> Hashable | None:
    """Training jobs of equal shape may be computed together; None for jobs that run as they like."""
    return job.shape() if trains(job) else None


def run_alone(job: Job, at: Local) -> Result:
    """Run a job that is not training."""
    if not runs(job):
        raise JobError(f"{type(job).__name__}: is neither training nor has a method run(at); give it one")
    try:
        result = job.run(at)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise PotluckError(f"device {at.node}: {type(job).__name__}: {error}") from error
    return replace(result, finite=False) if result.finite else result  # a job's own word isn't taken


def train(item: Item, halt: Callable[[], bool] | None = None) -> Result:
    """Run one training job, a lean loop: no optimiser object, no `.grad`, no copies between steps.

    `halt` is asked before each step whether to end, by Halted.
    """
    device = item.at.pool.x.device
    if device.type == "cpu":  # nothing is pinned there
        return _train(item, halt)
    with pin_attention(device):
        return _train(item, halt)


def _train(item: Item, halt: Callable[[], bool] | None) -> Result:
    job, at = item
    net, rows = at.models[job.model], job.draw(at)
    sent, keep = at.inbox, recall(item)
    own = look_at(item, net, at.rows) if job.looks else None
    with torch.no_grad():
        started, held = job.begin(net, sent, keep, own)
    final = {name: p.detach().clone() for name, p in started.items()}
    values = list(final.values())
    params = {name: p.detach().requires_grad_() for name, p in final.items()}  # the same memory
    tensors, state = list(params.values()), job.optim.start(values)
    sums: dict[str, Tensor] = {}
    for count, batch in enumerate(_batches(item, rows, own), start=1):
        if halt is not None and halt():
            raise Halted
        loss, means = job.loss(net, params, batch, held)
        grads = torch.autograd.grad(loss, tensors, allow_unused=True)
        if any(g is None for g in grads):
            grads = tuple(torch.zeros_like(p) if g is None else g for g, p in zip(grads, values, strict=True))
        if job.clip is not None:
            grads = tuple(clip_gradients(grads, job.clip, stacked=False))
        job.optim.step(values, grads, state, job.optim.lr, count)
        for name, mean in means.items():
            sums[name] = sums[name] + mean if name in sums else mean
    with torch.no_grad():
        pool = at.pool.x
        numbers = torch.tensor([len(rows.index), job.optim.lr], dtype=weight_dtype(pool), device=pool.device)
        steps, lr = numbers.unbind()
        means = {name: total / steps for name, total in sums.items()}
        if own is not None:
            means |= weighted_means(job.review(net, final, own, held), own.weight)
        key = keys.as_tensor(keys.derive(at.seed, SENDING)).to(pool.device)
        body, kept, metrics = job.finish(final, sent, keep, held, Trace(means, steps, lr, key))
        if metrics and pool.device.type != "cpu":
            told = torch.stack([m.double() for m in metrics.values()]).tolist()  # one copy from the device
            report = dict(zip(metrics, told, strict=True))
        else:
            report = {name: float(m) for name, m in metrics.items()}
        if at.test is not None:
            report, shown = score(item, net, final, held)
            body = shown or body
    return Result(body, rows.count, kept, report, finite(body))


def _batches(item: Item, rows: Rows, own: Batch | None) -> Iterator[Batch]:
    """The steps' batches, without the padding at a batch's end: it counts nothing, but it takes time."""
    x, y = item.at.pool.x, item.at.pool.y
    columns = (part.unbind() for part in lay_out(item, rows))
    sizes = count_filled(rows.weight).tolist()
    for place, size, pick, weight, key in zip(rows.index, sizes, *columns, strict=True):
        pick, seen = pick[:size], None
        if own is not None:
            among = torch.from_numpy(place[:size]).to(x.device)
            seen = tmap(lambda t, among=among: t.index_select(0, among), own.seen)
        # index_select: several times faster than x[pick] on a CPU
        yield Batch(x.index_select(0, pick), y.index_select(0, pick), weight[:size], key, seen)


def count_filled(weight: NDArray[np.floating]) -> NDArray[np.int64]:
    """How many rows of each batch [..., rows] are left without the padding at its end; at least one."""
    last = weight.shape[-1] - np.argmax(weight[..., ::-1] != 0, axis=-1)
    return np.where(weight.any(axis=-1), last, 1)


def recall(item: Item) -> Tree:
    """What the device kept, or what one starts from that kept nothing."""
    return item.job.blank(item.at.inbox) if item.at.keep is None else item.at.keep


def lay_out(item: Item, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the pool, weights and keys of every step."""
    x = item.at.pool.x
    steps = len(rows.index)
    hashes = keys.hash_all(keys.derive(item.at.seed, BATCHES), np.arange(steps)).view(np.int64)
    pick = item.at.rows[rows.index] if steps else rows.index
    return (
        torch.from_numpy(pick).to(x.device),
        torch.from_numpy(rows.weight).to(x.device, weight_dtype(x)),
        torch.from_numpy(hashes).to(x.device),
    )


def weight_dtype(x: Tensor) -> torch.dtype:
    """Of rows' weights: the rows' own, unless they are tokens."""
    return x.dtype if x.is_floating_point() else torch.float32


def look_at(item: Item, net: Net, rows: NDArray[np.int64]) -> Batch:
    """Rows as one batch, with what the job's frozen models make of them."""
    batch = make_batch(item, rows)
    if not item.job.looks:
        return batch
    with torch.no_grad():
        seen = item.job.look(item.at.models, net, item.at.inbox, recall(item), batch)
    return batch._replace(seen=seen)


def make_batch(item: Item, rows: NDArray[np.int64]) -> Batch:
    """All given rows of a device as one batch."""
    pool = item.at.pool
    ones = torch.ones(len(rows), dtype=weight_dtype(pool.x), device=pool.x.device)
    key = keys.as_tensor(keys.derive(item.at.seed, WHOLE)).to(pool.x.device)
    pick = torch.tensor(rows, device=pool.x.device)
    return Batch(pool.x[pick], pool.y[pick], ones, key, None)


def weighted_means(columns: dict[str, Tensor], weight: Tensor) -> dict[str, Tensor]:
    """Means over rows; padding has weight 0."""
    total = weight.sum().clamp_min(1e-12)
    return {name: (column * weight).sum() / total for name, column in columns.items()}


class Scored(NamedTuple):
    """What a job's scores come to on the rows that it is tested on."""

    means: dict[str, float]  # and how many rows these were
    told: dict[str, Tensor]  # what is more than a number a row, row by row


def score(item: Item, net: Net, params: Params, held: Tree) -> Scored:
    """Test what was trained: in pieces, unless its rows must be seen whole."""
    rows = item.at.test
    assert rows is not None
    return _sum_up(_score_pieces(item, net, params, held, rows), 0, len(rows))


def score_together(items: list[Item]) -> list[Scored]:
    """`score` for jobs of no steps that use the same model and need no rows whole: one pass over all."""
    job, at = items[0]
    net = at.models[job.model]
    with torch.no_grad():
        own = look_at(items[0], net, at.rows) if job.looks else None
        params, held = job.begin(net, at.inbox, recall(items[0]), own)
        tests = [i.at.test for i in items if i.at.test is not None]
        columns = _score_pieces(items[0], net, params, held, np.concatenate(tests))
    stops = np.cumsum([len(test) for test in tests]).tolist()
    return [_sum_up(columns, stop - len(test), stop) for test, stop in zip(tests, stops, strict=True)]


def identify_model(item: Item) -> Hashable:
    """Equal for served jobs that score the very same model; one that looks at its own rows is its own."""
    if item.job.looks:
        return id(item.at)
    given = (item.at.inbox, item.at.keep)
    return item.job.shape(), form(given), tuple(id(t) for t in leaves(given))


def _score_pieces(
    item: Item, net: Net, params: Params, held: Tree, rows: NDArray[np.int64]
) -> dict[str, Tensor]:
    """All scores of all rows, in their order."""
    size = max(1, len(rows)) if item.job.whole else SCORING_BATCH
    starts = range(0, len(rows), size)
    parts = [item.job.score(net, params, look_at(item, net, rows[i : i + size]), held) for i in starts]
    return {n: torch.cat([p[n] for p in parts]).double() for n in (parts[0] if parts else ())}


def _sum_up(columns: dict[str, Tensor], start: int, stop: int) -> Scored:
    """Of a stretch of rows."""
    found = {n: c[start:stop] for n, c in columns.items()} if stop > start else {}
    means = {n: float(c.mean()) for n, c in found.items() if c.dim() == 1}
    told = {n: c for n, c in found.items() if c.dim() > 1}
    return Scored({**means, "rows": float(stop - start)}, told)
