"""Executors: how a batch of training jobs is computed. What comes out is the same; how fast is not.

The plan (which executor, how many workers, how large a chunk) is chosen once, pinned in the run folder and
used again on resume, since stacked arithmetic depends on what is stacked with what.
"""

import os
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch

from potluck.core.codec import value
from potluck.core.errors import ConfigError, nearest
from potluck.core.job import Result
from potluck.execute.reference import Item, train

EXECUTORS = ("loop", "workers", "stacked")


@value
class ExecutionPlan:
    """How a run computes; the same plan on the same machine and torch gives the same bytes."""

    executor: str = "loop"
    workers: int = 1  # processes, of one thread each; those of "stacked" train a stack each
    chunk: int = 64  # clients in one stack
    dtype: str = "float32"
    device: str = "cpu"  # or "cuda"
    conv: str = "grouped"  # how a stack's convolutions are computed: "grouped" or "im2col"
    graphs: bool = False  # a stack's steps are captured once and replayed
    streams: int = 1  # stacks that train side by side (GPU, with graphs)
    torch: str = str(torch.__version__)

    @property
    def one_by_one(self) -> bool:
        """Whether a stack's clients are trained one after another, by captured steps."""
        return self.executor == "stacked" and self.graphs and self.chunk == self.streams == 1


class Executor(Protocol):
    """Runs training jobs of one shape; results come in the order of the items."""

    def run(self, items: Sequence[Item]) -> Sequence[Result]: ...
    def close(self) -> None: ...


@runtime_checkable
class ParallelExecutor(Executor, Protocol):
    """One with processes of its own: jobs can be handed out, and their results waited for later."""

    count: int  # processes

    def begin(self, items: Sequence[Item], ahead: bool) -> Callable[[], Sequence[Result]]: ...


@runtime_checkable
class StackingExecutor(Executor, Protocol):
    """One that trains clients as stacks, as far as memory and their jobs let it."""

    @property
    def chunk(self) -> int: ...  # clients in one stack, after what didn't fit
    @property
    def fell_back(self) -> str: ...  # why some job had to be trained one by one; "" if none had to be


class Loop:
    """One after the other, in this process."""

    def run(self, items: Sequence[Item]) -> list[Result]:
        return [train(item) for item in items]

    def close(self) -> None:
        pass


def make_executor(plan: ExecutionPlan, on_shrink: Callable[[int], None] | None = None) -> Executor:
    """The executor that a plan names; `on_shrink` is told when stacks must become smaller to fit."""
    if plan.device != "cpu":
        if not torch.cuda.is_available():
            raise ConfigError(f"run.device = {plan.device!r}: torch sees no GPU here; write 'cpu'")
        if plan.executor == "workers":
            raise ConfigError(
                f"run.executor = 'workers' with run.device = {plan.device!r}: forked processes can't share a "
                "GPU; write 'stacked' or 'loop'"
            )
    if plan.executor == "loop":
        return Loop()
    if plan.executor == "workers":
        from potluck.execute.pool.processes import Workers

        return Workers(plan.workers or os.cpu_count() or 1)
    if plan.executor == "stacked":
        from potluck.execute.vectorised.executor import Stacked

        if plan.workers > 1 and plan.device == "cpu":
            from potluck.execute.pool.stacks import StackedWorkers

            return StackedWorkers(plan.workers, Stacked(plan.chunk, plan.conv, plan.graphs), on_shrink)
        return Stacked(plan.chunk, plan.conv, plan.graphs, plan.streams, on_shrink)
    raise ConfigError(
        f"run.executor = {plan.executor!r}: no such executor; {nearest(plan.executor, EXECUTORS)}"
    )
