"""What is made of the views that devices are served: the one port of what is served.

Nothing of the training changes. New views lead, and those that they are made of stay beside them. What a
device does with a model before it uses it (`Tuned`) is put into the offer, by a rule around the one that
offers it: of a width of its own, of a cohort that the device chooses first, or for a memory of its own. What
answers are weighed by (`Weighed`) is fitted over devices, so it is done where models are scored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Protocol, Self, get_args

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import JobError, require
from potluck.core.messages import Choice, Node, Task
from potluck.core.rule import M
from potluck.jobs import CrossEntropy, Objective, Train
from potluck.jobs.around import AroundObjective
from potluck.jobs.prior import ServedForm
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.wrap import AroundRule


class Serves(Protocol):
    """A layer of what is served."""

    def name_views(self, views: Sequence[str]) -> dict[str, str]:
        """The views that it adds, in front of these: each with the one that it is made of."""
        ...


@value
class Tuned:
    """The first view, as each device makes it its own."""

    tuning: Train  # what a device does with the model that it is given
    view: str = "tuned"

    def name_views(self, views: Sequence[str]) -> dict[str, str]:
        return {self.view: views[0]} if views else {}


@value
class Weighed:
    """Every view, with devices' own priors."""

    form: ServedForm = "causal"

    def __post_init__(self) -> None:
        fix = "must be 'causal', 'batch' or 'labels'"
        require(self.form in get_args(ServedForm), "layer.prior.form", self.form, fix)

    def name_views(self, views: Sequence[str]) -> dict[str, str]:
        return {f"{view}+prior": view for view in views}


@value
class Served(AroundRule[M]):
    """A rule whose first view is made each device's own."""

    by: Tuned

    def resize(self, clients: int, rate: float) -> Self:
        tuned = replace(self.by, tuning=self.by.tuning.scale_rate(rate))
        return replace(AroundRule.resize(self, clients, rate), by=tuned)

    def with_judge(self, robust: Robust) -> Self:
        """What is merged is judged inside: there a rule may know where."""
        return replace(self, inner=guard_rule(self.inner, robust))

    def serve(self, m: M, node: Node, ctx: Context) -> Mapping[str, Task | Choice]:
        views = self.inner.serve(m, node, ctx)
        if node != ctx.me:
            made = self.by.name_views([*views])
            return {new: map_offer(views[old], self.by.tuning) for new, old in made.items()} | dict(views)
        # An aggregator may have rows (data.server), but they are nobody's own.
        return {self.by.view: views["global"], **views} if "global" in views else views


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
