"""PyramidFL's selection: Oort's ranking of devices, and what each of those chosen is to do.

A round lasts as long as its slowest device needs. Faster ones have time left, which they use for more local
training. And of an update that matters less, by the norm of what its device sent last, a larger part is
dropped before it travels. `Pyramid` plans both. The jobs that it makes are longer already; dropping is up to
the rule (see `algorithms.pyramidfl`), since device and server have to agree on what is dropped.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from math import ceil, inf, sqrt
from typing import Annotated

import numpy as np

from potluck.algorithms.oort.selection import Oort
from potluck.algorithms.oort.state import Floats, OortState, count_rows
from potluck.algorithms.pyramidfl.device import Thin
from potluck.authoring import Context, Few, Got, Node, Reply, Spent, Tally, Train, part, require, value
from potluck.rules.vectors import length


@value(name="pyramidfl.Part")
class Part:
    """What a device of this round does besides the usual."""

    drop: float  # share of its update that doesn't travel
    spare: float  # time that it has left, in multiples of its usual training


@value(eq=False)
class PyramidState:
    """What is known of devices, and the plan for those that were chosen last."""

    known: OortState
    norms: dict[Node, float] = field(default_factory=dict)  # rows x length of the last update
    parts: dict[Node, Part] = field(default_factory=dict)


@part("select")
@value
class Pyramid:
    """Chooses as Oort does, gives fast devices more to do and says what part of an update to drop."""

    rank: Annotated[Oort, "how devices are ranked"] = Oort(
        explore_decay=0.95, explore_least=0.2, cutoff=0.7, clip=0.98, pace=10.0
    )
    drop_least: Annotated[float, "of the update that matters most"] = 0.1
    drop_most: Annotated[float, "and of the one that matters least"] = 0.6
    levels: Annotated[Few, "different shares in between: devices with the same one train in one batch"] = 6
    more: Annotated[float, "part of the time left that is used for training"] = 1.0
    most: Annotated[float, "times the usual training that may be added"] = 10.0
    wait: Annotated[float, "part of the chosen devices that a round waits for"] = 1.0

    def __post_init__(self) -> None:
        least, most = self.drop_least, self.drop_most
        require(0 <= least < 1, "drop_least", least, "must be at least 0 and below 1, such as 0.1")
        require(least <= most < 1, "drop_most", most, f"must be below 1 and no less than drop_least, {least}")
        require(self.levels >= 1, "levels", self.levels, "must be at least 1, such as 6")
        require(0 <= self.more <= 1, "more", self.more, "must be from 0 to 1; 0: usual training for all")
        require(0 <= self.most < inf, "most", self.most, "must be 0 or more, such as 10")
        require(0 < self.wait <= 1, "wait", self.wait, "must be above 0 and at most 1: 1 / overcommit")

    def start(self) -> PyramidState:
        return PyramidState(self.rank.start())

    def pick(self, picks: PyramidState, count: int, ctx: Context) -> tuple[list[Node], PyramidState]:
        nodes, known = self.rank.pick(picks.known, count, ctx)
        if not nodes:
            return nodes, picks
        if not known.heard:  # nothing to plan with yet
            return nodes, replace(picks, known=known, parts={})
        times = known.expect(nodes, ctx)
        for i, node in enumerate(nodes):
            if node in known.heard:
                spent = known.heard[node].spent
                times[i] = spent.down, spent.compute, spent.up
        drops = self.drops([picks.norms.get(n, inf) for n in nodes])  # one never heard may matter most
        spare = self.spare(times, drops)
        parts = {n: Part(float(d), float(s)) for n, d, s in zip(nodes, drops, spare, strict=True)}
        return nodes, replace(picks, known=known, parts=parts)

    def jobs(self, local: Train, nodes: list[Node], picks: PyramidState) -> list[Train]:
        usual = local.epochs if local.steps is None else local.steps
        tallied = replace(local, objective=Tally(local.objective, usual))
        spares = [picks.parts[n].spare if n in picks.parts else 0.0 for n in nodes]
        lengths, made = [self.lengthen(usual, s) for s in spares], dict[int, Train]()
        for n in lengths:  # one job for all that do the same
            if n not in made:
                whole = local.steps is None
                made[n] = replace(tallied, epochs=n) if whole else replace(tallied, steps=n)
        return [made[n] for n in lengths]

    def learn(self, picks: PyramidState, got: Got, ctx: Context) -> PyramidState:
        replies = got.replies
        latency = ctx.profiles([r.task.to for r in replies]).latency if replies else ()
        usual = [replace(r, spent=_find_usual(r, float(a))) for r, a in zip(replies, latency, strict=True)]
        norms = {
            r.task.to: count_rows(r) * length(r.body["delta"]) / sqrt(1 - _find_drop(r)) for r in replies
        }
        known = self.rank.learn(picks.known, Got(usual, got.lost), ctx)
        return replace(picks, known=known, norms=picks.norms | norms)

    # ---------------------------------------------------------------------------------------------- formulas

    def drops(self, norms: Sequence[float]) -> Floats:
        """The share of each update that is dropped: by rank, from the most important to the least."""
        table = np.array(norms)
        rank = (table[None] > table[:, None]).sum(1)  # equals have equal ranks
        last = self.levels - 1
        level = np.round(rank / max(1, len(table) - 1) * last)
        return np.asarray(self.drop_least + (self.drop_most - self.drop_least) * level / max(1, last))

    def spare(self, times: Floats, drops: Floats) -> Floats:
        """Of seconds down, computing and up [devices, 3]: the time left, in multiples of the computing."""
        down, compute, up = times.T
        ends = down + compute + up * (1 - drops)
        close = np.sort(ends)[ceil(self.wait * len(ends) - 1e-9) - 1]  # the end of the round
        left = np.maximum(close - ends, 0)
        return np.asarray(np.divide(left, compute, out=np.zeros(len(ends)), where=compute > 0))

    def lengthen(self, usual: int, spare: float) -> int:
        """Epochs (or steps) of a device that has some time left: whole ones, as many as fit."""
        whole = int(spare * usual + 1e-9)
        return usual + int(min(self.most * usual, self.more * whole) + 1e-9)


def _find_usual(reply: Reply, latency: float) -> Spent:
    """What a task would have taken had it been neither longer nor its update thinner."""
    job, spent = reply.task.job, reply.spent
    if not isinstance(job, Train):
        return spent
    objective = job.objective.inner if isinstance(job.objective, Thin) else job.objective
    usual = objective.usual if isinstance(objective, Tally) else None
    did = job.epochs if job.steps is None else job.steps
    compute = spent.compute * usual / did if usual else spent.compute
    up = latency + (spent.up - latency) / (1 - _find_drop(reply)) if spent.up > latency else spent.up
    return Spent(spent.down, compute, up)


def _find_drop(reply: Reply) -> float:
    job = reply.task.job
    return job.objective.drop if isinstance(job, Train) and isinstance(job.objective, Thin) else 0.0
