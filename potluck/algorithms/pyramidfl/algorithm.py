"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated

import torch

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.oort.selection import Oort
from potluck.algorithms.pyramidfl.device import Thin
from potluck.algorithms.pyramidfl.selection import Pyramid, PyramidState
from potluck.authoring import (
    Average,
    Command,
    Context,
    Factor,
    GlobalState,
    Power,
    Seconds,
    ServerOptim,
    Task,
    Train,
    leaves,
    require,
    value,
)
from potluck.core import keys
from potluck.rules.wrap import AroundRule


@value
class SparseUpdates(AroundRule[GlobalState[PyramidState]]):
    """A rule whose devices send as much of their updates as its selector, a Pyramid, has planned."""

    inner: FedAvg

    def plan(
        self, m: GlobalState[PyramidState], lane: None, ctx: Context
    ) -> tuple[GlobalState[PyramidState], list[Command]]:
        m, commands = self.inner.plan(m, lane, ctx)
        parts, made = m.picks.parts, dict[tuple[int, float], Train]()  # one job for all that do the same
        device = leaves(m.params)[0].device

        def thin(task: Task) -> Task:
            drop, job = parts[task.to].drop if task.to in parts else 0.0, task.job
            if drop == 0 or not isinstance(job, Train):
                return task
            if (id(job), drop) not in made:
                made[id(job), drop] = replace(job, objective=Thin(job.objective, drop))
            mask = torch.tensor(keys.derive(ctx.key, task.to) >> 1, device=device)
            return replace(task, job=made[id(job), drop], send={**task.send, "mask": mask})

        return m, [thin(c) if isinstance(c, Task) else c for c in commands]


def pyramidfl(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    drop_least: Annotated[float, "share that isn't sent of the update that matters most"] = 0.1,
    drop_most: Annotated[float, "and of the one that matters least"] = 0.6,
    more: Annotated[float, "part of the time that fast devices have left which they train on"] = 1.0,
    most: Annotated[float, "times the usual training that this may add"] = 10.0,
    explore: Annotated[float, "share of a round that goes to devices never heard, at first"] = 0.9,
    explore_decay: Annotated[float, "factor on it, every round"] = 0.95,
    explore_least: Annotated[float, "and where it ends"] = 0.2,
    cutoff: Annotated[float, "known ones are drawn above this share of the lowest score that would do"] = 0.7,
    clip: Annotated[float, "utilities above this quantile count as if at it"] = 0.98,
    penalty: Annotated[Power, "how much slowness counts; 0: not at all"] = 2.0,
    pace: Annotated[float, "percentile of durations that is preferred, at first"] = 10.0,
    server: Annotated[ServerOptim, "what becomes of a round's updates"] = Average(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.3,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> SparseUpdates:
    """Oort, with more training for fast devices and smaller updates from those that matter less."""
    require(overcommit >= 1, "overcommit", overcommit, "must be at least 1: the clients themselves")
    rank = Oort(explore, explore_decay, explore_least, 5.0, cutoff, clip, 0.1, penalty, pace)
    select = Pyramid(rank, drop_least, drop_most, more=more, most=most, wait=1 / overcommit)
    return SparseUpdates(FedAvg(clients, local, select, server, overcommit, deadline))
