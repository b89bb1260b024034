"""What ways of computing a batch of clients take, measured with the real thing and within bounds."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import torch

from potluck.core.errors import PotluckError
from potluck.execute.plan import ExecutionPlan, Executor, StackingExecutor, make_executor
from potluck.execute.reference import Item, train

PART = 1.0  # seconds of the loop: of a batch that takes longer, only some clients are measured
CALLS, LONG = 9, 0.3  # timed calls of a plan; fewer once they have taken so many seconds
SLOWER, SETUP = 3.0, 0.5  # dropped after one call: times the best, beside seconds to fork or to warm up
TIMES, SPARE = 5.0, 4.0  # all together: about so many times the loop, and so many seconds
SPARE_GPU = 20.0  # the same there, where graphs are captured first, which is no sign of being slow


class Timing(NamedTuple):
    """What a plan takes for the whole batch; infinite if it failed or wasn't tried."""

    plan: ExecutionPlan
    seconds: float
    failure: str = ""


class Sample:
    """A batch, and how long a plain loop takes a step of it."""

    def __init__(self, items: Sequence[Item]) -> None:
        steps = [len(item.job.draw(item.at).index) for item in items]
        order = sorted(range(len(items)), key=lambda i: -steps[i])
        self.items, self.steps = [items[i] for i in order], [steps[i] for i in order]
        self.total = max(1, sum(steps))
        self._pace: float | None = None

    def __len__(self) -> int:
        return len(self.items)

    @property
    def pace(self) -> float:
        """Seconds a step, of a client of middle size; its first call is slower than any other."""
        if self._pace is None:
            middle = len(self) // 2
            seconds = _time_call(lambda: train(self.items[middle]))
            if seconds < LONG:
                seconds = _time_call(lambda: train(self.items[middle]))
            self._pace = seconds / max(1, self.steps[middle])
        return self._pace

    @property
    def estimate(self) -> float:
        """Seconds of the loop for all."""
        return self.pace * self.total

    @property
    def enough(self) -> int:
        """Clients that tell how a plan does, unless it must have more."""
        return min(len(self), int(PART / self.estimate * len(self)) + 1)

    def part(self, least: int) -> tuple[list[Item], float]:
        """Large and small clients in the same proportion, and by how much the whole takes longer."""
        count = min(len(self), max(least, self.enough))
        places = [i * len(self) // count for i in range(count)]
        return [self.items[i] for i in places], self.total / max(1, sum(self.steps[i] for i in places))


def measure(sample: Sample, plans: Sequence[ExecutionPlan]) -> list[Timing]:
    """What every plan takes, in their order."""
    spare = SPARE if plans[0].device == "cpu" else SPARE_GPU
    until = time.perf_counter() + spare + TIMES * min(PART, sample.estimate)
    timings: list[Timing] = []
    for plan in plans:
        if time.perf_counter() > until:
            timings.append(Timing(plan, math.inf, "time was up"))
            continue
        best = min((t.seconds for t in timings), default=math.inf)
        timings.append(_time_plan(plan, *sample.part(_find_least(plan, len(sample))), best, until))
    return timings


def _find_least(plan: ExecutionPlan, count: int) -> int:
    """Fewer clients than this would tell nothing about a plan."""
    if plan.executor == "stacked":
        return 8 * plan.workers if plan.device == "cpu" else count  # a GPU's stacks live on numbers
    return 4 * plan.workers if plan.executor == "workers" else 1


def _time_plan(plan: ExecutionPlan, items: list[Item], scale: float, best: float, until: float) -> Timing:
    executor: Executor | None = None
    try:
        executor = ready = make_executor(plan)

        def call() -> float:
            return _time_call(lambda: ready.run(items), plan.device)

        first, taken = call(), []
        if isinstance(executor, StackingExecutor) and executor.fell_back:
            return Timing(plan, math.inf, executor.fell_back)
        if plan.graphs or scale * (first - SETUP) <= SLOWER * best:
            taken = [call()]
            while len(taken) < CALLS and sum(taken) < LONG and time.perf_counter() < until:
                taken.append(call())
        chunk = executor.chunk if isinstance(executor, StackingExecutor) else plan.chunk
        return Timing(replace(plan, chunk=chunk), scale * median(taken or [first]))
    except Exception as error:  # a job that can't be stacked may raise anything; so memory that isn't there
        expected = isinstance(error, PotluckError | RuntimeError | ValueError | MemoryError)
        if plan.executor == "loop" and not expected:
            raise  # it is the job's own mistake: every other way would make it too
        return Timing(plan, math.inf, shorten(error))
    finally:
        if executor is not None:
            executor.close()
        if plan.device != "cpu":
            torch.cuda.empty_cache()


def _time_call(call: Callable[[], object], device: str = "cpu") -> float:
    began = time.perf_counter()
    call()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def shorten(error: Exception) -> str:
    """An error in a part of a line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:100]}{'...' * (len(text) > 100)}"
