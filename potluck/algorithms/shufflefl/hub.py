"""A user's hub: gauges devices, plans which rows they exchange, lets them move and train, and answers.

It stands in its devices' place: it passes on the training that it is asked for, whatever that is, and answers
as one device would, beside what ShuffleFL's cloud wants to know.

One task of the cloud takes three barriers: gauge, solve, train. What is kept from one participation to the
next is how fast devices were then, to tell how much longer a user will take now.
"""

from dataclasses import field, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from potluck.algorithms.shufflefl.device import DeviceGauge, Gauge, read_gauge
from potluck.algorithms.shufflefl.gateway import Solve, pose_question
from potluck.algorithms.shufflefl.moves import count_rows, list_moves
from potluck.algorithms.shufflefl.planner.problem import imbalance
from potluck.algorithms.shufflefl.scaling import compute_share, find_level, slowdown
from potluck.authoring import (
    Command,
    Context,
    Got,
    Job,
    Move,
    Node,
    Note,
    Reply,
    Report,
    Task,
    Train,
    Tree,
    require,
    value,
)
from potluck.rules.as_one import answer_nothing, fold_training

GAUGE, SOLVE, TRAIN, DONE = "gauge", "solve", "train", "done"  # steps of a participation
BALLAST = bytes(4096)  # there and back, to measure rates
OWN = ("alpha", "groups")  # what the cloud sends to the hub itself


@value
class Past:
    """A user's last participation, to compare with."""

    found: dict[Node, DeviceGauge]
    rows: int
    went: int  # of these, those that moved


@value(eq=False)
class HubState:
    """What a user's hub remembers; nothing that lasts may live elsewhere."""

    doing: str = DONE  # what is next
    found: dict[Node, DeviceGauge] = field(default_factory=dict)  # devices, as gauged for what is at hand
    beta: float = 1.0  # expected time now, over that of the last time
    alpha: float | None = None
    level: float = 0.0  # the alpha at which this user's two terms are equal; 0: there is none
    groups: Tensor | None = None  # [classes]
    moves: tuple[Move, ...] = ()
    keen: tuple[Node, ...] = ()  # who will have rows to train on
    past: Past | None = None
    told: Tree = None  # what devices answered, as one; None: nothing yet
    weight: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    round: int = 0


