"""Replies of tasks that started together: a table, of which a Reply is made when somebody looks at it."""

from collections.abc import Iterator, Sequence
from typing import final, overload

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.core.codec import value
from potluck.core.columns import Results
from potluck.core.job import Result
from potluck.core.messages import Reply, Spent, Task
from potluck.core.trees import Tree, stack_trees, tmap


@value(frozen=False, eq=False)
class Sheet:
    """Tasks of one job and barrier that started together, their seconds, and what came of them."""

    tasks: list[Task]  # in the order of their plan
    down: NDArray[np.float64]
    compute: NDArray[np.float64]
    up: NDArray[np.float64]
    results: Sequence[Result] | None = None  # perhaps others' too
    rows: NDArray[np.int64] | None = None  # which of the results is whose

    def take(self, results: Sequence[Result], places: NDArray[np.int64], first: int) -> None:
        """What came of some: these of the results, from one on."""
        if self.rows is None or self.results is None:
            self.rows = np.full(len(self.tasks), -1)
        assert self.results is None or self.results is results, "a sheet is computed at once"
        self.results = results
        self.rows[places] = np.arange(first, first + len(places))

    def find_result(self, i: int) -> Result | None:
        """What came of one, if it is known."""
        if self.results is None or self.rows is None or self.rows[i] < 0:
            return None
        return self.results[int(self.rows[i])]


@final
class Replies(Sequence[Reply]):
    """Replies of some of a sheet's tasks."""

    def __init__(self, sheet: Sheet, places: NDArray[np.int64]) -> None:
        assert sheet.results is not None
        assert sheet.rows is not None
        self.sheet, self.places, self.results, self.rows = sheet, places, sheet.results, sheet.rows[places]
        self._made: list[Reply] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Reply]:
        return iter(self.made)

    @overload
    def __getitem__(self, i: int) -> Reply: ...
    @overload
    def __getitem__(self, i: slice) -> list[Reply]: ...
    def __getitem__(self, i: int | slice) -> Reply | list[Reply]:
        return self.made[i]

    @property
    def made(self) -> list[Reply]:
        """All of them, made once: whoever looks twice meets the same."""
        if self._made is None:
            whole = isinstance(self.results, Results) and 2 * len(self) > len(self.results)
            found = self.results.split() if isinstance(self.results, Results) and whole else self.results
            results = [found[row] for row in self.rows.tolist()]
            self._made = [
                Reply(self.sheet.tasks[place], r.body, r.weight, r.metrics, Spent(down, compute, up))
                for place, r, down, compute, up in zip(
                    self.places.tolist(), results, *self._list_seconds(), strict=True
                )
            ]
        return self._made

    @property
    def weights(self) -> list[float]:
        """Of each."""
        if isinstance(self.results, Results):
            found: list[float] = self.results.weights[self.rows].tolist()
            return found
        return [r.weight for r in self]

    def stack(self, entry: str) -> Tree:
        """One entry of all bodies: tensors whose first axis counts replies."""
        if not isinstance(self.results, Results):
            return stack_trees([r.body[entry] for r in self])
        whole = len(self) == len(self.results) and bool((self.rows == np.arange(len(self))).all())
        if whole:
            return self.results.body[entry]
        rows = torch.from_numpy(self.rows)
        return tmap(lambda t: t.index_select(0, rows.to(t.device)), self.results.body[entry])

    def _list_seconds(self) -> list[list[float]]:
        sheet = self.sheet
        return [column[self.places].tolist() for column in (sheet.down, sheet.compute, sheet.up)]


def list_weights(replies: Sequence[Reply]) -> list[float]:
    """Each one's weight."""
    return replies.weights if type(replies) is Replies else [r.weight for r in replies]


def stack_entry(replies: Sequence[Reply], entry: str) -> Tree:
    """One entry of all replies' bodies: tensors whose first axis counts replies."""
    if type(replies) is Replies:
        return replies.stack(entry)
    return stack_trees([r.body[entry] for r in replies])
