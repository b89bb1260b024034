"""PyramidFL (Li, Zeng, Zhang, Cao 2022, A Fine-grained Client Selection Framework for Efficient FL).

Devices are ranked and drawn as by Oort. Then each is given what suits it: who is faster than the slowest of
the round trains longer meanwhile, and of updates that matter less, by the norm of what their devices sent
last, a larger part isn't sent at all.

Deviations: those of Oort. Entries are dropped one by one, all but a window of a shuffled order that begins
where the server says (8 bytes down); the code drops whole tensors by chance. What is dropped counts as no
change, as in the code. Shares of it come in six steps, so that devices train in batches; the update that
matters least loses exactly `drop_most` (the code stops one rank short). Norms are of the changes that came,
made up for what was dropped (the code subtracts the model from them once more). Only the upload gets shorter
(the code has one time for both ways). As in the code, nothing is dropped or longer in the first round, and a
device never heard drops least.
"""

from dataclasses import replace
from typing import Any, Final

import torch

from potluck import keys
from potluck.aggregate import Average, Oort, Pyramid, ServerOptim
from potluck.algorithms.fedavg import FedAvg
from potluck.codec import value
from potluck.contracts import Context
from potluck.errors import require
from potluck.jobs import Thin, Train
from potluck.messages import Command, Lane, Task
from potluck.trees import leaves

FIDELITY: Final = "authors' code"


@value
class Thinned:
    """A rule whose devices send as much of their updates as its selector, a Pyramid, has planned."""

    inner: Any  # a rule whose state holds the selector's as `picks`, such as FedAvg

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)  # all else is as the inner rule does it

    def plan(self, m: Any, lane: Lane, ctx: Context) -> tuple[Any, list[Command]]:
        m, commands = self.inner.plan(m, lane, ctx)
        parts, made = m.picks.parts, dict[tuple[int, float], Train]()  # one job for all that do the same
        device = leaves(m.params)[0].device

        def thinned(task: Task) -> Task:
            drop, job = parts[task.to].drop if task.to in parts else 0.0, task.job
            if drop == 0 or not isinstance(job, Train):
                return task
            if (id(job), drop) not in made:
                made[id(job), drop] = replace(job, objective=Thin(job.objective, drop))
            mask = torch.tensor(keys.derive(ctx.key, task.to) >> 1, device=device)
            return replace(task, job=made[id(job), drop], send={**task.send, "mask": mask})

        return m, [thinned(c) if isinstance(c, Task) else c for c in commands]

    def resized(self, clients: int, rate: float) -> "Thinned":
        return replace(self, inner=self.inner.resized(clients, rate))


def pyramidfl(
    local: Train = Train(),
    clients: int = 10,  # devices a round
    drop_least: float = 0.1,  # share that isn't sent of the update that matters most
    drop_most: float = 0.6,  # and of the one that matters least
    more: float = 1.0,  # part of the time that fast devices have left which they train on
    most: float = 10.0,  # times the usual training that this may add
    explore: float = 0.9,  # share of a round that goes to devices never heard, at first
    explore_decay: float = 0.98,  # factor on it, every round
    explore_least: float = 0.3,  # and where it ends
    cutoff: float = 0.7,  # known ones are drawn above this share of the lowest score that would do
    clip: float = 0.98,  # utilities above this quantile count as if at it
    penalty: float = 2.0,  # how much slowness counts; 0: not at all
    pace: float = 10.0,  # percentile of durations that is preferred, at first
    server: ServerOptim = Average(),  # what becomes of a round's updates
    overcommit: float = 1.0,  # ask so many times the clients, go on with the first
    deadline: float | None = None,  # seconds
) -> Thinned:
    """Oort, with more training for fast devices and smaller updates from those that matter less."""
    require(overcommit >= 1, "overcommit", overcommit, "must be at least 1: the clients themselves")
    rank = Oort(explore, explore_decay, explore_least, 5.0, cutoff, clip, 0.1, penalty, pace)
    select = Pyramid(rank, drop_least, drop_most, more=more, most=most, wait=1 / overcommit)
    return Thinned(FedAvg(clients, local, select, server, overcommit, deadline))
