"""Where what workers are sent and what they answer lies in shared memory."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from potluck.core.job import Local, Training
from potluck.core.trees import Tree, leaves
from potluck.execute.pool.arena import Arena, Lender, Name, Where, align, pack, view

Form = tuple[tuple[torch.dtype, tuple[int, ...]], ...]  # of a tree's tensors


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
            self.made[name] = pack((job, at.inbox, leaves), self.put)
        return self.made[name]

    def put(self, tensor: Tensor) -> Where:
        if id(tensor) not in self.lying:
            self.lying[id(tensor)] = tensor, self.arena.put(tensor)
        return self.lying[id(tensor)][1]


class ResultTable:
    """Results of one form, each leaf a table whose rows are theirs."""

    def __init__(self, lender: Lender, count: int, form: Form) -> None:
        self.leaves: list[Where] = []  # the tables' first rows
        end = 0
        for dtype, shape in form:
            self.leaves.append((end, dtype, shape))
            end = align(end + count * math.prod(shape) * dtype.itemsize)
        start, memory = lender.lend(end)
        self.tables = [view(memory, (at, dtype, (count, *shape))) for at, dtype, shape in self.leaves]
        self.leaves = [(start + at, dtype, shape) for at, dtype, shape in self.leaves]


class Tables:
    """Where the results of a batch will lie, by the form that their jobs promise."""

    def __init__(self, lender: Lender, promised: Sequence[Tree]) -> None:
        alike: dict[Form, list[int]] = {}
        for place, tree in enumerate(promised):
            alike.setdefault(find_form(tree), []).append(place)
        self.places: dict[int, tuple[ResultTable, int]] = {}  # the stack and the row of each
        self.rows: dict[int, list[tuple[Tensor, ...]]] = {}
        for form, places in alike.items():
            stack = ResultTable(lender, len(places), form)
            rows = [table.unbind() for table in stack.tables]
            self.places |= {place: (stack, row) for row, place in enumerate(places)}
            self.rows |= dict.fromkeys(places, rows)

    def find_tensor(self, place: int, arena: Arena) -> Callable[[Name], Tensor]:
        """Where the tensors of an answer are: in their rows, or to be copied before the next answer comes."""
        rows, (_, row) = self.rows[place], self.places[place]
        return lambda name: rows[name][row] if isinstance(name, int) else arena.at(name).clone()


def find_form(tree: Tree) -> Form:
    """Types and shapes of a tree's tensors."""
    return tuple((t.dtype, tuple(t.shape)) for t in leaves(tree))


class Writer:
    """Writes a result's tensors to their rows if they have the form that was promised, or aside."""

    def __init__(self, bodies: Arena, leaves: list[Where], row: int, aside: Arena) -> None:
        self.bodies, self.leaves, self.row, self.aside = bodies, leaves, row, aside
        self.count = 0
        aside.clear()

    def put(self, tensor: Tensor) -> Name:
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
