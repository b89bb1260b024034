"""Edges between devices and a cloud: an edge that goes on training while the cloud is silent.

An edge holds local rounds with its devices by an inner rule with one model. When a global model comes, the
round at hand is finished; the edge's model and the global one are mixed; the cloud is answered and the next
local round begins, all at the same moment. So the cloud waits for no more than one local round, and who has
fast devices holds more of them. Before the first answer there is nothing to mix.

Mixed half and half, the next global model is (W_G + mean W_I) / 2: half of what edges learnt meanwhile.
Carried over, it is W_G + mean (W_I - A), where A is what an edge last told the cloud, and went on from: all
that it learnt since, and once. What an answer held is in W_G, or lost with it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, get_args

import torch
from torch import Tensor

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import ConfigError, require
from potluck.core.job import Job, trains
from potluck.core.messages import Choice, Command, Lane, Node, Note, Reply, Task, TaskId
from potluck.core.rule import Got, Inner, M, Report
from potluck.core.trees import Params, Tree, add, sub, tmap
from potluck.jobs import CrossEntropy, Kept, Remember, Train, use_model
from potluck.rules.as_one import average_metrics
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.vectors import length
from potluck.rules.wrap import AroundRule, find_model

Mix: TypeAlias = Literal["carry", "half"]
EdgeView: TypeAlias = Literal["own", "mixed"]
EVERYBODY = 1_000_000_000  # as a number of clients: all that are there
PATIENCE = 1_000  # local rounds without a word from the cloud: it may wait for an edge that nobody comes to


class Learns(Protocol):
    """What devices of an edge learn: the training that they are asked for in, the one that they do out."""

    def take(self, job: Train) -> Train: ...  # raises ConfigError if it can't
    def shows(self, job: Train) -> bool: ...  # whether they are sent the cloud's model too, as `global`


class _AnyForm(dict[str, Tensor]):
    """A model's form in which each parameter is found: some objectives name those that they are about."""

    def __missing__(self, name: str) -> Tensor:
        return torch.empty(0)


@value(eq=False)
class EdgeState(Generic[M]):
    """What an edge remembers; nothing that lasts may live elsewhere."""

    inner: M  # of the inner rule
    shared: Params | None = None  # the last global model that was mixed in, or begun with; W_G
    came: Params | None = None  # one that isn't mixed in yet
    due: TaskId | None = None  # the cloud's task that it came with
    first: bool = True  # what has come is what training began with: nothing to mix
    answer: Params | None = None  # what the cloud is told
    base: Params | None = None  # what the edge learnt since this one, the cloud wasn't told
    own: Params | None = None  # its model before mixing, until its devices have trained again
    since: int = 0  # local rounds since the last answer; E
    summary: tuple[int, float | None] | None = None  # of the last answer, to be noted: rounds, and distance
    job: Job | None = None  # the cloud's, where it is passed on
    slot: Hashable = None  # whose model it is: of which of the cloud's cohorts
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the last local round

    @property
    def round(self) -> int:
        return self.inner.round


