"""What Oort's selection knows of devices: how large their losses were, and how long they take."""

from collections.abc import Sequence
from dataclasses import field
from math import inf, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from potluck.authoring import Claims, Context, JobError, Node, Reply, Spent, Train, value

Floats = NDArray[np.float64]
MOST = 1e30  # of a mean of losses or of their squares: larger ones count as if at it


@value
class Observation:
    """What is known of a device that took part."""

    utility: float  # statistical
    spent: Spent  # seconds of its last task
    last: int  # the round of it


@value(eq=False)
class OortState:
    """What a selector has learnt; nothing of it changes in place, so a cohort that splits may share it."""

    explore: float  # share of a round that goes to devices never heard
    pace: float  # percentile of durations that is preferred
    round: int = 0
    heard: dict[Node, Observation] = field(default_factory=dict)
    asked: dict[Node, tuple[float, bool]] = field(default_factory=dict)  # since when; whether for its score
    gains: tuple[float, ...] = ()  # mean utility, round by round, of those asked for their scores
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of all replies: down, compute, up
    units: tuple[float, float, float] = (0.0, 0.0, 0.0)  # what their devices claimed for it, summed too

    def expect(self, nodes: Sequence[Node], ctx: Context) -> Floats:
        """Seconds [nodes, 3] that devices need by their claims, as the ones heard did; NaN before any was."""
        if not self.heard:
            return np.full((len(nodes), 3), np.nan)
        rates = [s / u if u > 0 else 0.0 for s, u in zip(self.seconds, self.units, strict=True)]
        return stack_claims(ctx.profiles(nodes)) * rates

    def count_rows(self, nodes: Sequence[Node], ctx: Context) -> Floats:
        """What new devices may be worth: rows that they say they have; nobody more before any was heard."""
        return ctx.rows(nodes).astype(np.float64) if self.heard else np.ones(len(nodes))

    def expect_one(self, node: Node, ctx: Context) -> Spent:
        """The same of one device; 0 where nothing is known."""
        return Spent(*(float(s) for s in np.nan_to_num(self.expect([node], ctx)[0])))

    def find_members(self, children: "range | NDArray[np.int64] | Sequence[Node]") -> list[Node]:
        """Who of those heard is still in reach: cohorts change."""
        within = children if isinstance(children, range) else set(np.asarray(children).tolist())
        return [node for node in self.heard if node in within]


def count_rows(reply: Reply) -> float:
    """Rows that a device trained on."""  # |B|
    job = reply.task.job
    most = inf if not isinstance(job, Train) or job.steps is None else job.steps * job.batch
    return min(reply.weight, most)


def measure_utility(reply: Reply) -> float:
    """Oort's: |B| sqrt(mean squared loss)."""
    return count_rows(reply) * sqrt(find_mean(reply, "squares"))


def find_mean(reply: Reply, what: Literal["losses", "squares"]) -> float:
    """Of what a device saw, over its rows; 0 if it has none, or if what it says of them can't be."""
    if reply.weight <= 0:
        return 0.0
    if what not in reply.metrics:
        raise JobError(
            f"device {reply.task.to}: its reply tells no losses, which its selector ranks by: let the "
            "algorithm train with the jobs that its selector makes, or choose another `select`"
        )
    told, rows = reply.metrics[what], reply.metrics["rows"]
    return min(told / rows, MOST) if rows > 0 and 0 <= told < inf else 0.0


def stack_claims(claims: Claims) -> Floats:
    """What seconds down, of computing and up are proportional to [nodes, 3]."""
    return np.stack([1 / claims.down, claims.compute, 1 / claims.up], 1)
