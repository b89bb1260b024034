"""Which way of computing is fastest here: list_candidates train the first clients of the run itself.

No way wins everywhere: it depends on the model, on the cohort and on the machine. So they are tried once, and
the choice is pinned in the run's plan.
"""

import datetime
import math
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch

from potluck.core.errors import PotluckError
from potluck.core.job import Result
from potluck.execute.plan import ExecutionPlan, Executor, Loop
from potluck.execute.process import tune_process
from potluck.execute.reference import Item
from potluck.execute.tune.cache import JSON, Plans
from potluck.execute.tune.memory import SHARE, find_chunk, find_near_chunk, measure_largest
from potluck.execute.tune.timing import Sample, measure, shorten
from potluck.execute.vectorised.executor import ONE_BY_ONE
from potluck.models import Model

EVENTS, BATCHES, PATIENCE = 20_000, 20, 2.0  # events, batches of one client, seconds: until clients train
SMALL = 0.01  # seconds of the loop: on a CPU, measuring a smaller batch costs more than most runs gain
CLOSE, EARNEST = 2.0, 0.5  # times the best plan's: worth a run; seconds of that, and before they count
GAIN = 0.9  # a way that takes more than this share of the plainest one's time isn't worth leaving it


class Trial(Protocol):
    """A run that hasn't begun, of which no more than a few seconds are computed."""

    @property
    def tasks(self) -> int: ...  # that have ended
    @property
    def lanes(self) -> int: ...  # that are open: tasks of different ones needn't wait for each other
    def start(self) -> None: ...
    def step(self) -> bool: ...  # one event; False when it is over
    def settle(self) -> None: ...  # wait for all that was begun
    def close(self) -> None: ...


Begin = Callable[[ExecutionPlan, Executor | None], Trial]  # by this executor, or by the plan's own


class PlanChoice(NamedTuple):
    """How a run is to be computed, and why."""

    plan: ExecutionPlan
    reason: str
    fresh: bool = False  # measured just now


@dataclass(frozen=True)
class Wanted:
    """What an experiment leaves open, and what it doesn't."""

    base: ExecutionPlan  # what all plans share; its workers are the most that there may be
    executors: tuple[str, ...]  # to choose from
    chunk: int | None = None  # of every stack, if told
    graphs: bool | None = None  # whether stacks' steps are captured, if told
    sharing: int = 1  # runs that have the device's memory together


def list_candidates(wanted: Wanted, chunks: Sequence[int], convolves: bool) -> list[ExecutionPlan]:
    """The plans that are worth trying, the plainest first."""
    base, ways = wanted.base, ("grouped", "im2col") if convolves else ("grouped",)
    if convolves and base.device != "cpu":
        ways = ("kernels", *ways)
    loop, stack = (replace(base, executor=name, workers=1) for name in ("loop", "stacked"))
    if base.device == "cpu":
        shared = [replace(base, executor="workers")] if base.workers > 1 else []
        # One by one, if that is asked for or there is memory for what comes of so many. Large stacks gain
        # nothing by capturing.
        roomy = wanted.chunk == 1 or max(chunks) >= ONE_BY_ONE
        alone = [replace(stack, graphs=True, chunk=1)] if roomy else []
        stacks = [
            replace(stack, conv=way, graphs=graphs, chunk=chunk)
            for way in ways
            for graphs in ((False,) if convolves else (False, True))
            for chunk in chunks
            if not (graphs and chunk == 1)
        ]
        for plans in (alone, stacks):
            shared += plans
            if base.workers > 1:  # captured ones only: the others lose to plain workers
                shared += [_share_out(plan, base.workers, wanted.chunk) for plan in plans if plan.graphs]
    else:
        shared = [
            replace(stack, conv=way, graphs=graphs, chunk=chunk)
            for way in ways
            for graphs in (False, True)
            for chunk in chunks
        ]
        shared += [replace(stack, graphs=True, streams=count, chunk=1) for count in (8,)]
    fitting = [
        plan
        for plan in shared
        if plan.executor == "workers"
        or (wanted.chunk in (None, plan.chunk) and wanted.graphs in (None, plan.graphs))
    ]
    return [plan for plan in (loop, *fitting) if plan.executor in wanted.executors]


