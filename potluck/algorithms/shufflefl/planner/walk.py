"""Steps from plan to plan: of all moves of one row, or exchanges of two, the one that is worth most.

What a move does to latencies depends only on where the row comes from, is and goes, and what it does to
balance only on where it is and goes and on its class; both are kept in tables, and so a look at all moves of
a row is a few array operations.
"""

import math
from collections.abc import Iterable

import numpy as np

from potluck.algorithms.shufflefl.planner.compiled import compile_loops
from potluck.algorithms.shufflefl.planner.prices import (
    deviate,
    find_jumps,
    find_shifts,
    find_training,
    soften,
    xlogx,
)
from potluck.algorithms.shufflefl.planner.problem import (
    Floats,
    Ints,
    Problem,
    Solution,
    choose_better,
    find_imbalances,
    find_spread,
    weigh,
)

# By how much the objective must fall, of its size: less may be rounding, and would go round in circles.
_MARGIN = 1e-12


class Walk:
    """A plan on its way, the tables that price its moves, and the best plan so far."""

    def __init__(self, problem: Problem, plan: Ints, fast: bool = False) -> None:
        self.fast = compile_loops() if fast else None  # else in numpy
        self.problem, self.wanted, n = problem, problem.wanted, problem.devices
        self.each = np.arange(n)
        self.path, self.work = problem.path, problem.work
        self.shift = find_shifts(self.path, self.work)
        self.third = np.ones((n, n, n))  # [is, goes, device]: 0 for the two that a move changes
        for a in range(n):
            self.third[a, :, a] = self.third[:, a, a] = 0
        self.nowhere = np.where(np.eye(n, dtype=bool), np.inf, 0.0)[:, :, None]
        nobody = np.zeros((1, problem.classes), np.int64)
        self.empty = float(find_imbalances(problem, nobody)[0])
        self.sure = float((self.wanted * np.log(self.wanted)).sum())
        self.fixed = np.zeros(n) if problem.fixed is None else np.asarray(problem.fixed, np.float64)
        self.steps = 0
        self.least = math.inf
        self.restart(plan)

    def restart(self, plan: Ints) -> None:
        self.plan = plan.copy()  # [from, class, at]
        self.open = np.ascontiguousarray(plan.transpose(0, 2, 1) > 0)  # [from, at, class]: rows to move
        self.has = self.plan.sum(0).T.astype(np.float64)
        self.flow = self.plan.sum(1).astype(np.float64)
        self.far = np.zeros(self.problem.devices)
        self.less, self.more = np.zeros_like(self.has), np.zeros_like(self.has)
        for device in self.each:
            self._look(int(device))
        self._weigh()

    def anneal(self, stages: Iterable[float]) -> None:
        """Through all stages to the true objective, where swaps of two rows help out of dead ends."""
        for hard in stages:
            # Fixed within a stage: what softens with the plan itself would go in circles.
            self._descend(float(self.took.max()) / hard, max(float(self.far.max()), 0.01) / hard)
        self._descend(0.0, 0.0)
        while self._swap():
            self._descend(0.0, 0.0)

    def solution(self) -> Solution:
        return choose_better(self.problem, self.best, self.steps)

    # ---------------------------------------------------------------------------------------------- one row

    def _descend(self, slow: float, far: float) -> None:
        """The best single moves, while the objective falls; softened by `slow` seconds and `far` nats."""
        while self.fast is None:
            now = self._soften(slow, far)
            price = self._latencies(slow)[:, :, :, None] + self._balances(far)[None]
            price = np.where(self.open[:, :, None, :], price, np.inf)
            self.steps += int(np.count_nonzero(self.open)) * (len(self.each) - 1)
            place = int(price.argmin())
            source, at, to, label = map(int, np.unravel_index(place, price.shape))
            if not price[source, at, to, label] < now - self._margin(now):
                return
            self._move(source, label, at, to)
            self._weigh()
        p, tables = self.problem, (self.has, self.flow, self.far, self.less, self.more)
        still = (self.shift, self.path, self.work, self.wanted, p.alpha, p.spread, slow, far, self.empty)
        own = (self.fixed, p.fixed is not None)
        steps, self.least = self.fast.descend(
            self.plan, *tables, self.best, *still, *own, self.least, _MARGIN
        )
        self.steps += steps
        self.open = np.ascontiguousarray(self.plan.transpose(0, 2, 1) > 0)
        self._weigh()

    def _margin(self, value: float) -> float:
        return _MARGIN * (value + self.problem.alpha)

    def _soften(self, slow: float, far: float) -> float:
        spread = find_spread(self.problem, self.took, self.rows)
        return soften(self.took, slow) + spread + self.problem.alpha * soften(self.far, far)

    def _latencies(self, slow: float) -> Floats:
        """[from, is, goes] seconds: the maximum, softened, and the deviation after a move."""
        after, there = self.took + self.shift, None
        if self.problem.fixed is not None:
            after, there = after + find_jumps(self.rows, self.fixed), find_training(self.rows)
        top: Floats = after.max(-1)
        if slow:
            top = top + slow * np.log(np.exp((after - top[..., None]) / slow).sum(-1))
        if self.problem.spread:
            top = top + deviate(after, there)
        return top

    def _balances(self, far: float) -> Floats:
        """[is, goes, class]: alpha times the worst imbalance after a move, softened."""
        rest = np.where(self.third > 0, self.far, -np.inf).max(-1)[:, :, None]  # of the devices not involved
        worst: Floats = np.maximum(np.maximum(self.less[:, None], self.more[None]), rest)
        if far:
            others = self.third * np.exp(np.minimum(self.far - rest, 0.0) / far)
            total = others.sum(-1, keepdims=True) * np.exp((rest - worst) / far)
            for own in (self.less[:, None], self.more[None]):
                total = total + np.exp((own - worst) / far)
            worst = worst + far * np.log(total)
        return self.problem.alpha * worst + self.nowhere

    def _move(self, source: int, label: int, at: int, to: int) -> None:
        self.plan[source, label, at] -= 1
        self.plan[source, label, to] += 1
        self.open[source, at, label] = self.plan[source, label, at] > 0
        self.open[source, to, label] = True
        self.flow[source, at] -= 1
        self.flow[source, to] += 1
        for device, change in ((at, -1.0), (to, 1.0)):
            self.has[device, label] += change
            self._look(device)

    def _weigh(self) -> None:
        """Latencies anew from whole numbers, so that rounding doesn't add up; and the best plan so far."""
        cost, self.rows = self.flow * self.path, self.flow.sum(0)
        self.took: Floats = self.work * self.rows + cost.sum(0) + cost.sum(1)
        if self.problem.fixed is not None:
            self.took += np.where(self.rows > 0, self.fixed, 0.0)
        value = weigh(self.problem, self.took, self.far, self.rows)
        if value + self._margin(value) < self.least:
            self.best, self.least = self.plan.copy(), value

    def _look(self, device: int) -> None:
        """A device's imbalance now, and with one row less or more of each class.

        With n_i of n rows and u_i wanted, it is ln 2 + (sum n_i ln n_i / n + sum u_i ln u_i
        - sum (n_i/n + u_i) ln (n_i + n u_i) + ln n) / 2, whose sums change in one term only.
        """
        has, n = self.has[device], float(self.has[device].sum())
        own = xlogx(has)
        sure, mixed = own.sum(), xlogx(has + n * self.wanted).sum()
        self.far[device] = self._nats(n, sure, mixed) if n else self.empty
        self.more[device] = self._table(has, n + 1, 1.0, sure - own)
        self.less[device] = self._table(has, n - 1, -1.0, sure - own) if n > 1 else self.empty

    def _table(self, has: Floats, n: float, change: float, sure: Floats) -> Floats:
        hoped = n * self.wanted
        before = xlogx(has + hoped)
        after = np.maximum(has + change, 0.0)  # a class without rows has none to give; nobody asks
        mixed = before.sum() - before + xlogx(after + hoped)
        return self._nats(n, sure + xlogx(after), mixed)

    def _nats(self, n: float, own: Floats, mixed: Floats) -> Floats:
        return np.maximum(math.log(2) + (own / n + self.sure - mixed / n + math.log(n)) / 2, 0.0)

    # --------------------------------------------------------------------------------------------- two rows

    def _swap(self) -> bool:
        """The best exchange of a row of the worst devices for one of another's, if the objective falls."""
        now = self._soften(0.0, 0.0)
        goal, best = now - self._margin(now), None
        out, back = self._terms(-1.0), self._terms(1.0)
        for at in sorted({int(self.far.argmax()), int(self.took.argmax())}):
            if self.fast is not None:
                p, tables = self.problem, (self.plan, self.has, self.far, self.took, self.shift, out, back)
                found = self.fast.exchange(*tables, p.alpha, p.spread, p.fixed is not None, at, goal)
                source, label, second, other, to, least, steps = found
                self.steps += steps
            else:
                source, label, second, other, to, least = self._exchange(at, out, back)
            if least < goal:
                goal, best = least, ((source, label, at, to), (second, other, to, at))
        if best is None:
            return False
        for row in best:
            self._move(*row)
        self._weigh()
        return True

    def _exchange(self, at: int, out: Floats, back: Floats) -> tuple[int, int, int, int, int, float]:
        """The best exchange of one device: origin and class of both rows, the other device, and the price."""
        goes, comes = self.shift[:, at], self.shift[:, :, at]  # [from, to, device]
        after = self.took + goes.swapaxes(0, 1)[:, :, None] + comes.swapaxes(0, 1)[:, None]
        slow = after.max(-1)  # [to, from, from']
        if self.problem.spread:
            some = None if self.problem.fixed is None else np.broadcast_to(self.rows > 0, after.shape)
            slow = slow + deviate(after, some)
        comes_from = self.open.swapaxes(0, 1)[:, None]
        there = np.where(comes_from, slow[..., None], np.inf).min(2)  # [to, from, class']
        price = np.full((len(self.each), self.problem.classes, self.problem.classes), np.inf)
        for origin, goes_from in enumerate(self.open[:, at]):
            classes = np.flatnonzero(goes_from)
            price[:, classes] = np.minimum(price[:, classes], there[:, origin, None])
        price[at] = np.inf
        self.steps += int(np.isfinite(price).sum())
        here = self.far[at] + out[at][:, None] + back[at]
        np.fill_diagonal(here, self.far[at])  # a row for one of its own class
        far = self.far[:, None, None] + back[:, :, None] + out[:, None]
        far[:, np.arange(len(here)), np.arange(len(here))] = self.far[:, None]
        rest = np.where(self.third[at] > 0, self.far, 0.0).max(-1)
        price += self.problem.alpha * np.maximum(np.maximum(here, far), rest[:, None, None])
        to, label, other = map(int, np.unravel_index(int(price.argmin()), price.shape))
        source = int(np.where(self.open[:, at, label], there[to, :, other], np.inf).argmin())
        second = int(np.where(self.open[:, to, other], slow[to, source], np.inf).argmin())
        return source, label, second, other, to, float(price[to, label, other])

    def _terms(self, change: float) -> Floats:
        """[device, class] nats that a row more or less of each adds while another makes up for it."""
        has, n = self.has, np.maximum(self.has.sum(1, keepdims=True), 1.0)
        mixed = has + n * self.wanted
        own = xlogx(np.maximum(has + change, 0.0)) - xlogx(has)
        return np.asarray((own - xlogx(np.maximum(mixed + change, 0.0)) + xlogx(mixed)) / (2 * n))
