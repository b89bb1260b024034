"""What many tasks have, in columns: an entry each, so that little need be done task by task.

A task's own part (a Local, Rows, a Result) is made when somebody looks at it, and is the same value as if it
had been made by itself.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, Protocol, Self, TypeGuard, TypeVar, overload, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Cost, Job, Local, Nets, Result, Rows, Samples
from potluck.core.trees import Tree, form, tmap

N = TypeVar("N", bound=np.generic)

# ------------------------------------------------------------------------------------------- before training


class Looked(NamedTuple):
    """Of many places: what is looked up when they are computed."""

    seeds: NDArray[np.uint64]
    source: NDArray[np.int64]  # rows of all
    first: NDArray[np.int64]  # where in `source` each one's begin
    keeps: Sequence[Tree]
    tests: Sequence[NDArray[np.int64] | None]


class Places(Sequence[Local]):
    """Where many tasks run."""

    def __init__(
        self,
        one: Callable[[int], Local],
        sizes: NDArray[np.int64],  # rows of each
        inboxes: Sequence[Tree],
        models: Nets,
        pool: Samples,
        look: Callable[[], Looked],
    ) -> None:
        self.one, self.sizes, self.inboxes, self.models, self.pool = one, sizes, inboxes, models, pool
        self._look = look
        self._looked: Looked | None = None

    @classmethod
    def of(cls, places: Sequence[Local]) -> "Places":
        """Of those that are there one by one."""
        if isinstance(places, Places):
            return places
        rows = [at.rows for at in places]
        sizes = np.array([len(r) for r in rows], np.int64)

        def look() -> Looked:
            seeds = np.array([at.seed for at in places], np.uint64)
            source = np.concatenate(rows) if rows else np.zeros(0, np.int64)
            keeps, tests = [at.keep for at in places], [at.test for at in places]
            return Looked(seeds, source, np.cumsum(sizes) - sizes, keeps, tests)

        inboxes = [at.inbox for at in places]
        return cls(places.__getitem__, sizes, inboxes, places[0].models, places[0].pool, look)

    @property
    def looked(self) -> Looked:
        if self._looked is None:
            self._looked = self._look()
        return self._looked

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, i: int) -> Local: ...
    @overload
    def __getitem__(self, i: slice) -> list[Local]: ...
    def __getitem__(self, i: int | slice) -> Local | list[Local]:
        return [self.one(j) for j in range(len(self))[i]] if isinstance(i, slice) else self.one(i)

    def rows(self, i: int) -> NDArray[np.int64]:
        """One's rows."""
        first = self.looked.first[i]
        return self.looked.source[first : first + self.sizes[i]]

    def take(self, order: NDArray[np.intp]) -> "Places":
        """Some of them, in this order."""
        who: list[int] = order.tolist()

        def look() -> Looked:
            seeds, source, first, keeps, tests = self.looked
            return Looked(
                seeds[order], source, first[order], [keeps[i] for i in who], [tests[i] for i in who]
            )

        inboxes = [self.inboxes[i] for i in who]
        return Places(lambda i: self.one(who[i]), self.sizes[order], inboxes, self.models, self.pool, look)


class Draws(NamedTuple):
    """Which of their rows many jobs train on: `Rows` of each, padded to the same number of steps."""

    place: NDArray[np.int64]  # [clients, steps, batch]; of padding 0
    weight: NDArray[np.float32]  # [clients, steps, batch]; 0 for padding
    steps: NDArray[np.int64]  # [clients]
    counts: NDArray[np.float64]  # [clients]; the replies' weights

    @classmethod
    def of(cls, drawn: Sequence[Rows]) -> Self:
        """Of those that were drawn one by one, in batches of one size."""
        steps = np.array([len(rows.index) for rows in drawn], np.int64)
        shape = len(drawn), int(steps.max(initial=0)), drawn[0].index.shape[1] if drawn else 0
        place, weight = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for i, rows in enumerate(drawn):
            if n := len(rows.index):
                place[i, :n], weight[i, :n] = rows.index, rows.weight
        return cls(place, weight, steps, np.array([rows.count for rows in drawn], np.float64))

    def rows(self, i: int) -> Rows:
        """What one of them drew."""
        n = self.steps[i]
        return Rows(self.place[i, :n], self.weight[i, :n], float(self.counts[i]))

    def take(self, order: NDArray[np.intp]) -> "Draws":
        """Some of them, in this order."""
        steps = self.steps[order]
        most = int(steps.max(initial=0))
        return Draws(self.place[order, :most], self.weight[order, :most], steps, self.counts[order])


class Costs(NamedTuple):
    """What one job takes at many places."""

    same: Cost  # but for the two that differ
    ops: NDArray[np.float64]
    weights: NDArray[np.float64]


