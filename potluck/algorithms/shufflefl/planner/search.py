"""Planning by search among whole rows: one row at a time, first under a softened objective, then exactly.

The worst device alone decides what a plan is worth, so most single moves change nothing and a plain search
stops early. A softened maximum lets all devices count a little; it hardens stage by stage until the objective
is the true one. Relaxing rows to parts of rows, as the paper's solver does, is no way round: it empties slow
devices down to a fifth of a row of perfect balance, which no rounding can keep.
"""

from collections.abc import Iterator
from typing import Annotated

import numpy as np

from potluck.algorithms.shufflefl.planner.fill import deal_rows
from potluck.algorithms.shufflefl.planner.problem import Ints, Problem, Solution, stay, worth
from potluck.algorithms.shufflefl.planner.walk import Walk
from potluck.authoring import Factor, Repeats, part, require, value
from potluck.core import keys


@part("planner")
@value
class Search:
    """Annealed local search over whole rows; only its kicks are random, by key."""

    first: Annotated[float, "hardness of the first stage: the softening is the worst value over this"] = 2.0
    growth: Annotated[Factor, "from stage to stage"] = 1.4
    last: Annotated[float, "hardness at which stages end"] = 2000.0
    again: Annotated[float, "hardness at which the best plan of all starts is softened once more"] = 20.0
    compiled: Annotated[bool, "by numba, an extra: faster, and now and then another plan"] = False
    kicks: Annotated[
        Repeats, "times that some of the best plan's rows are thrown anywhere, to search on from there"
    ] = 0

    def __post_init__(self) -> None:
        require(self.first > 0, "first", self.first, "give a hardness above 0, such as 2")
        fix = "stages must harden: give 1.01 or more, such as 1.4"
        require(self.growth >= 1.01, "growth", self.growth, fix)
        require(self.last >= self.first, "last", self.last, f"give at least first = {self.first:g}")
        require(self.again > 0, "again", self.again, "give a hardness above 0, such as 20")
        require(self.kicks >= 0, "kicks", self.kicks, "give 0 or more")

    def solve(self, problem: Problem, key: int) -> Solution:
        at = Walk(problem, stay(problem.counts), self.compiled)
        if problem.devices == 1 or not problem.counts.any():
            return at.solution()
        at.anneal(self._stages(self.first))
        at.restart(deal_rows(problem))
        at.anneal(self._stages(self.first))
        if problem.fixed is not None:
            at.restart(empty_some(problem))
            at.anneal(self._stages(self.first))
        at.restart(at.best)
        at.anneal(self._stages(self.again))
        for kick in range(self.kicks):
            at.restart(kick_plan(at.best, keys.derive(key, kick)))
            at.anneal(self._stages(self.again))
        return at.solution()

    def polish(self, problem: Problem, plan: Ints) -> Solution:
        """The best plan on the way from a given one."""
        at = Walk(problem, stay(problem.counts), self.compiled)
        if problem.devices > 1:
            at.restart(plan)
            at.anneal(self._stages(self.again))
        return at.solution()

    def _stages(self, hard: float) -> Iterator[float]:
        while hard <= self.last:
            yield hard
            hard *= self.growth


def empty_some(problem: Problem) -> Ints:
    """Rows dealt to the fastest devices alone: the best such plan, for single rows don't empty a device.

    The slowest are those that would take longest with an equal part of the rows.
    """
    part = problem.counts.sum() / problem.devices
    slowest = np.argsort(-(problem.work * part + np.asarray(problem.fixed)), kind="stable")
    plans = [deal_rows(problem, slowest[:k]) for k in range(1, problem.devices)]
    return min(plans, key=lambda plan: worth(problem, plan))


def kick_plan(plan: Ints, key: int) -> Ints:
    """A plan with a twentieth of its rows, at least two, thrown anywhere."""
    rng, rows, devices = keys.generator(key), int(plan.sum()), len(plan)
    count = min(rows, max(2, rows // 20))
    drawn = rng.multivariate_hypergeometric(plan.ravel(), count).reshape(plan.shape)
    thrown: Ints = rng.multinomial(drawn.sum(-1), np.full(devices, 1 / devices))
    return plan - drawn + thrown