def _share_out(plan: ExecutionPlan, workers: int, chunk: int | None) -> ExecutionPlan:
    """A stack's plan in several processes, which take no more memory together."""
    return replace(plan, workers=workers, chunk=chunk or -(-plan.chunk // workers))


def choose(begin: Begin, wanted: Wanted, known: Plans | None = None) -> PlanChoice:
    """The fastest plan for what a run trains first.

    Where many wait for a device each, the engine's own work counts as well, and whether it has a core for
    itself, so one process and several are compared in short runs.
    """
    first = "loop" if "loop" in wanted.executors else wanted.executors[0]
    plain = replace(wanted.base, executor=first, workers=1)
    catch, loop = Catch(), replace(wanted.base, executor="loop")
    try:
        with _leave_no_trace(wanted.base.device), tune_process(), closing(begin(loop, catch)) as trial:
            items = catch.first_batch(trial)
            if items:
                return _choose(items, wanted, known, begin if trial.lanes > 1 else None)
            return PlanChoice(plain, f"{first}: nothing was trained at first that could be measured")
    except (PotluckError, RuntimeError, MemoryError, OSError) as error:  # the run itself may do without
        return PlanChoice(plain, f"{first}: measuring failed ({shorten(error)})")


# ------------------------------------------------------------------------------------------ what is measure


class _CaughtError(Exception):
    """Ends a run whose first batch is known."""


class Catch:
    """Stands in for an executor and keeps the first batch of several clients, or one of a single one."""

    def __init__(self) -> None:
        self.items: Sequence[Item] = ()
        self.batches = 0

    def run(self, items: Sequence[Item]) -> list[Result]:
        self.items, self.batches = items, self.batches + 1
        if len(items) > 1 or self.batches == BATCHES:
            raise _CaughtError
        return Loop().run(items)

    def close(self) -> None:
        pass

    def first_batch(self, trial: Trial) -> Sequence[Item]:
        """What a run by this executor trains first: several clients, if some train together before long."""
        until = time.monotonic() + PATIENCE
        try:
            trial.start()
            for _ in range(EVENTS):
                if time.monotonic() > until or not trial.step():
                    break
        except _CaughtError:
            pass
        return self.items


def measure_pace(trial: Trial) -> float:
    """How many tasks a run does in a second, after it has warmed up; it is used up."""
    try:
        trial.start()
        for seconds in (EARNEST, EARNEST):
            began, before, on = time.perf_counter(), trial.tasks, True
            while on and time.perf_counter() - began < seconds:
                on = trial.step()
            if not on:
                break
        trial.settle()  # what others have begun takes time as well
        return (trial.tasks - before) / (time.perf_counter() - began)
    finally:
        trial.close()


@contextmanager
def _leave_no_trace(device: str) -> Iterator[None]:
    """No warnings, and all generators as they were before: models and rules of one's own may use them."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    cards = [] if device == "cpu" else list(range(torch.cuda.device_count()))
    try:
        with torch.random.fork_rng(cards), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002


# ------------------------------------------------------------------------------------------------- the choice


def _choose(items: Sequence[Item], wanted: Wanted, known: Plans | None, begin: Begin | None) -> PlanChoice:
    count, device, one = len(items), wanted.base.device, measure_largest(items)
    room = wanted.chunk or find_chunk(one, count, device, SHARE / wanted.sharing)
    near = room if wanted.chunk or device != "cpu" else min(room, find_near_chunk(one, count))
    net = items[0].at.models[items[0].job.model]
    shapes = net.shapes if isinstance(net, Model) else {}
    convolves = any(len(shape) > 2 for shape in shapes.values())
    plans = list_candidates(wanted, [near] if near >= min(room, count) else [near, room], convolves)
    if len(plans) == 1:
        return PlanChoice(plans[0], f"{describe(plans[0])}: there is nothing else to try")
    if count == 1 and device == "cpu" and plans[0].executor == "loop":
        return PlanChoice(plans[0], "loop: clients train one at a time")
    sample = Sample(items)
    about: dict[str, JSON] = {
        "device": device if device == "cpu" else torch.cuda.get_device_name(device),
        "dtype": wanted.base.dtype,
        "executors": [*wanted.executors],
        "workers": wanted.base.workers,
        "chunk": wanted.chunk,
        "graphs": wanted.graphs,
        "job": re.sub(r" at 0x[0-9a-f]+", "", repr(items[0].job.shape())),
        "parameters": {name: list(shape) for name, shape in shapes.items()},
        "row": list(items[0].at.pool.x.shape[1:]),
        "clients": _round(count),
        "steps": _round(sample.total),
        "asynchronous": begin is not None,
        **({"sharing": wanted.sharing} if wanted.sharing > 1 else {}),
    }
    entry = None if known is None else known.find(about)
    plan = None if entry is None else recall_plan(entry, plans)
    if known is not None and entry is not None and plan is not None:
        if wanted.chunk is None and plan.executor == "stacked":
            # Half, where a quarter was asked for: numbers should not change with every megabyte that is free.
            most = find_chunk(one, count, device, 2 * SHARE / wanted.sharing)
            plan = replace(plan, chunk=min(plan.chunk, most))
        return PlanChoice(
            plan, f"{entry.get('reason')} (measured on {entry.get('date')}, from the cache {known.path})"
        )
    choice = _measure(sample, plans, begin)
    if known is not None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        known.add(about, {"plan": asdict(choice.plan), "reason": choice.reason, "date": today})
    return choice


def _measure(sample: Sample, plans: Sequence[ExecutionPlan], begin: Begin | None) -> PlanChoice:
    if plans[0].device == "cpu" and sample.estimate < SMALL:
        loop = f"{len(sample)} clients take about {_say_time(sample.estimate)} in a loop"
        return PlanChoice(plans[0], f"{describe(plans[0])}: too small to measure, {loop}")
    timings = measure(sample, plans)
    best = min(timings, key=lambda t: t.seconds)
    if best.failure:
        raise PotluckError(f"{describe(best.plan)}: {best.failure}")
    if best.seconds > GAIN * timings[0].seconds:
        best = timings[0]
    order = [best, *sorted((t for t in timings if t is not best), key=lambda t: t.seconds)]
    times = ", ".join(f"{describe(t.plan)} {_say_time(t.seconds)}" for t in order if not t.failure)
    failures: dict[str, list[str]] = {}  # mostly all stacks fail for one reason: it is said once
    for t in order:
        if t.failure:
            failures.setdefault(t.failure, []).append(describe(t.plan))
    failed = "".join(f"; {', '.join(plans)}: {why}" for why, plans in failures.items())
    of = "" if sample.enough == len(sample) else f"{sample.enough} of "
    choice = PlanChoice(best.plan, f"measured on {of}{len(sample)} clients: {times}{failed}", True)
    rivals = {t.plan.workers > 1: t.plan for t in order[::-1] if t.seconds < CLOSE * best.seconds}
    return (
        choice if begin is None or len(rivals) < 2 else _run_in_earnest(choice, list(rivals.values()), begin)
    )


def _run_in_earnest(choice: PlanChoice, plans: list[ExecutionPlan], begin: Begin) -> PlanChoice:
    """The plan by which a simulation gets on faster."""
    paces = {plan: measure_pace(begin(plan, None)) for plan in plans}
    rates = ", ".join(f"{describe(plan)} {pace:,.0f}" for plan, pace in paces.items())
    best = max(plans, key=paces.__getitem__)
    return choice._replace(plan=best, reason=f"{choice.reason}; tasks a second of short runs: {rates}")


def recall_plan(entry: Mapping[str, JSON], plans: Sequence[ExecutionPlan]) -> ExecutionPlan | None:
    """The plan of the cache, if it is one that would be tried now; only its chunk may differ."""
    plan = entry.get("plan")
    chunk = plan.get("chunk") if isinstance(plan, dict) else None
    if type(chunk) is not int or chunk < 1:
        return None
    return next((p for p in (replace(p, chunk=chunk) for p in plans) if asdict(p) == plan), None)


def describe(plan: ExecutionPlan) -> str:
    """A plan in words."""
    if plan.executor != "stacked":
        return f"{plan.workers} workers" if plan.executor == "workers" else plan.executor
    parts = [plan.conv] if plan.conv != "grouped" else []
    parts += ["graphs"] if plan.graphs else []
    parts += [f"{plan.streams} streams"] if plan.streams > 1 else []
    where = f" in {plan.workers} workers" if plan.workers > 1 else ""
    parts.append("one by one" if plan.one_by_one else f"chunks of {plan.chunk}")
    return f"stacked{where} ({', '.join(parts)})"


def _round(number: int) -> int:
    """To the nearest power of two: runs that differ by a few clients or rows are of one shape."""
    return 1 << round(math.log2(max(1, number)))


def _say_time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
