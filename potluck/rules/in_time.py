"""As much training as a device has time for before a deadline: who is slow does less, and it counts.

The server plans with what it can know. A device never heard takes what it claims, for the link and for each
row. One that answered takes what it took: an estimate rises to a longer time at once and comes half-way
down to a shorter one, since times vary and to be late costs all of the work. One that was late all the same
is asked for half as many batches next time.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from math import ceil
from typing import Generic

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.messages import Node, Reply
from potluck.core.rule import Got
from potluck.fleet import TRAINING_FACTOR, compute_seconds, slow_by_swapping, transfer_seconds
from potluck.jobs.sampling import AtMost, count_batches, count_passes
from potluck.jobs.train import Train
from potluck.models.footprint import training_bytes
from potluck.rules.select import Picks, Select

EVEN = 1e-9  # rounding must not make a task late that ends with the deadline


@value
class Pace:
    """Seconds that a device takes."""

    link: float  # for the model, down and up
    row: float  # for training on a row, once
    rows: int = 0  # that it has; 0: isn't known yet


@value(eq=False)
class InTimeState(Generic[Picks]):
    """What a selector remembers, and what is known of devices' times."""

    picks: Picks  # of the selector within
    paces: dict[Node, Pace] = field(default_factory=dict)  # of those that were asked
    batches: dict[Node, int] = field(default_factory=dict)  # of those chosen last: that fit
    since: float = 0.0  # when they were chosen


@value
class InTime(Generic[Picks]):
    """Chooses as another selector does, and asks each device for the batches that it has time for.

    At least one batch, and no more than the training that the selector within asks for.
    """

    select: Select[Picks]
    local: Train
    deadline: float  # seconds

    def start(self) -> InTimeState[Picks]:
        return InTimeState(self.select.start())

    def pick(
        self, picks: InTimeState[Picks], count: int, ctx: Context
    ) -> tuple[list[Node], InTimeState[Picks]]:
        nodes, inner = self.select.pick(picks.picks, count, ctx)
        fresh = [n for n in nodes if n not in picks.paces]
        paces = picks.paces | dict(zip(fresh, self.read_claims(fresh, ctx), strict=True))
        batches = {n: self.count_batches(paces[n]) for n in nodes}
        return nodes, InTimeState(inner, paces, batches, ctx.now)

    def jobs(self, local: Train, nodes: list[Node], picks: InTimeState[Picks]) -> list[Train]:
        usual, made = self.select.jobs(local, nodes, picks.picks), dict[tuple[int, int], Train]()
        asked = [(id(job), picks.batches[n]) for job, n in zip(usual, nodes, strict=True)]
        for job, key in zip(usual, asked, strict=True):  # one job for all that do the same
            if key not in made:
                made[key] = replace(job, sampler=AtMost(job.sampler, key[1]))
        return [made[key] for key in asked]

    def learn(self, picks: InTimeState[Picks], got: Got, ctx: Context) -> InTimeState[Picks]:
        paces = picks.paces.copy()
        for reply in got.replies:
            job = reply.task.job
            if isinstance(job, Train) and reply.task.to in paces:
                paces[reply.task.to] = learn_pace(paces[reply.task.to], job, reply)
        if ctx.now - picks.since >= self.deadline * (1 - EVEN):  # else enough others were faster
            for task in got.find_lost("late"):
                if picks.batches.get(task.to, 1) > 1:
                    paces[task.to] = replace(paces[task.to], row=2 * paces[task.to].row)
        return replace(picks, picks=self.select.learn(picks.picks, got, ctx), paces=paces)

    # ---------------------------------------------------------------------------------------------- formulas

    def read_claims(self, nodes: Sequence[Node], ctx: Context) -> list[Pace]:
        """What devices need by what they say of themselves."""
        if not nodes:
            return []
        claims, net, job = ctx.profiles(nodes), ctx.models[self.local.model], self.local
        needs = max(job.needs, training_bytes(net, job.optim, job.batch))
        down, up = (transfer_seconds(net.nbytes, rate, claims.latency) for rate in (claims.down, claims.up))
        rows = compute_seconds(TRAINING_FACTOR * net.ops, claims.compute)
        return [
            Pace(float(link), float(row) * slow_by_swapping(needs, float(memory)))
            for link, row, memory in zip(down + up, rows, claims.memory, strict=True)
        ]

    def count_batches(self, pace: Pace) -> int:
        """That end before the deadline; one at least, for a device that does nothing isn't heard."""
        fit = ceil((self.deadline - pace.link) / pace.row - EVEN) - 1
        return max(1, count_batches(max(0, fit), pace.rows, self.local.batch))


def learn_pace(pace: Pace, job: Train, reply: Reply) -> Pace:
    """A device's times after a task that took `reply.spent`."""
    spent, rows, row = reply.spent, int(reply.weight), pace.row
    most = job.sampler.batches if isinstance(job.sampler, AtMost) else job.steps
    seen = min(count_passes(rows, job.batch, job.epochs, n) for n in (job.steps, most))
    if seen:
        row = _learn(row, spent.compute / seen)
    return Pace(_learn(pace.link, spent.down + spent.up), row, rows)


def _learn(before: float, now: float) -> float:
    return max(now, (before + now) / 2)
