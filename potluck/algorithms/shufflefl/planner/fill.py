"""A plain way to share rows out: as many as a device is fast, of all classes alike."""

from collections.abc import Sequence

import numpy as np

from potluck.algorithms.shufflefl.planner.problem import Ints, Problem, Solution, choose_better
from potluck.algorithms.shufflefl.planner.rounding import round_rows
from potluck.authoring import part, value


@part("planner")
@value
class Fill:
    """Every class is dealt to devices in proportion to their speed; what must go takes the cheapest paths.

    It looks at one plan, and knows neither what transfers cost altogether nor how much balance is worth.
    """

    def solve(self, problem: Problem, key: int) -> Solution:
        return choose_better(problem, deal_rows(problem), 1)


def deal_rows(problem: Problem, but: Sequence[int] | Ints = ()) -> Ints:
    """The plan of `Fill`: rows stay where they are still wanted, the others go where some are missing.

    Devices of `but` get none.
    """
    counts, speed = problem.counts, 1 / problem.work
    speed[np.asarray(but, np.intp)] = 0.0
    goal = round_rows(np.tile(speed, (problem.classes, 1)), counts.sum(0)).T  # [devices, classes]
    stays = np.minimum(counts, goal)
    plan = np.zeros((problem.devices, problem.classes, problem.devices), np.int64)
    each = np.arange(problem.devices)
    plan[each, :, each] = stays
    spare, lack = counts - stays, goal - stays
    order = np.argsort(problem.path, axis=None, kind="stable")
    for source, target in zip(*np.unravel_index(order, problem.path.shape), strict=True):
        if source != target:
            go = np.minimum(spare[source], lack[target])
            plan[source, :, target] += go
            spare[source] -= go
            lack[target] -= go
    return plan
