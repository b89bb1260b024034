"""Many clients' training in one vectorised call: chunks of them, each trained as one stack.

A chunk that doesn't fit into memory is tried again in halves, and chunks stay that small. What can't be
mapped over clients is trained one by one: by captured steps where steps are captured and these can be, else
(a loss that asks for a tensor's value, say) in a loop, which is said once.
"""

import warnings
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.core.columns import Draws, Results
from potluck.core.errors import PotluckError
from potluck.core.job import Result, Training
from potluck.core.trees import form
from potluck.execute.attention import pin_attention
from potluck.execute.captured.buffers import StepCache
from potluck.execute.reference import Item, Items, train
from potluck.execute.vectorised.stack import Stack
from potluck.models.convolve import use_way

SHARED_OUT = 1024  # chunks in one stack whose chunks are trained side by side
STREAMS = 8  # side by side, of a GPU's clients that can't be mapped
ONE_BY_ONE = 32  # clients in one stack that are trained one by one: what comes of all of them takes memory


class Stacked:
    """Chunks of clients, each trained as one stack."""

    def __init__(
        self,
        chunk: int,
        conv: str = "grouped",
        graphs: bool = False,
        streams: int = 1,
        on_shrink: Callable[[int], None] | None = None,
    ) -> None:
        self.chunk, self.conv, self.on_shrink = chunk, conv, on_shrink
        self.replays = StepCache(streams) if graphs else None
        self.pieces = SHARED_OUT if graphs and streams > 1 else ONE_BY_ONE if graphs and chunk == 1 else 1
        self.alone: StepCache | None = None  # of clients that are captured one by one
        self.unmapped: dict[Hashable, str] = {}  # kinds of jobs that can't be mapped, and why
        self.looped: dict[Hashable, str] = {}  # of these, those that must be trained in a loop: what is said
        self.tell: Callable[[str], None] = lambda text: warnings.warn(text, stacklevel=4)

    def run(self, items: Sequence[Item]) -> Sequence[Result]:
        if not items:
            return []
        trained = self.train(items)
        stacks = [(places, done) for places, done in trained if isinstance(done, Results)]
        if len(stacks) == len(trained):
            return Results.join(stacks, len(items))
        results: dict[int, Result] = {}
        for places, done in trained:
            results.update(zip(places, done.split() if isinstance(done, Results) else done, strict=True))
        return [results[i] for i in range(len(items))]

    def train(self, items: Sequence[Item]) -> list[tuple[list[int], Results | list[Result]]]:
        """What came of items, by their places: stacks aren't taken apart."""
        given = Items.of(items)
        trained: list[tuple[list[int], Results | list[Result]]] = []
        device = items[0].at.pool.x.device if items else torch.device("cpu")
        with use_way(self.conv), pin_attention(device):
            for shape, some in _group(_find_shapes(given.jobs)):
                same = given if len(some) == len(given) else given.take(some)
                draws = same.draw()
                order = np.argsort(-draws.steps, kind="stable")
                for kind, group in _group(_find_kinds(shape, same, draws, order)):
                    trained += self._train_kind(kind, same, draws, order[group], some)
        return trained

    def _train_kind(
        self, kind: Hashable, items: Items, draws: Draws, group: NDArray[np.intp], places: NDArray[np.intp]
    ) -> list[tuple[list[int], Results | list[Result]]]:
        """A group that can be stacked, most steps first, in chunks; `places`: where the items are of all."""
        trained: list[tuple[list[int], Results | list[Result]]] = []
        while len(group):
            some = group[: self.together]
            done = self._train(kind, items.take(some), draws.take(some), some)
            if done is not None:
                trained.append((places[np.sort(some)].tolist(), done))
                group = group[len(some) :]
        return trained

    def close(self) -> None:
        self.replays = None

    @property
    def fell_back(self) -> str:
        return next(iter(self.looped.values()), "")

    @property
    def together(self) -> int:
        """Clients in one stack: it is begun and ended as one, also where streams share it out in chunks, or
        clients are trained one by one."""
        return self.chunk * self.pieces

    def _train(
        self, kind: Hashable, items: Items, draws: Draws, places: NDArray[np.intp]
    ) -> Results | list[Result] | None:
        """What came of them by place; None: they are to be tried again, in smaller chunks or one by one."""
        order = np.argsort(places, kind="stable")
        if kind in self.looped:
            return [train(items[i]) for i in order]
        alone = kind in self.unmapped
        try:
            rooms = None
            if self.replays is not None and self.pieces == 1 and not alone:
                rooms = self.replays.rooms(kind)
            stack = Stack(items, draws, rooms)
            if self.replays is None or not stack.steps[0]:
                stack.train()
            elif alone:
                self._find_alone(stack).train(stack, 1)
            else:
                self.replays.train(stack, min(self.chunk, len(items)))
            return stack.outcome(order)
        except (RuntimeError, NotImplementedError) as error:
            _raise_interrupt(error)
            if not _out_of_memory(error):
                if not alone:
                    self.unmapped[kind] = str(error).splitlines()[0] if str(error) else type(error).__name__
                    if self.replays is not None:
                        return None  # again, each by itself
                return self._loop(kind, [items[i] for i in order])
            if len(items) == 1:
                raise PotluckError(
                    f"device {items[0].at.node}: not enough memory to train even one client: {error}"
                ) from error
        # Outside of the except clause: the error holds on to all that was being computed.
        if self.replays is not None:
            # What was captured takes memory too.
            self.replays, self.alone, self.pieces = StepCache(1), None, 1
        self.chunk = max(1, min(self.chunk, len(items)) // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if self.on_shrink is not None:
            self.on_shrink(self.chunk)
        return None

    def _find_alone(self, stack: Stack) -> StepCache:
        """For clients that can't be mapped."""
        if self.alone is None:
            self.alone = StepCache(STREAMS if stack.pool.x.is_cuda else 1, mapped=False)
        return self.alone

    def _loop(self, kind: Hashable, items: list[Item]) -> list[Result]:
        done = [train(item) for item in items]  # if this fails too, the error isn't the stack's
        job, first = type(items[0].job).__name__, self.unmapped[kind]
        self.looped[kind] = why = f"{job} can't be trained as a stack ({first}): one by one instead"
        self.tell(why)
        return done


def _find_shapes(jobs: Sequence[Training]) -> list[Hashable]:
    """Each job's shape, the same object for all that are alike: it takes long to hash."""
    made: dict[Hashable, Hashable] = {}
    shapes = {name: job.shape() for name, job in {id(job): job for job in jobs}.items()}  # mostly one
    shapes = {name: made.setdefault(shape, shape) for name, shape in shapes.items()}
    return [shapes[id(job)] for job in jobs]


def _find_kinds(shape: Hashable, items: Items, draws: Draws, order: NDArray[np.intp]) -> list[Hashable]:
    """What must be equal of items that are stacked, in this order; the same object for all that are alike."""
    trains = (draws.steps > 0).tolist()  # no steps, no means of them
    tests, inboxes, keeps = items.at.looked.tests, items.at.inboxes, items.recall()
    forms: dict[int, Hashable] = {}  # of trees that many were sent, or begin with
    kinds: dict[Hashable, Hashable] = {}
    alike: dict[Hashable, Hashable] = {}
    out = []
    for i in order.tolist():
        test, inbox, keep = tests[i], inboxes[i], keeps[i]
        name = trains[i], None if test is None else len(test) > 0, id(inbox), id(keep)
        if name not in kinds:
            for tree in (inbox, keep):
                if id(tree) not in forms:
                    forms[id(tree)] = form(tree)
            kind = shape, *name[:2], forms[id(inbox)], forms[id(keep)]
            kinds[name] = alike.setdefault(kind, kind)
        out.append(kinds[name])
    return out


def _group(names: Sequence[Hashable]) -> list[tuple[Hashable, NDArray[np.intp]]]:
    """Which places have the same name."""
    if all(name is names[0] for name in names):  # mostly
        return [(names[0], np.arange(len(names)))]
    alike: dict[Hashable, list[int]] = {}
    for i, name in enumerate(names):
        alike.setdefault(name, []).append(i)
    return [(name, np.array(some)) for name, some in alike.items()]


def _raise_interrupt(error: BaseException) -> None:
    """Ctrl-C in the middle of a map comes out as a failure of torch's, which then can't undo its nesting."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        found = found.__cause__ or found.__context__


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
