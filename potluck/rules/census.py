"""One update of many devices, all trained from the same model: what groups are found in.

Devices are asked in waves of at most `clients`. Those that are offline are waited for, until enough have
answered, nobody is left to ask, or patience ends. One that was asked some times in vain is given up, and so
is one without rows or whose update was refused.
"""

from dataclasses import field, replace

import numpy as np

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.messages import Command, Node, Task, Until, Wake
from potluck.core.rule import Got
from potluck.core.trees import Params
from potluck.jobs.train import Train
from potluck.rules.vectors import Vector, flatten

CENSUS, TRIES = "census", 3


@value(eq=False)
class Census:
    """Who has answered what so far."""

    nodes: list[Node] = field(default_factory=list)
    updates: list[Vector] = field(default_factory=list)
    vain: dict[Node, int] = field(default_factory=dict)  # how often a device was asked in vain
    since: float | None = None  # when the first were asked

    def plan(
        self,
        params: Params,
        job: Train,
        wave: int,
        deadline: float | None,
        patience: float | None,
        ctx: Context,
    ) -> "tuple[Census, list[Command]]":
        """Ask the next ones: nobody, if all who are missing are offline."""
        census, commands = self, list[Command]([Until(deadline)])
        if self.since is None:
            census = replace(self, since=ctx.now)
            commands += [] if patience is None else [Wake(ctx.now + patience, CENSUS)]
        nodes = ctx.sample(wave, {*self.nodes, *self._find_given_up()})
        return census, [*commands, *(Task(n, job, {"params": params}) for n in nodes)]

    def merge(self, got: Got, sketch: int | None = None) -> "Census":
        heard, vain = [r for r in got.replies if r.weight > 0], dict(self.vain)
        vain |= {r.task.to: TRIES for r in got.replies if r.weight <= 0}
        for lost in got.lost:
            if isinstance(lost.what, Task):
                node = lost.what.to
                vain[node] = TRIES if lost.why == "bad" else vain.get(node, 0) + 1
        nodes, updates = [r.task.to for r in heard], [flatten(r.body["delta"], sketch) for r in heard]
        return Census([*self.nodes, *nodes], [*self.updates, *updates], vain, self.since)

    def is_complete(self, enough: int, patience: float | None, ctx: Context) -> bool:
        """Whether to go on with those who have answered."""
        if not self.nodes:
            return False
        late = patience is not None and self.since is not None and ctx.now >= self.since + patience
        return late or len(self.nodes) >= enough or self.is_exhausted(ctx)

    def is_exhausted(self, ctx: Context) -> bool:
        """Whether nobody is left to ask."""
        return len(self.nodes) + len(self._find_given_up()) >= len(ctx.children)

    def rows(self) -> Vector:
        """[devices, numbers of an update]"""
        return np.stack(self.updates)

    def _find_given_up(self) -> list[Node]:
        return [node for node, times in self.vain.items() if times >= TRIES]
