"""The paper's way to plan: shares of rows instead of whole ones, by sequential least squares (SLSQP).

The paper says no more than that, so two forms stand here. `printed` minimises the objective as it is, with
gradients by differences: what scipy does with a function and nothing else. `smooth` replaces both maxima by
variables that no device may exceed, with exact gradients. Rounded plans may be far worse than what was
relaxed; `polish` searches on from them.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from scipy.optimize import minimize

from potluck.algorithms.shufflefl.planner.fill import deal_rows
from potluck.algorithms.shufflefl.planner.problem import (
    Floats,
    Ints,
    Problem,
    Solution,
    choose_better,
    count_held,
    imbalance,
    latency,
    stay,
)
from potluck.algorithms.shufflefl.planner.problem import worth as worth_of
from potluck.algorithms.shufflefl.planner.rounding import round_rows
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.authoring import Few, Many, part, require, value
from potluck.core import keys


@part("planner")
@value
class Slsqp:
    """SLSQP over shares of rows, rounded; the best of its starts, and never worse than to stay.

    It relaxes without `Problem.fixed`, which has no slope; rounded plans are judged with it.
    Starts are half to stay and half anywhere, then the plan of `Fill`, then shares drawn by key.
    """

    form: Annotated[Literal["printed", "smooth"], "the objective as printed, or with smooth maxima"] = (
        "printed"
    )
    starts: Annotated[Few, "plans to begin with"] = 1
    most: Annotated[Many, "iterations of each"] = 200
    close: Annotated[float, "change of the objective, relative to staying, at which it ends"] = 1e-6
    polish: Annotated[Search | None, "a search that goes on from the rounded plan"] = None

    def __post_init__(self) -> None:
        require(self.form in ("printed", "smooth"), "form", self.form, "choose printed or smooth")
        require(self.starts >= 1, "starts", self.starts, "give at least 1")
        require(self.most >= 1, "most", self.most, "give at least 1 iteration")
        require(self.close > 0, "close", self.close, "give more than 0, such as 1e-6")

    def solve(self, problem: Problem, key: int) -> Solution:
        best = choose_better(problem, stay(problem.counts), 0)
        if problem.devices == 1 or not problem.counts.any():
            return best
        shares, steps, done = Shares(replace(problem, fixed=None)), 0, True
        for start in self._list_starts(problem, shares, key):
            ended, looked, good = self._descend(shares, start)
            found = choose_better(problem, shares.whole(ended), looked, good)
            if self.polish is not None:
                polished = self.polish.polish(problem, found.plan)
                found = Solution(polished.plan, polished.worth, looked + polished.steps, good)
            steps, done = steps + found.steps, done and found.done
            if found.worth < best.worth:
                best = found
        return Solution(best.plan, best.worth, steps, done)

    def _list_starts(self, problem: Problem, shares: "Shares", key: int) -> Iterator[Floats]:
        yield (shares.of(stay(problem.counts)) + 1 / problem.devices) / 2
        for start in range(1, self.starts):
            if start == 1:
                yield shares.of(deal_rows(problem))
            else:
                rng = keys.generator(keys.derive(key, start))
                yield rng.dirichlet(np.ones(problem.devices), len(shares.rows))

    def _descend(self, shares: "Shares", start: Floats) -> tuple[Floats, int, bool]:
        """Shares at the end, the plans looked at, and whether SLSQP says that it is done."""
        count, n = start.size, start.shape[1]
        looked = 0

        def plain(x: Floats) -> float:
            nonlocal looked
            looked += 1
            return shares.worth(x[:count].reshape(-1, n))

        whole = np.kron(np.eye(len(start)), np.ones(n))  # [rows, shares]: those of a row add up to 1
        options = {"maxiter": self.most, "ftol": self.close}
        if self.form == "printed":
            rows = {"type": "eq", "fun": lambda x: whole @ x - 1, "jac": lambda x: whole}
            bounds = [(0, 1)] * count
            got = minimize(
                plain, start.ravel(), bounds=bounds, constraints=[rows], method="SLSQP", options=options
            )
        else:
            whole = np.hstack([whole, np.zeros((len(whole), 2))])
            rows = {"type": "eq", "fun": lambda x: whole @ x - 1, "jac": lambda x: whole}
            under = {"type": "ineq", "fun": shares.room, "jac": shares.room_slope}
            first = np.concatenate([start.ravel(), shares.tops(start)])
            wide = [(0, 1)] * count + [(0, None)] * 2

            def lift(x: Floats) -> tuple[float, Floats]:
                nonlocal looked
                looked += 1
                return shares.lift(x)

            got = minimize(
                lift, first, jac=True, bounds=wide, constraints=[rows, under], method="SLSQP", options=options
            )
        ended = np.asarray(got.x[:count]).reshape(-1, n)
        if not np.isfinite(ended).all():
            return start, looked, False
        return ended, looked, bool(got.success)


class Shares:
    """A problem in shares: of the rows of a device and class that go to each device, where there are rows."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rows = np.argwhere(problem.counts > 0)  # (from, class)
        self.sizes = problem.counts[tuple(self.rows.T)].astype(np.float64)
        self.scale = worth_of(problem, stay(problem.counts))  # of seconds, so that `close` fits any problem
        n = problem.devices
        took = np.zeros((n, len(self.rows), n))  # [device, row, to]
        for row, (source, _) in enumerate(self.rows):
            took[np.arange(n), row, np.arange(n)] += problem.work + problem.path[source]
            took[source, row] += problem.path[source]
        self.took = (took * self.sizes[:, None]).reshape(n, -1)

    def of(self, plan: Ints) -> Floats:
        return np.asarray(plan[self.rows[:, 0], self.rows[:, 1]] / self.sizes[:, None])

    def plan(self, shares: Floats) -> Floats:
        plan = np.zeros((self.problem.devices, self.problem.classes, self.problem.devices))
        plan[self.rows[:, 0], self.rows[:, 1]] = shares * self.sizes[:, None]
        return plan

    def whole(self, shares: Floats) -> Ints:
        return round_rows(self.plan(shares), self.problem.counts)

    def worth(self, shares: Floats) -> float:
        # Differences may step outside of what the bounds allow.
        return worth_of(self.problem, np.maximum(self.plan(shares), 0.0)) / self.scale

    # ------------------------------------------------------------------- variables: shares, slowest, worst

    def tops(self, shares: Floats) -> Floats:
        """Where the two maxima stand, both in units of what staying is worth."""
        plan = self.plan(shares)
        far = imbalance(count_held(plan), self.problem.wanted).max()
        return np.array([latency(self.problem, plan).max(), self.problem.alpha * far]) / self.scale

    def lift(self, x: Floats) -> tuple[float, Floats]:
        took, slope = self.took @ x[:-2] / self.scale, np.zeros(len(x))
        slope[-2:] = 1.0
        spread = 0.0
        if self.problem.spread:
            off = took - took.mean()
            spread = float(np.sqrt((off**2).mean() + 1e-12))
            slope[:-2] = off @ self.took / self.scale / (len(off) * spread)
        return float(x[-2] + spread + x[-1]), slope

    def room(self, x: Floats) -> Floats:
        """[2 devices]: how far below the two maxima the devices are."""
        has = count_held(np.maximum(self.plan(x[:-2].reshape(len(self.rows), -1)), 0.0))
        far = self.problem.alpha * imbalance(has, self.problem.wanted) / self.scale
        return np.concatenate([x[-2] - self.took @ x[:-2] / self.scale, x[-1] - far])

    def room_slope(self, x: Floats) -> Floats:
        n, wanted = self.problem.devices, self.problem.wanted
        has = np.maximum(count_held(self.plan(x[:-2].reshape(len(self.rows), -1))), 1e-9)
        total = has.sum(1, keepdims=True)
        shares = has / total
        slope = np.log(2 * shares / (shares + wanted)) / 2
        slope = (slope - (shares * slope).sum(1, keepdims=True)) / total  # [device, class], per row
        out = np.zeros((2 * n, len(x)))
        out[:n, :-2], out[:n, -2], out[n:, -1] = -self.took / self.scale, 1.0, 1.0
        per = -self.problem.alpha * slope[:, self.rows[:, 1]] * self.sizes / self.scale  # [device, row]
        for device in range(n):
            out[n + device, device:-2:n] = per[device]
        return out
