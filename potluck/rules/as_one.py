"""What several devices answered, as one device would: how whoever stands between them and a parent answers.

A job may say how bodies of its kind become one (`Folds`). Else every number is the mean by weight, a truth
holds if it does for anybody, and what isn't a number is the same for all. Whole numbers can't be averaged: a
count has to be summed, and of several choices none is everybody's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.core.errors import ConfigError
from potluck.core.job import Job, folds
from potluck.core.messages import Reply, Task
from potluck.core.trees import Params, Tree, add, sub, weighted_sum, zeros
from potluck.jobs.train import Train


class AsOne(NamedTuple):
    """The answer of several."""

    body: Tree
    weight: float
    metrics: dict[str, float]


def fold_replies(replies: Sequence[Reply]) -> AsOne | None:
    """One answer of several to the same job, in task order; None of nobody.

    Without any weight all count the same, and the answer has none either.
    """
    if not replies:
        return None
    total = sum(r.weight for r in replies)
    weights = [r.weight for r in replies] if total > 0 else [1.0] * len(replies)
    body = fold_bodies(replies[0].task.job, [r.body for r in replies], weights)
    return AsOne(body, total, average_metrics(replies))


def fold_training(replies: Sequence[Reply]) -> AsOne:
    """The same of training that began from one model: the change to where the mean of all is.

    Of nobody, or of devices without rows, the body is None: nothing has changed (`answer_nothing`).
    """
    made = fold_replies(replies)
    if made is None or made.weight <= 0:
        return AsOne(None, 0.0, {})
    begun = replies[0].task.send.get("params")
    if begun is None:
        return made
    changes: Params = made.body["delta"]
    delta = {name: sub(add(begun[name], change), begun[name]) for name, change in changes.items()}
    return made._replace(body={**made.body, "delta": delta})


def fold_bodies(job: Job, bodies: Sequence[Tree], weights: Sequence[float]) -> Tree:
    """Several bodies of a job's replies as one."""
    if folds(job):
        return job.fold(bodies, weights)
    shares = torch.tensor(weights, dtype=torch.float64)
    return _average(bodies, shares / shares.sum(), type(job).__name__)


def average_metrics(replies: Sequence[Reply]) -> dict[str, float]:
    """Means by weight of what all of those tell who have any."""
    heard = [r for r in replies if r.weight > 0]
    names = [name for name in heard[0].metrics if all(name in r.metrics for r in heard)] if heard else []
    total = sum(r.weight for r in heard)
    return {name: sum(r.weight * r.metrics[name] for r in heard) / total for name in names}


def answer_nothing(task: Task) -> Tree:
    """The body of somebody who has no rows to train on: no change."""
    assert isinstance(task.job, Train)
    trained = task.job.objective.form(task.send)
    more = zeros(task.job.objective.sends(trained))
    return {**more, "delta": zeros(trained)}


def require_foldable(job: Train, form: Params, who: str) -> None:
    """Refuse training whose answers can't become one; `form`: of the parameters that it trains."""
    name = None if folds(job) else _find_whole(job.objective.sends(form), "")
    if name is not None:
        raise ConfigError(
            f"algorithm: devices answer with {name!r}, and of several whole numbers {who} can't make "
            f"one; take an algorithm whose devices send changes of one model, such as 'fedavg'"
        )


def _average(trees: Sequence[Tree], shares: Tensor, what: str) -> Tree:
    first = trees[0]
    if isinstance(first, dict):
        return {key: _average([t[key] for t in trees], shares, what) for key in first}
    if isinstance(first, list | tuple):
        return type(first)(_average([t[i] for t in trees], shares, what) for i in range(len(first)))
    if isinstance(first, Tensor):
        if first.is_floating_point():
            return weighted_sum(trees, shares)
        if first.dtype == torch.bool:
            return torch.stack([t for t, share in zip(trees, shares.tolist(), strict=True) if share]).any(0)
    elif isinstance(first, bool):
        return any(t for t, share in zip(trees, shares.tolist(), strict=True) if share)
    elif isinstance(first, float):
        return sum(share * x for share, x in zip(shares.tolist(), trees, strict=True))
    elif all(type(t) is type(first) and t == first for t in trees):
        return first
    raise ConfigError(f"algorithm: answers to {what} can't become one: it needs a way of its own, `fold`")


def _find_whole(tree: Tree, name: str) -> str | None:
    """The name of an entry with whole numbers."""
    if isinstance(tree, dict):
        return next((found for k, v in tree.items() if (found := _find_whole(v, name or str(k)))), None)
    if isinstance(tree, list | tuple):
        return next((found for v in tree if (found := _find_whole(v, name))), None)
    if isinstance(tree, Tensor):
        return None if tree.is_floating_point() or tree.dtype == torch.bool else name
    return name if isinstance(tree, int) and not isinstance(tree, bool) else None