@value
class Hub:
    """Gauges a user's devices, plans moves, lets rows move and devices train, and answers with the mean."""

    local: Train
    solve: Solve
    spread: bool
    shuffle: bool
    alpha: float | None = None  # unless the cloud sends one; None: what makes both terms equal here
    scaled: bool = True  # whether the cloud makes alphas: it is told this user's then

    takes: ClassVar = (Gauge,)  # asked before a round, of devices that are there

    def __post_init__(self) -> None:
        self.check_job(self.local)

    @property
    def moves(self) -> bool:
        return self.shuffle

    def check_job(self, job: Job) -> None:
        """Refuse training whose length rows don't decide, and noise that covers less than what leaves."""
        if not (self.shuffle and isinstance(job, Train)):
            return
        fix = "rows decide how long devices train; set train.epochs instead, or shuffle = false"
        require(job.steps is None, "train.steps", job.steps, fix)
        require(job.epochs >= 1, "train.epochs", job.epochs, "must be at least 1 where rows are planned")
        fix = "covers updates alone, but rows leave devices as they are; leave it out, or set shuffle = false"
        require(job.privacy is None, "train.privacy", job.privacy, fix)

    def start(self, ctx: Context) -> HubState:
        return HubState()

    def lanes(self, m: HubState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working and m.doing != DONE else ()

    def plan(self, m: HubState, lane: None, ctx: Context) -> tuple[HubState, list[Command]]:
        if m.doing == GAUGE:
            assert ctx.owed is not None
            assert isinstance(ctx.owed.job, Gauge | Train)
            job, ballast = Gauge(ctx.owed.job.model), {"ballast": BALLAST}
            return m, [Task(n, job, ballast) for n in ctx.ready([int(n) for n in ctx.children])]
        if m.doing == SOLVE:
            return m, [Task(ctx.here, self.solve, self._pose_question(m))]
        asked, nodes = ctx.owed, m.keen if self.shuffle else ctx.sample(len(ctx.children))
        assert asked is not None
        send = {name: tree for name, tree in asked.send.items() if name not in OWN}
        tasks = [Task(n, asked.job, send, slot=asked.slot) for n in nodes]
        return m, [*m.moves, *tasks]  # training waits for its moves

    def merge(self, m: HubState, lane: None, got: Got, ctx: Context) -> tuple[HubState, list[Command]]:
        if m.doing == GAUGE:
            return self._take_gauges(m, got.replies, ctx)
        if m.doing == SOLVE:
            return self._take_plan(m, got.replies, ctx)
        astray = [lost for lost in got.lost if isinstance(lost.what, Move)]
        went = count_rows(m.moves) - count_rows(lost.what for lost in astray if isinstance(lost.what, Move))
        rows = sum(sum(device.counts) for device in m.found.values())
        told, weight, metrics = fold_training(got.replies)
        m = replace(
            m,
            doing=DONE,
            found={},
            past=Past(m.found, rows, went) if m.found and weight > 0 else m.past,  # as the cloud counts
            moves=(),
            told=told,
            weight=weight,
            metrics=metrics,
            round=m.round + 1,
        )
        notes: list[Command] = [Note("rows_moved", went, ctx.me)] if self.shuffle else []
        return m, [*notes, *(Note("not moved", lost.why, ctx.me) for lost in astray)]

    def adopt(self, m: HubState, task: Task, ctx: Context) -> HubState:
        if isinstance(task.job, Gauge):
            return replace(m, doing=GAUGE, found={})
        self.check_job(task.job)
        alpha, groups = task.send.get("alpha", self.alpha), task.send.get("groups")
        m = replace(m, alpha=alpha, groups=groups, level=0.0, told=None, weight=0.0, metrics={}, moves=())
        if not self.shuffle:
            return replace(m, doing=TRAIN)
        if m.doing == DONE and m.found:  # gauged just now, to tell how it has changed
            return self._weigh_balance(m)
        return replace(m, doing=GAUGE, found={})

    def report(self, m: HubState, task: Task, ctx: Context) -> Report | None:
        if m.doing != DONE:
            return None
        if isinstance(task.job, Gauge):
            return {"beta": m.beta}, 1.0
        level = {"level": m.level} if m.alpha is None and self.shuffle and self.scaled else {}
        told = answer_nothing(task) if m.told is None else m.told
        return {**told, **level}, m.weight, m.metrics

    def serve(self, m: HubState, node: Node, ctx: Context) -> dict[str, Task]:
        return {}  # the cloud's word is all

    # ------------------------------------------------------------------------------------------- its steps

    def _take_gauges(self, m: HubState, replies: list[Reply], ctx: Context) -> tuple[HubState, list[Command]]:
        nodes = [r.task.to for r in replies]
        latency = ctx.profiles(nodes).latency
        found = {n: read_gauge(r, float(t)) for n, r, t in zip(nodes, replies, latency, strict=True)}
        if ctx.owed is None:  # called off
            return replace(m, doing=DONE, found={}), []
        m = replace(m, found=found, beta=_expect_slowdown(m.past, found))
        return (replace(m, doing=DONE) if isinstance(ctx.owed.job, Gauge) else self._weigh_balance(m)), []

    def _weigh_balance(self, m: HubState) -> HubState:
        """With what balance is worth to this user, and on to the next step."""
        keen = tuple(n for n, device in m.found.items() if sum(device.counts))
        if not keen:
            return replace(m, doing=DONE, found={})  # nobody is there, or nobody has anything
        problem = self._pose_question(m)["problem"]
        uneven = float(imbalance(problem.counts, problem.wanted).max()) > 1e-9
        own = find_level([problem]) if uneven else 0.0
        return replace(m, level=own, keen=keen, doing=SOLVE if len(m.found) > 1 else TRAIN)

    def _take_plan(self, m: HubState, replies: list[Reply], ctx: Context) -> tuple[HubState, list[Command]]:
        m = replace(m, doing=TRAIN)
        if not replies:
            return m, []
        (reply,), nodes = replies, list(m.found)
        plan = reply.body["plan"]
        has = plan.sum((0, 1)).tolist()
        keen = tuple(n for n, rows in zip(nodes, has, strict=True) if rows)
        m = replace(m, moves=list_moves(nodes, plan), keen=keen)
        summary = {
            "objective_before": reply.body["before"],
            "objective_after": reply.body["after"],
            "planning_seconds": reply.spent.compute,
            "alpha": self._find_alpha(m),
        }
        return m, [Note(name, number, ctx.me) for name, number in summary.items()]

    def _find_alpha(self, m: HubState) -> float:
        return (m.level or 1.0) if m.alpha is None else m.alpha

    def _pose_question(self, m: HubState) -> dict[str, Tree]:
        devices = list(m.found.values())
        return pose_question(
            np.array([d.counts for d in devices], np.int64),
            np.array([d.compute for d in devices]),
            (np.array([d.up for d in devices]), np.array([d.down for d in devices])),
            devices[0].row_bytes,
            self.local.epochs,
            self._find_alpha(m),
            self.spread,
            None if m.groups is None else m.groups.cpu().numpy(),
        )


def _expect_slowdown(past: Past | None, found: dict[Node, DeviceGauge]) -> float:
    """How much longer a user should take than the last time, by its devices that were there both times."""
    both = [] if past is None else [n for n in found if n in past.found]
    if past is None or not both or not past.rows:
        return 1.0
    then, now = [past.found[n] for n in both], [found[n] for n in both]
    compute = np.array([d.compute for d in then]), np.array([d.compute for d in now])
    rates = np.array([d.rate for d in then]), np.array([d.rate for d in now])
    return slowdown(compute_share(past.rows, past.went), compute, rates)
