"""A plain edge: it passes on what it is asked for to those below it, and answers as one device would."""

from collections.abc import Hashable, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.job import Job, ModelSpec
from potluck.core.messages import Choice, Command, Node, Task, Until
from potluck.core.rule import Got, Report
from potluck.core.trees import Params, Tree, add, sub
from potluck.jobs import Train, use_model
from potluck.rules.as_one import answer_nothing, fold_replies
from potluck.rules.edges import EVERYBODY, require_change
from potluck.rules.select import Select, Uniform


@value(eq=False)
class RelayState:
    """What the members said to the task at hand."""

    left: int = 0  # rounds that are still to be held
    told: Tree = None  # by the last, as one; None: nothing
    weight: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    round: int = 0
    params: Params | None = None  # where the members have come to
    slot: Hashable = None  # whose model it is
    picks: Any = None  # of the selector


@value
class Relay:
    """Asks some of its members, or all, and answers with their mean."""

    clients: int | None = None  # None: all
    deadline: float | None = None  # seconds
    select: Select = Uniform()
    rounds: int = 1  # before it answers
    model: ModelSpec | None = None  # that is served as its own; None: the cloud's word is all

    moves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        many = self.clients is None or self.clients >= 1
        require(many, "clients", self.clients, "must be at least 1, or left out: all of an edge's devices")
        patient = self.deadline is None or self.deadline > 0
        require(patient, "deadline", self.deadline, "must be above 0 seconds, or left out")
        require(self.rounds >= 1, "local_rounds", self.rounds, "must be at least 1, or left out: one")

    def check_job(self, job: Job) -> None:
        """Whatever devices do, they may do below an edge; but of several rounds there is one change alone."""
        if isinstance(job, Train):
            fix = "edges serve a model of their own by another name; give all one model"
            require(self.model in (None, job.model), "model", job.model, fix)
            if self.rounds > 1:
                require_change(job, "edges with local_rounds = 1")

    def start(self, ctx: Context) -> RelayState:
        params = None if self.model is None else ctx.models[self.model].init(ctx.key)
        return RelayState(params=params, picks=self.select.start())

    def lanes(self, m: RelayState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working and m.left else ()

    def plan(self, m: RelayState, lane: None, ctx: Context) -> tuple[RelayState, list[Command]]:
        asked = ctx.owed
        assert asked is not None
        nodes, picks = self.select.pick(m.picks, EVERYBODY if self.clients is None else self.clients, ctx)
        assert isinstance(asked.job, Train), "what else a parent asks for is an errand"
        jobs = self.select.jobs(asked.job, nodes, picks)
        send = asked.send if m.left == self.rounds else {**asked.send, "params": m.params}
        tasks = [Task(n, job, send, slot=asked.slot) for n, job in zip(nodes, jobs, strict=True)]
        return replace(m, picks=picks), [Until(self.deadline), *tasks]

    def merge(self, m: RelayState, lane: None, got: Got, ctx: Context) -> tuple[RelayState, list[Command]]:
        picks = self.select.learn(m.picks, got, ctx)
        m = replace(m, left=m.left - 1, round=m.round + 1, told=None, weight=0.0, metrics={}, picks=picks)
        made = fold_replies(got.replies)
        if made is None or made.weight <= 0:
            return m, []
        params = m.params
        if params is not None:
            params = params | {k: add(params[k], change) for k, change in made.body["delta"].items()}
        return replace(m, told=made.body, weight=made.weight, metrics=made.metrics, params=params), []

    def adopt(self, m: RelayState, task: Task, ctx: Context) -> RelayState:
        return replace(m, left=self.rounds, params=task.send.get("params"), slot=task.slot)

    def report(self, m: RelayState, task: Task, ctx: Context) -> Report | None:
        if m.left:
            return None
        told, begun = answer_nothing(task) if m.told is None else m.told, task.send.get("params")
        if begun is not None and m.params is not None:
            told = {**told, "delta": {k: sub(m.params[k], begun[k]) for k in told["delta"]}}
        return told, m.weight, m.metrics

    def serve(self, m: RelayState, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        if self.model is None:
            return {}
        return {"global": Task(node, use_model(self.model), {"params": m.params}, slot=m.slot)}
