"""Planning as work of a user's gateway, grouping classes as work of the cloud: jobs, charged on the clock.

What a search costs is known only when it is done, but a job's cost must be known before it runs. So `Solve`
solves when it is asked what it costs. Solving is a pure function of what was sent, and the last answers are
remembered by content: `run` finds the same plan again, and solves anew where nothing is remembered, as after
a resume.
"""

import functools
from collections.abc import Hashable
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.algorithms.shufflefl.merging import find_shares, group_classes, merge_counts, split_by_class
from potluck.algorithms.shufflefl.planner.problem import Floats, Ints, Planner, Problem, Solution, stay, worth
from potluck.algorithms.shufflefl.planner.relaxed import Slsqp
from potluck.algorithms.shufflefl.times import slsqp_seconds, step_seconds
from potluck.authoring import Cost, Local, ModelSpec, Result, Tree, value

PER_CLASS = 50  # rows of a class that are laid out: t-SNE takes its time


@value
class Solve:
    """Which rows go where: an answer to what `question` wrote down."""

    planner: Planner
    gateway: str = "pi4"

    def cost(self, at: Local) -> Cost:
        problem: Problem = at.inbox["problem"]
        if isinstance(self.planner, Slsqp):  # as the paper measured it, whatever it comes to here
            seconds = slsqp_seconds(self.gateway, problem.devices, problem.classes)
        else:
            seconds = self._find(at).steps * step_seconds(self.gateway)
        counts = torch.as_tensor(at.inbox["counts"], dtype=torch.int64)
        plan = counts.unsqueeze(2).repeat(1, 1, len(counts))  # nobody gives more than it has
        return Cost(0.0, {"plan": plan, "before": 0.0, "after": 0.0}, seconds)

    def run(self, at: Local) -> Result:
        problem, found, groups = at.inbox["problem"], self._find(at), at.inbox["groups"]
        plan = found.plan
        if groups is not None:
            plan = split_by_class(plan, at.inbox["counts"], groups, at.seed)
        before = worth(problem, stay(problem.counts))
        return Result({"plan": torch.tensor(plan), "before": before, "after": float(found.worth)})

    def _find(self, at: Local) -> Solution:
        problem: Problem = at.inbox["problem"]
        return _solve(_Question(self.planner, at.seed, _mark(problem), problem))


@value(name="shufflefl.Group")
class Group:
    """Which classes look alike to the model that was sent, by the rows of whoever is asked."""

    model: ModelSpec
    gamma: float

    def cost(self, at: Local) -> Cost:
        net = at.models[self.model]
        groups = torch.full((net.classes,), net.classes - 1)
        return Cost(float(len(_pick_rows(_to_array(at.y))) * net.ops), {"groups": groups})

    def run(self, at: Local) -> Result:
        net, labels = at.models[self.model], _to_array(at.y)
        some = _pick_rows(labels)
        with torch.no_grad():
            features = net.features(at.inbox["params"], at.x[torch.from_numpy(some)])
        seen = features.cpu().numpy().astype(np.float64)
        found = group_classes(seen, labels[some], net.classes, self.gamma, at.seed)
        return Result({"groups": torch.tensor(found)})


def pose_question(
    counts: Ints,
    compute: Floats,
    rates: tuple[Floats, Floats],
    row_bytes: int,
    epochs: int,
    alpha: float,
    spread: bool,
    groups: Ints | None,
    fixed: Floats | None = None,
) -> dict[str, Tree]:
    """A problem as it is sent; over groups of classes, if there are some. Rates are up and down."""
    share = None if groups is None else find_shares(groups)
    table = counts if groups is None else merge_counts(counts, groups)
    problem = Problem(table, compute, *rates, 8.0 * row_bytes, epochs, alpha, spread, share, fixed)
    return {"problem": problem, "counts": counts, "groups": groups}


@dataclass(frozen=True)
class _Question:
    """What is solved: equal where its content is."""

    planner: Planner
    key: int
    mark: tuple[Hashable, ...]
    problem: Problem = field(compare=False)


def _mark(problem: Problem) -> tuple[Hashable, ...]:
    """The content of a problem. Not as the codec's bytes: for each array they leave a ring of references
    behind, and a run seldom looks for rings."""
    parts = (getattr(problem, each.name) for each in fields(problem))
    return tuple((x.shape, x.dtype.str, x.tobytes()) if isinstance(x, np.ndarray) else x for x in parts)


@functools.lru_cache(maxsize=256)
def _solve(question: _Question) -> Solution:
    return question.planner.solve(question.problem, question.key)


def _pick_rows(labels: Ints) -> NDArray[np.intp]:
    """Places of the first rows of each class."""
    found = [np.flatnonzero(labels == label)[:PER_CLASS] for label in np.unique(labels)]
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.intp)


def _to_array(tensor: Tensor) -> Ints:
    array: Ints = tensor.cpu().numpy()
    return array
