"""How a run is computed: decided once, measured where the experiment leaves it open, pinned in plan.json."""

import gc
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypedDict

import torch

from potluck.core.codec import Json
from potluck.core.errors import error_context, require
from potluck.execute.plan import EXECUTORS, ExecutionPlan, Executor, make_executor
from potluck.execute.tune.autotune import PlanChoice, Wanted, choose
from potluck.execute.tune.cache import Plans, find_path
from potluck.experiment import folder, json_files
from potluck.experiment.launch import hardware
from potluck.experiment.prepare import Setting
from potluck.simulate.trial import Trial

CROWD = 16  # workers a core: each is a process
_FIX = "put the old file back, or run it again"


class Notes(TypedDict):
    """What plan.json tells people; no part of a plan."""

    reason: str
    machine: str


def choose_plan(setting: Setting, sharing: int = 1) -> PlanChoice:
    """How a run is to be computed, and why. Only what it would train first is computed for that, at most.

    `sharing`: so many runs have the device's memory together.
    """
    run = setting.experiment.run
    most = CROWD * hardware.count_cores()
    fix = f"give at most {most}: there are {hardware.count_cores()} cores here"
    with error_context(setting.experiment.source):
        require((run.workers or 1) <= most, "run.workers", run.workers, fix)
    base = ExecutionPlan(workers=run.workers or hardware.count_cores(), dtype=run.dtype, device=run.device)
    base = base if run.chunk is None else replace(base, chunk=run.chunk)
    with error_context(setting.experiment.source):
        fixed = replace(base, executor="loop" if run.executor == "auto" else run.executor)
        make_executor(fixed).close()  # whether it can be had here
    if run.executor in ("loop", "workers"):
        workers = base.workers if run.executor == "workers" else 1
        return PlanChoice(replace(fixed, workers=workers), "as the experiment says")
    executors = EXECUTORS if run.executor == "auto" else (run.executor,)

    def begin(plan: ExecutionPlan, executor: Executor | None) -> Trial:
        return Trial(setting.start_trial(plan, executor))

    wanted = Wanted(base, executors, run.chunk, run.graphs, sharing)
    choice = choose(begin, wanted, Plans(find_path(), hardware.describe_machine()))
    if run.device != "cpu":  # rows and models go there again for the run itself
        gc.collect()
        torch.cuda.empty_cache()
    return choice


def drop_workers(choice: PlanChoice) -> PlanChoice:
    """A choice for one of several runs at a time: without workers of its own, and with the same numbers."""
    plan = choice.plan
    if plan.executor == "workers":
        alone = replace(plan, executor="loop", workers=1)
    elif plan.one_by_one and plan.workers > 1:
        alone = replace(plan, workers=1)  # it doesn't matter who is trained beside whom
    else:
        return choice
    how = "in a loop" if alone.executor == "loop" else "in one process"
    return choice._replace(
        plan=alone, reason=f"{choice.reason}; beside other runs {how}, which computes the same"
    )


def dump_plan(plan: ExecutionPlan, reason: str) -> str:
    """The text of plan.json."""
    return (
        json.dumps({**asdict(plan), "reason": reason, "machine": hardware.describe_machine()}, indent=2)
        + "\n"
    )


def read_plan(run: Path) -> ExecutionPlan:
    """What `dump_plan` wrote into a run's folder."""
    content, path = _read(run), run / folder.PLAN
    own = {key: value for key, value in content.items() if key not in Notes.__required_keys__}
    plan = json_files.make(own, ExecutionPlan, path, _FIX)
    if min(plan.workers, plan.chunk, plan.streams) < 1:
        raise json_files.damaged(path, "workers, chunk and streams should be 1 or more", _FIX)
    return plan


def read_origin(run: Path) -> str:
    """Where a run began, and with which torch."""
    content, path = _read(run), run / folder.PLAN
    return f"{json_files.make(content, Notes, path, _FIX)['machine']}, torch {read_plan(run).torch}"


def _read(run: Path) -> dict[str, Json]:
    return json_files.read_table(run, folder.PLAN, _FIX)


def note_chunk(run: Path, chunk: int) -> None:
    """Write down that stacks had to become smaller, so that a resumed run starts with that."""
    content = _read(run)
    reason = f"{content.get('reason')}; out of memory, hence chunks of {chunk}"
    json_files.write_json(run, folder.PLAN, {**content, "chunk": chunk, "reason": reason})