@runtime_checkable
class CostsTogether(Job, Protocol):
    """A job that knows at once what it takes at many places that were sent the same."""

    def cost_all(self, places: Places) -> Costs: ...


_TOGETHER: dict[tuple[type, str], bool] = {}


def does_together(kind: type, many: str, *alone: str) -> bool:
    """Whether a class does for many at once what it does for one.

    Not where it took that over and does for one something else: `many` knows nothing of it.
    """
    name = kind, many
    if name not in _TOGETHER:
        owner = next((c for c in kind.__mro__ if not vars(c).keys().isdisjoint({many, *alone})), kind)
        _TOGETHER[name] = many in vars(owner)
    return _TOGETHER[name]


def costs_together(job: Job) -> TypeGuard[CostsTogether]:
    """Whether a job's `cost_all` can be asked."""
    return does_together(type(job), "cost_all", "cost")


# -------------------------------------------------------------------------------------------- after training


@value(eq=False)
class Results(Sequence[Result]):
    """Results of one form: trees whose tensors count them, and columns."""

    body: Tree
    keep: Tree
    weights: NDArray[np.float64]
    metrics: dict[str, NDArray[np.float64]]
    finite: NDArray[np.bool_]  # of their bodies

    def __len__(self) -> int:
        return len(self.weights)

    @overload
    def __getitem__(self, i: int) -> Result: ...
    @overload
    def __getitem__(self, i: slice) -> list[Result]: ...
    def __getitem__(self, i: int | slice) -> Result | list[Result]:
        if isinstance(i, slice):
            return [self[j] for j in range(len(self))[i]]
        body, keep = (tmap(lambda t: t[i], tree) for tree in (self.body, self.keep))
        told = {name: float(column[i]) for name, column in self.metrics.items()}
        return Result(body, float(self.weights[i]), keep, told, bool(self.finite[i]))

    def __iter__(self) -> Iterator[Result]:
        return iter(self.split())

    def split(self) -> list[Result]:
        """All of them; their tensors are rows of the tables, so that folding them all is one product."""
        count = len(self)
        bodies, keeps = _split_rows(self.body, count), _split_rows(self.keep, count)
        columns = bodies, self.weights.tolist(), keeps, self.split_metrics(), self.finite.tolist()
        return [Result(*row) for row in zip(*columns, strict=True)]

    def split_metrics(self) -> list[dict[str, float]]:
        """What each tells."""
        if not self.metrics:
            return [{} for _ in range(len(self))]
        table = np.stack([*self.metrics.values()], 1).tolist()
        return [dict(zip(self.metrics, row, strict=True)) for row in table]

    @classmethod
    def join(cls, parts: Sequence[tuple[Sequence[int], "Results"]], count: int) -> "Results | list[Result]":
        """What came of all, from parts and their places; a list, unless they are of one form."""
        if len(parts) == 1 and len(parts[0][1]) == count:
            return parts[0][1]
        first = parts[0][1]
        if any(_find_form(part) != _find_form(first) for _, part in parts):
            found = {i: one for places, part in parts for i, one in zip(places, part.split(), strict=True)}
            return [found[i] for i in range(count)]
        order = np.concatenate([places for places, _ in parts])

        def sort(*columns: NDArray[N]) -> NDArray[N]:
            out = np.empty(count, columns[0].dtype)
            out[order] = np.concatenate(columns)
            return out

        def lay(*tensors: Tensor) -> Tensor:
            out = tensors[0].new_empty(count, *tensors[0].shape[1:])
            for (places, _), t in zip(parts, tensors, strict=True):
                out[torch.as_tensor(places, device=t.device)] = t
            return out

        made = [part for _, part in parts]
        body, keep = (tmap(lay, *trees) for trees in ([p.body for p in made], [p.keep for p in made]))
        told = {name: sort(*(p.metrics[name] for p in made)) for name in first.metrics}
        return cls(body, keep, sort(*(p.weights for p in made)), told, sort(*(p.finite for p in made)))


def _find_form(part: Results) -> Hashable:
    return form(tmap(lambda t: t[:0], (part.body, part.keep))), *part.metrics


def _split_rows(tree: Tree, count: int) -> list[Tree]:
    """One tree a client; column by column, since walking every client's tree would take longer."""
    if isinstance(tree, Tensor):
        return list(tree.unbind(0))
    if isinstance(tree, dict) and tree:
        columns = [_split_rows(v, count) for v in tree.values()]
        return [dict(zip(tree, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(tree, list | tuple) and tree:
        make: Callable[..., Tree] = getattr(tree, "_make", type(tree))  # a named tuple's, or the class itself
        return [make(row) for row in zip(*(_split_rows(v, count) for v in tree), strict=True)]
    return [tree] * count
