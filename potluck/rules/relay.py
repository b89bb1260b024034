"""A plain edge: it passes on what it is asked for to those below it, and answers as one device would."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import ClassVar

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.job import Job
from potluck.core.messages import Choice, Command, Node, Task, Until
from potluck.core.rule import Got, Report
from potluck.core.trees import Tree
from potluck.rules.as_one import answer_nothing, fold_training


@value(eq=False)
class RelayState:
    """What the members said to the task at hand."""

    doing: bool = False  # they are still to be asked
    told: Tree = None  # as one; None: nothing
    weight: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    round: int = 0


@value
class Relay:
    """Asks some of its members, or all, and answers with their mean."""

    clients: int | None = None  # None: all
    deadline: float | None = None  # seconds

    moves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        many = self.clients is None or self.clients >= 1
        require(many, "clients", self.clients, "must be at least 1, or left out: all of an edge's devices")
        patient = self.deadline is None or self.deadline > 0
        require(patient, "deadline", self.deadline, "must be above 0 seconds, or left out")

    def check_job(self, job: Job) -> None:
        """Whatever devices do, they may do below an edge."""

    def start(self, ctx: Context) -> RelayState:
        return RelayState()

    def lanes(self, m: RelayState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working and m.doing else ()

    def plan(self, m: RelayState, lane: None, ctx: Context) -> tuple[RelayState, list[Command]]:
        asked = ctx.owed
        assert asked is not None
        nodes = ctx.sample(len(ctx.children) if self.clients is None else self.clients)
        tasks = [Task(n, asked.job, asked.send, slot=asked.slot) for n in nodes]
        return m, [Until(self.deadline), *tasks]

    def merge(self, m: RelayState, lane: None, got: Got, ctx: Context) -> tuple[RelayState, list[Command]]:
        return RelayState(False, *fold_training(got.replies), m.round + 1), []

    def adopt(self, m: RelayState, task: Task, ctx: Context) -> RelayState:
        return replace(m, doing=True)

    def report(self, m: RelayState, task: Task, ctx: Context) -> Report | None:
        if m.doing:
            return None
        return answer_nothing(task) if m.told is None else m.told, m.weight, m.metrics

    def serve(self, m: RelayState, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        return {}  # the cloud's word is all
