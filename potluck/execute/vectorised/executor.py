"""Many clients' training in one vectorised call: chunks of them, each trained as one stack.

A chunk that doesn't fit into memory is tried again in halves, and chunks stay that small. What can't be
mapped over clients (a loss that asks for a tensor's value, say) is trained in a loop, which is said once.
"""

import warnings
from collections.abc import Callable, Hashable, Sequence

import torch

from potluck.core.errors import PotluckError
from potluck.core.job import Result, Rows
from potluck.core.trees import form
from potluck.execute.attention import pin_attention
from potluck.execute.captured.buffers import StepCache
from potluck.execute.reference import DrawsTogether, Item, recall, train
from potluck.execute.vectorised.stack import Stack, StackResult
from potluck.models.convolve import use_way

SHARED_OUT = 1024  # chunks in one stack whose chunks are trained side by side
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
        self.unmapped: dict[Hashable, str] = {}  # kinds of jobs that must be trained one by one, and why
        self.tell: Callable[[str], None] = lambda text: warnings.warn(text, stacklevel=4)

    def run(self, items: Sequence[Item]) -> list[Result]:
        results: dict[int, Result] = {}
        for places, done in self.train(items):
            results.update(zip(places, done.split() if isinstance(done, StackResult) else done, strict=True))
        return [results[i] for i in range(len(items))]

    def train(self, items: Sequence[Item]) -> list[tuple[list[int], StackResult | list[Result]]]:
        """What came of items, by their places: stacks aren't taken apart yet."""
        draws = _draw(items)
        alike: dict[Hashable, list[int]] = {}
        jobs = {id(item.job): item.job for item in items}  # mostly one
        shapes = {name: job.shape() for name, job in jobs.items()}
        forms: dict[int, Hashable] = {}  # of trees that many were sent
        for i in sorted(range(len(items)), key=lambda i: -len(draws[i].index)):
            item, trains = items[i], len(draws[i].index) > 0  # no steps, no means of them
            if id(item.at.inbox) not in forms:
                forms[id(item.at.inbox)] = form(item.at.inbox)
            kind = (
                shapes[id(item.job)],
                trains,
                item.at.test is None,
                forms[id(item.at.inbox)],
                form(recall(item)),
            )
            alike.setdefault(kind, []).append(i)
        trained: list[tuple[list[int], StackResult | list[Result]]] = []
        device = items[0].at.pool.x.device if items else torch.device("cpu")
        with use_way(self.conv), pin_attention(device):
            for named, group in alike.items():
                while group:
                    places = group[: self.together]
                    done = self._train(named, [items[i] for i in places], [draws[i] for i in places], places)
                    if done is not None:
                        trained.append((sorted(places), done))
                        group = group[len(places) :]
        return trained

    def close(self) -> None:
        self.replays = None

    @property
    def fell_back(self) -> str:
        return next(iter(self.unmapped.values()), "")

    @property
    def together(self) -> int:
        """Clients in one stack: it is begun and ended as one, also where streams share it out in chunks, or
        clients are trained one by one."""
        return self.chunk * self.pieces

    def _train(
        self, kind: Hashable, items: list[Item], draws: list[Rows], places: list[int]
    ) -> StackResult | list[Result] | None:
        """What came of them by place; None: there was too little memory, and chunks have become smaller."""
        order = sorted(range(len(places)), key=places.__getitem__)
        if kind in self.unmapped:
            return [train(items[i]) for i in order]
        try:
            rooms = self.replays.rooms(kind) if self.replays is not None and self.pieces == 1 else None
            stack = Stack(items, draws, rooms)
            if self.replays is None or not stack.steps[0]:
                stack.train()
            else:
                self.replays.train(stack, min(self.chunk, len(items)))
            return stack.outcome(order)
        except (RuntimeError, NotImplementedError) as error:
            _raise_interrupt(error)
            if not _out_of_memory(error):
                return self._one_by_one(kind, [items[i] for i in order], error)
            if len(items) == 1:
                raise PotluckError(
                    f"device {items[0].at.node}: not enough memory to train even one client: {error}"
                ) from error
        # Outside of the except clause: the error holds on to all that was being computed.
        if self.replays is not None:
            self.replays, self.pieces = StepCache(1), 1  # what was captured takes memory too
        self.chunk = max(1, min(self.chunk, len(items)) // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if self.on_shrink is not None:
            self.on_shrink(self.chunk)
        return None

    def _one_by_one(self, kind: Hashable, items: list[Item], error: Exception) -> list[Result]:
        done = [train(item) for item in items]  # if this fails too, the error isn't the stack's
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        job = type(items[0].job).__name__
        self.unmapped[kind] = why = f"{job} can't be trained as a stack ({first}): one by one instead"
        self.tell(why)
        return done


def _draw(items: Sequence[Item]) -> list[Rows]:
    """What every job draws; all at once if their class can."""
    jobs = [item.job for item in items]
    if jobs and isinstance(jobs[0], DrawsTogether) and all(type(job) is type(jobs[0]) for job in jobs):
        return jobs[0].draw_all(jobs, [item.at for item in items])
    return [item.job.draw(item.at) for item in items]


def _raise_interrupt(error: BaseException) -> None:
    """Ctrl-C in the middle of a map comes out as a failure of torch's, which then can't undo its nesting."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        found = found.__cause__ or found.__context__


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