@value
class Edge(Generic[M]):
    """A rule with one model that goes on between the cloud's models."""

    inner: Inner[M]  # with one model, such as FedAvg
    rounds: int | tuple[int, ...] | None = None  # between two answers, of all or of each edge; None: as fit
    mix: Mix = "carry"
    upload_before_mix: bool = False
    edge_view: EdgeView = "own"
    learns: Learns | None = None  # None: what they are asked for
    passes: bool = False  # devices do the cloud's training in place of the inner rule's

    moves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.mix in get_args(Mix), "mix", self.mix, "must be 'carry' or 'half'")
        fix = "must be 'own' (before mixing) or 'mixed'"
        require(self.edge_view in get_args(EdgeView), "edge_view", self.edge_view, fix)
        fix = "is for mix = 'half': an edge that carries tells all that it learnt, and nothing else"
        require(self.mix == "half" or not self.upload_before_mix, "upload_before_mix", True, fix)
        each = self.rounds if isinstance(self.rounds, tuple) else (self.rounds,)
        good = all(e is None or e >= 1 for e in each) and len(each) > 0
        require(good, "local_rounds", self.rounds, "must be 1 or more, for all edges or for each in a list")

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.inner, robust))

    def check_job(self, job: Job) -> None:
        """Refuse training that several rounds have no one answer to, or that isn't what devices do here."""
        if not isinstance(job, Train):
            return
        model, told = find_model(self.inner), job.objective
        fix = f"edges train {model and model.name!r} between the cloud's models; give all one model"
        require(model is None or job.model == model, "model", job.model, fix)
        require_change(job, "edges with go_on = false")
        fix = "edges train by a rule of their own (inner); take 'fedavg' above them, or leave inner out"
        require(self.passes or told == CrossEntropy(), "objective", type(told).__name__, fix)
        if self.learns is not None:
            self.learns.take(job)

    def start(self, ctx: Context) -> EdgeState[M]:
        self._count_rounds(ctx)  # refuses a list that doesn't name this edge
        return EdgeState(self.inner.start(ctx))

    def lanes(self, m: EdgeState[M], ctx: Context) -> tuple[None, ...]:
        if m.shared is None or ctx.stop:
            return ()
        most = PATIENCE if self.rounds is None else self._count_rounds(ctx)
        return (None,) if m.since < most else ()  # whether it owes an answer or not

    def plan(self, m: EdgeState[M], lane: None, ctx: Context) -> tuple[EdgeState[M], list[Command]]:
        inner, commands = self.inner.plan(m.inner, lane, ctx)
        commands = rewrite_tasks(commands, lambda own: self._choose_job(m, own), slot=m.slot)
        jobs = {id(c.job): c.job for c in commands if isinstance(c, Task)}.values()
        if self.learns is not None and any(isinstance(job, Train) and self.learns.shows(job) for job in jobs):
            commands = rewrite_tasks(commands, send=lambda sent: {**sent, "global": m.shared})
        notes: list[Command] = []
        if m.summary is not None:  # here, since adopting can't say anything
            rounds, far = m.summary
            notes = [Note("local_rounds", rounds, ctx.me)]
            notes += [] if far is None else [Note("mixed", far, ctx.me)]
        return replace(m, inner=inner, summary=None), [*notes, *commands]

    def merge(
        self, m: EdgeState[M], lane: None, got: Got, ctx: Context
    ) -> tuple[EdgeState[M], list[Command]]:
        inner, commands = self.inner.merge(m.inner, lane, got, ctx)
        metrics = average_metrics(got.replies)
        m = replace(m, inner=inner, since=m.since + 1, own=None, metrics=metrics)
        return self._mix(m, ctx), [*commands, *note_training(got.replies, ctx.me)]

    def adopt(self, m: EdgeState[M], task: Task, ctx: Context) -> EdgeState[M]:
        came: Params = task.send["params"]
        self.check_job(task.job)
        m = replace(m, job=task.job, came=came, due=task.id)
        if m.shared is None or task.slot != m.slot:  # another model: nothing to mix it with
            m = replace(m, slot=task.slot, first=True, own=None, since=0)
            return replace(m, inner=self.inner.adopt(m.inner, task, ctx), shared=came, base=came)
        return self._mix(replace(m, first=False), ctx)

    def report(self, m: EdgeState[M], task: Task, ctx: Context) -> Report | None:
        if m.came is not None:
            return None
        return {"delta": sub(m.answer, task.send["params"])}, 1.0, m.metrics  # one edge, one vote

    def serve(self, m: EdgeState[M], node: Node, ctx: Context) -> dict[str, Task | Choice]:
        shown = m.inner if m.own is None else self._load(m.inner, m.own, ctx)
        views = dict(self.inner.serve(shown, node, ctx))
        return views if m.slot is None else {name: replace(v, slot=m.slot) for name, v in views.items()}

    def _choose_job(self, m: EdgeState[M], own: Job) -> Job:
        """What devices do; `own`: what the inner rule would have them do."""
        asked = m.job if self.passes and m.job is not None else own
        return self.learns.take(asked) if self.learns is not None and isinstance(asked, Train) else asked

    def _mix(self, m: EdgeState[M], ctx: Context) -> EdgeState[M]:
        """With the global model that has come mixed in, if there is one and enough rounds were held."""
        if m.came is None or m.since < self._count_rounds(ctx):
            return m
        ours: Params = self.inner.serve(m.inner, ctx.me, ctx)["global"].send["params"]
        made = ours if m.first else self._join(ours, m.came, m.base)
        told = ctx.owed is not None and ctx.owed.id == m.due  # else it was called off: nobody hears of it
        return replace(
            m,
            inner=m.inner if m.first else self._load(m.inner, made, ctx),
            shared=m.came,
            came=None,
            answer=ours if self.upload_before_mix else made,
            base=made if told else m.came,
            own=ours if self.edge_view == "own" else None,
            since=0,
            summary=(m.since, None if m.first else length(sub(ours, m.came))),
        )

    def _join(self, ours: Params, came: Params, base: Params | None) -> Params:
        made: Params
        if self.mix == "half":
            made = tmap(lambda a, b: a / 2 + b / 2, ours, came)  # their sum might overflow
        else:
            made = add(came, sub(ours, base))
        return made

    def _load(self, inner: M, params: Params, ctx: Context) -> M:
        """The inner rule's state with another model."""
        return self.inner.adopt(inner, Task(ctx.me, Train(), {"params": params}), ctx)

    def _count_rounds(self, ctx: Context) -> int:
        """Local rounds before an answer."""
        if not isinstance(self.rounds, tuple):
            return self.rounds or 1
        place = edge_index(ctx)
        fix = f"names {len(self.rounds)} edges: give one number for each edge, or one for all"
        require(place < len(self.rounds), "local_rounds", list(self.rounds), fix)
        return self.rounds[place]


