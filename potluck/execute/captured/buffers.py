"""Steps of a stack captured once and replayed, without the Python between their operations.

On a GPU a step becomes a CUDA graph. On a CPU it becomes the list of operations that it came to, which saves
small models much of their time. A captured step always works on the same memory, so clients are copied into
buffers of their own (and out again, if there are several sets of them). It is captured for a few numbers of
clients, or of rows of a client by itself, by the stack's own size: what is computed never depends on what was
trained before, or a resumed run would differ. Who has no steps left, or fills up such a number, has a rate of
0. Several sets of buffers, on a stream each, train side by side.
"""

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from potluck.core.trees import Tree, split
from potluck.execute.captured.cpu import Run, trace
from potluck.execute.captured.numbers import refuse_numbers
from potluck.execute.vectorised.stack import Rooms, Stack
from potluck.execute.vectorised.step import Recipe, Step

LADDER = 16  # numbers of clients, up to a buffer's size, that a step is captured for on a GPU
FEW = 4  # numbers of rows, up to a batch, that one is captured for if it is of one client on a CPU
Shape = tuple[int, int]  # of a step: clients, rows of each
KEPT = 8  # kinds of stacks that stay captured


def find_size(clients: int) -> int:
    """Clients that buffers are made for: a little more, so that similar cohorts share them."""
    step = 1 << max(0, clients.bit_length() - 5)
    return -(-clients // step) * step


def _find_rung(count: int, most: int, rungs: int) -> int:
    """The next of a few numbers up to `most`."""
    rung = max(1, most // rungs)
    return min(most, -(-count // rung) * rung)


class StepBuffers:
    """Buffers for up to `clients` clients of one kind, and their captured steps."""

    def __init__(self, like: Stack, clients: int, aside: bool, mapped: bool) -> None:
        self.recipe: Recipe = like.recipe
        self.mapped = mapped
        self.clients = clients
        self.params = [p.new_zeros(clients, *p.shape[1:]) for p in like.begun]
        self.state = like.job.optim.start(self.params)
        counts = zip(like.held, like.recipe.held, strict=True)
        self.held = [_find_room(t, clients, like.rooms) if n else t.clone() for t, n in counts]
        self.unread: list[Tensor] = []  # of those, what no captured step looks at, where that is known
        self.rows = like.seen[0].shape[1] if like.seen else 0
        self.seen = [t.new_zeros(clients, *t.shape[1:]) for t in like.seen]
        self.room = 1 << (len(like.descent) - 1).bit_length()  # steps
        self.table = Step(*(t.new_zeros(self.room, clients, *t.shape[2:]) for t in like.table))
        self.descent = self.params[0].new_zeros(self.room, clients, 2)
        # The device counts the steps by itself, so that a step is one replay and nothing else.
        self.next, self.count = like.table.pick.new_zeros(1), self.params[0].new_zeros(())
        self.sums: dict[str, Tensor] = {}
        self.steps: dict[Shape, Callable[[int], object]] = {}
        self.scratch: list[torch.UntypedStorage] = []  # what steps on a CPU make goes there, of all in turn
        self.on_gpu = self.params[0].is_cuda
        self.aside = aside and self.on_gpu  # on a stream of its own
        self.stream = torch.cuda.Stream() if self.on_gpu else None
        self.pool = torch.cuda.graph_pool_handle() if self.on_gpu else None

    def fits(self, stack: Stack, clients: int) -> bool:
        """Whether these are buffers for so many of a stack's clients; on a CPU larger ones do as well, and
        asynchronous tasks, of which another number falls due every time, find all their steps captured."""
        rows = stack.seen[0].shape[1] if stack.seen else 0
        wide = self.clients == clients or (self.clients > clients and not self.on_gpu)
        return wide and rows <= self.rows and stack.steps[0] <= self.room

    def prepare(self, stack: Stack, start: int, stop: int, size: int) -> None:
        """Capture the steps that these clients will need, in a piece of this size; before they are loaded."""
        for s in range(int(stack.steps[start])):
            shape = self._shape(stack, start, stop, size, s)
            if shape not in self.steps:
                self.steps[shape] = self._capture(shape)

    def load(self, stack: Stack, start: int, stop: int) -> None:
        """Copy clients in."""
        n = stop - start
        to, source = [p[:n] for p in self.params], [p[start:stop] for p in stack.begun]
        for mine, theirs, counts in zip(self.held, stack.held, self.recipe.held, strict=True):
            if any(mine is t for t in self.unread) or mine.data_ptr() == theirs.data_ptr():
                continue  # nobody looks, or it is there
            to.append(mine[:n] if counts else mine)
            source.append(theirs[start:stop] if counts else theirs)
        for mine, theirs in zip(self.seen, stack.seen, strict=True):
            to.append(mine[:n, : theirs.shape[1]])
            source.append(theirs[start:stop])
        state = [t[: find_size(n)] for row in self.state for t in row]
        fresh = [*state, *self.sums.values(), self.descent, self.count]
        torch._foreach_zero_(fresh)
        self.next.zero_()
        steps = int(stack.steps[start])
        to += [t[:steps, :n] for t in (*self.table, self.descent)]
        source += [t[:steps, start:stop] for t in (*stack.table, stack.descent)]
        _copy(to, source)

    def step(self, stack: Stack, start: int, stop: int, size: int, s: int) -> None:
        """Step s of the clients that were loaded."""
        self.steps[self._shape(stack, start, stop, size, s)](s)

    def make_room(self, stack: Stack) -> None:
        """For what comes of a stack's clients; before any stream writes to it."""
        stack.params = [p.new_empty(len(stack), *p.shape[1:]) for p in self.params]
        stack.sums = {name: total.new_zeros(len(stack)) for name, total in self.sums.items()}

    def unload(self, stack: Stack, start: int, stop: int) -> None:
        """Copy what came of the clients into their stack."""
        to = [*(p[start:stop] for p in stack.params), *(stack.sums[n][start:stop] for n in self.sums)]
        _copy(to, [t[: stop - start] for t in (*self.params, *self.sums.values())])

    def lend(self, stack: Stack) -> None:
        """The whole stack's results without a copy, good until others are loaded."""
        stack.params = [p[: len(stack)] for p in self.params]
        stack.sums = {name: total[: len(stack)] for name, total in self.sums.items()}

    def _shape(self, stack: Stack, start: int, stop: int, size: int, s: int) -> Shape:
        """Of the captured step that does for step s."""
        rows = self.table.pick.shape[2]
        if size == 1 and not self.on_gpu:  # a client by itself needs no rows that don't count
            return 1, _find_rung(stack.filled[s, start], rows, FEW)
        still = stack.count_still(s, start, stop)
        if self.on_gpu:
            return _find_rung(still, size, LADDER), rows
        # Parts of powers of two: sizes have these in common, so batches of ever other sizes find them made.
        part = 1 << max(0, still.bit_length() - 2, size.bit_length() - 3)
        return min(size, -(-still // part) * part), rows

    def _capture(self, shape: Shape) -> Callable[[int], object]:
        """A step of the first clients' first rows, ready to be replayed."""
        k, _ = shape
        self.next.zero_()
        # Libraries choose their kernels, reports get their places, and at first a loss that goes by its
        # numbers is refused: in a captured step they would always be those of today.
        with nullcontext() if self.mapped else refuse_numbers():
            self._advance(k, self._tensors(), mapped=self.mapped and not self.steps)
        self.next.zero_()
        tensors = self._tensors()
        if self.stream is None:
            return self._list_step(shape, tensors)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self._advance(k, tensors)  # once more on the stream that captures
            self.next.zero_()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=self.pool)
            try:
                self._advance(k, tensors)
            finally:
                graph.capture_end()
        return lambda s: graph.replay()  # it counts by itself

    def _list_step(self, shape: Shape, tensors: Tree) -> Callable[[int], object]:
        """The same on a CPU, where every step has its own views of the tables."""
        (k, rows), (flat, rebuild) = shape, split(tensors)
        tables = [
            [t[s, :k, :rows] if t.ndim == 3 else t[s, :k] for t in self.table] + [self.descent[s, :k]]
            for s in range(self.room)
        ]

        def step(*given: Tensor) -> None:
            self._descend(k, rebuild(given), given[len(flat) :])

        bound, reads = trace(step, flat, tables[0], self.scratch)
        before = self.unread if self.steps else self.held
        self.unread = [t for t in before if t.untyped_storage().data_ptr() not in reads]
        made: dict[int, Run] = {}

        def replay(s: int) -> None:
            if s not in made:
                made[s] = bound(tables[s])
            made[s]()

        return replay

    def _tensors(self) -> Tree:
        """All memory that a step works on."""
        counters = self.next, self.count
        return self.params, self.state, self.held, self.seen, self.table, self.descent, counters, self.sums

    def _advance(self, k: int, tensors: Tree, mapped: bool = False) -> None:
        table, descent, (next_step, _) = tensors[4:7]
        now = [t[:, :k].index_select(0, next_step)[0] for t in (*table, descent)]
        next_step.add_(1)
        self._descend(k, tensors, now, mapped)

    def _descend(self, k: int, tensors: Tree, given: Sequence[Tensor], mapped: bool = False) -> None:
        params, state, held, seen, _, _, (_, count), sums = tensors
        *now, rates = given
        count.add_(1)
        rate, there = rates.unbind(1)
        means = self.recipe.descend(
            [p[:k].detach().requires_grad_() for p in params],
            [[t[:k] for t in row] for row in state],
            Step(*now),
            [t[:k] for t in seen],
            [t[:k] if n else t for t, n in zip(held, self.recipe.held, strict=True)],
            rate,
            count,
            mapped,
        )
        for name, mean in means.items():
            if name not in self.sums:
                self.sums[name] = mean.new_zeros(self.clients)
            else:
                sums[name][:k].add_(torch.where(there > 0, mean, 0.0))


class StepCache:
    """Sets of buffers for the kinds of stacks that were met lately."""

    def __init__(self, streams: int, mapped: bool = True) -> None:
        """`mapped`: what can't be mapped over clients is refused, also where they are trained one by one."""
        self.streams, self.mapped = streams, mapped
        self.made: dict[Hashable, list[StepBuffers]] = {}
        self._rooms: dict[Hashable, Rooms] = {}

    def train(self, stack: Stack, width: int) -> None:
        """All steps of a stack, in pieces of `width` clients, one a stream at a time.

        Its results are to be read before another stack is trained: they may be these buffers' own.
        """
        pieces = [(i, min(i + width, len(stack))) for i in range(0, len(stack), width)]
        size = find_size(pieces[0][1])
        sets = self._sets(stack, size, min(self.streams, len(pieces)))
        for first in range(0, len(pieces), len(sets)):
            wave = list(zip(sets, pieces[first : first + len(sets)], strict=False))
            for mine, (start, stop) in wave:
                mine.prepare(stack, start, stop, size)
            if first == 0 and len(pieces) > 1:
                wave[0][0].make_room(stack)
            for mine, (start, stop) in wave:
                with _OnStream(mine, first == 0):
                    mine.load(stack, start, stop)
            for s in range(int(stack.steps[wave[0][1][0]])):
                for mine, (start, stop) in wave:
                    if s < stack.steps[start]:
                        with _OnStream(mine):
                            mine.step(stack, start, stop, size, s)
            for mine, (start, stop) in wave:
                with _OnStream(mine):
                    if len(pieces) == 1:
                        mine.lend(stack)
                    else:
                        mine.unload(stack, start, stop)
        for mine in sets:
            if mine.stream is not None and mine.aside:
                torch.cuda.current_stream().wait_stream(mine.stream)

    def rooms(self, kind: Hashable) -> Rooms:
        """For stacks of a kind that are trained in one piece; others would find their rows written over."""
        self._rooms[kind] = found = self._rooms.pop(kind, {})
        while len(self._rooms) > KEPT:
            del self._rooms[next(iter(self._rooms))]
        return found

    def _sets(self, stack: Stack, clients: int, wanted: int) -> list[StepBuffers]:
        key = stack.recipe.kind, id(stack.pool.x)
        known = self.made.pop(key, [])
        fitting = [r for r in known if r.fits(stack, clients)][:wanted]
        fresh = [
            StepBuffers(stack, clients, self.streams > 1, self.mapped) for _ in range(wanted - len(fitting))
        ]
        self.made[key] = [*fitting, *fresh, *(r for r in known if r not in fitting)][: max(wanted, KEPT)]
        while len(self.made) > KEPT:
            del self.made[next(iter(self.made))]
        return [*fitting, *fresh]


class _OnStream:
    """Work on a set's stream, after what was asked for so far if `wait`."""

    def __init__(self, mine: StepBuffers, wait: bool = False) -> None:
        self.stream, self.wait = mine.stream if mine.aside else None, wait

    def __enter__(self) -> None:
        if self.stream is not None:
            if self.wait:
                self.stream.wait_stream(torch.cuda.current_stream())
            self.context = torch.cuda.stream(self.stream)
            self.context.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.context.__exit__(None, None, None)


def _find_room(like: Tensor, clients: int, rooms: Rooms | None) -> Tensor:
    """Memory for so many clients: what the stack itself was laid into, if it is there."""
    for room in (rooms or {}).values():
        if room.data_ptr() == like.data_ptr() and room.shape[1:] == like.shape[1:] and len(room) >= clients:
            return room[:clients]
    return like.new_zeros(clients, *like.shape[1:])


def _copy(to: list[Tensor], source: list[Tensor]) -> None:
    for dtype in {t.dtype for t in to}:
        pairs = [(t, s) for t, s in zip(to, source, strict=True) if t.dtype == dtype and t.numel()]
        if pairs:
            torch._foreach_copy_([t for t, _ in pairs], [s for _, s in pairs])
