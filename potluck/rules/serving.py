"""What devices do with an offered model before they use it: the one port of what is served.

Nothing of the training changes. The model is taken from what is offered, whoever offers it: of a width of its
own, of a cohort that the device chooses first, or for a memory of its own.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Self

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import JobError
from potluck.core.messages import Choice, Node, Task
from potluck.core.rule import M
from potluck.jobs import CrossEntropy, Objective, Train
from potluck.jobs.around import AroundObjective
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.wrap import AroundRule


@value
class Served(AroundRule[M]):
    """A rule whose first view is made each device's own; this view leads, and the rule's are beside it."""

    tuning: Train  # what a device does with the model that it is given
    view: str = "tuned"

    def resize(self, clients: int, rate: float) -> Self:
        return replace(AroundRule.resize(self, clients, rate), tuning=self.tuning.scale_rate(rate))

    def with_judge(self, robust: Robust) -> Self:
        """What is merged is judged inside: there a rule may know where."""
        return replace(self, inner=guard_rule(self.inner, robust))

    def serve(self, m: M, node: Node, ctx: Context) -> Mapping[str, Task | Choice]:
        views = self.inner.serve(m, node, ctx)
        if node != ctx.me:
            return {self.view: map_offer(next(iter(views.values())), self.tuning), **views}
        # An aggregator may have rows (data.server), but they are nobody's own.
        return {self.view: views["global"], **views} if "global" in views else views


def map_offer(offer: Task | Choice, tuning: Train) -> Task | Choice:
    """The same model put to another use; of a choice, whichever the device chooses."""
    if isinstance(offer, Choice):
        return replace(offer, tasks={name: map_task(task, tuning) for name, task in offer.tasks.items()})
    return map_task(offer, tuning)


def map_task(task: Task, tuning: Train) -> Task:
    """A model that would be used as it is, put to another use: what is around its answers stays around."""
    job = task.job
    if isinstance(job, Train) and not job.epochs and not job.steps:
        objective = _put_inside(job.objective, tuning.objective)
        if objective is not None:
            return replace(task, job=replace(tuning, model=job.model, objective=objective))
    raise JobError(f"layers: what is served has a use of its own ({job}); leave out tuned or switch")


def _put_inside(around: Objective, own: Objective) -> Objective | None:
    """None: there is no plain use inside."""
    if isinstance(around, AroundObjective) and is_dataclass(around):
        inner = _put_inside(around.inner, own)
        return None if inner is None else replace(around, inner=inner)
    return own if around == CrossEntropy() else None