@value
class EvenCloud(AroundRule[Any]):
    """A cloud to which every edge counts alike, however many rows are below it."""

    rounds: int | tuple[int, ...] | None = None  # of the edges: a list must not name more than there are

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.inner, robust))

    def start(self, ctx: Context) -> Any:
        edges = sum(1 for node in ctx.children if node > ctx.me)  # devices may hang below the cloud as well
        named = len(self.rounds) if isinstance(self.rounds, tuple) else edges
        fix = f"names {named} edges, but there are {edges}: give one number for each, or one for all"
        require(named == edges, "local_rounds", self.rounds, fix)
        return self.inner.start(ctx)

    def merge(self, m: Any, lane: Lane, got: Got, ctx: Context) -> tuple[Any, list[Command]]:
        even = [replace(r, weight=1.0) if trains(r.task.job) and r.weight > 0 else r for r in got.replies]
        return self.inner.merge(m, lane, Got(even, got.lost), ctx)


@value
class OwnModels(AroundRule[M]):
    """An edge's rule whose devices keep the models that they train, and are served these first.

    Views are the same whatever the rule: `personal`, the device's own model after its last local training, or
    the edge's if it has none; `edge`; then what else the rule serves; and the cloud's word is `global`.
    """

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.inner, robust))

    def plan(self, m: M, lane: Lane, ctx: Context) -> tuple[M, list[Command]]:
        m, commands = self.inner.plan(m, lane, ctx)
        return m, rewrite_tasks(commands, job=_keep_model)

    def serve(self, m: M, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        views = dict(self.inner.serve(m, node, ctx))
        edge = views.pop("global")
        if node == ctx.me:  # it trains no model of its own
            return {"edge": edge, **views}
        assert isinstance(edge, Task)
        assert isinstance(edge.job, Train)
        views.pop("personal", None)  # what the rule means by it: here it is the same for all rules
        return {"personal": replace(edge, job=use_model(edge.job.model, Kept())), "edge": edge, **views}


def require_change(job: Train, other: str) -> None:
    """Refuse training of which more than a change is told; `other`: edges that it goes with."""
    told = job.objective
    if told.packs or told.sends(_AnyForm()):
        raise ConfigError(
            f"algorithm: devices tell more than the change of a model ({type(told).__name__}), and edges "
            "that hold rounds between the cloud's models have no one answer to that; take another, such "
            f"as 'fedavg', or {other}"
        )


def edge_index(ctx: Context) -> int:
    """The number of an edge, from 0: edges follow the cloud."""
    assert ctx.parent is not None
    return ctx.me - ctx.parent - 1


def note_training(replies: Sequence[Reply], edge: Node) -> list[Command]:
    """What devices tell of their training, on average over rows."""
    sums: dict[str, tuple[float, float]] = {}
    for r in replies:
        for name, mean in r.metrics.items():
            total, rows = sums.get(name, (0.0, 0.0))
            sums[name] = total + r.weight * mean, rows + r.weight
    return [Note(f"train_{name}", total / rows, edge) for name, (total, rows) in sums.items() if rows > 0]


def rewrite_tasks(
    commands: Sequence[Command],
    job: Callable[[Job], Job] = lambda job: job,
    send: Callable[[dict[str, Tree]], dict[str, Tree]] = lambda sent: sent,
    slot: Hashable = None,
) -> list[Command]:
    """The same commands with other jobs and inboxes in tasks; what tasks share, they still share.

    With a slot, tasks are in this memory.
    """
    jobs: dict[int, Job] = {}
    sends: dict[int, dict[str, Tree]] = {}
    out: list[Command] = []
    for c in commands:
        if isinstance(c, Task):
            if id(c.job) not in jobs:
                jobs[id(c.job)] = job(c.job)
            if id(c.send) not in sends:
                sends[id(c.send)] = send(c.send)
            memory = c.slot if slot is None else slot
            c = replace(c, job=jobs[id(c.job)], send=sends[id(c.send)], slot=memory)
        out.append(c)
    return out


def _keep_model(job: Job) -> Job:
    """The same job, whose model is kept; some objectives keep it anyway."""
    if not isinstance(job, Train) or job.objective.keeps_model:
        return job
    return replace(job, objective=Remember(job.objective))
