"""A user's hub: gauges devices, plans which rows they exchange, lets them move and train, and answers.

One task of the cloud takes three barriers: gauge, solve, train. What is kept from one participation to the
next is how fast devices were then, to tell how much longer a user will take now.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from potluck.algorithms.shufflefl.cap import (
    Course,
    cap_job,
    count_spared,
    expect_seconds,
    find_least,
    follow_moves,
)
from potluck.algorithms.shufflefl.device import Gauge, read_gauge
from potluck.algorithms.shufflefl.gateway import Solve, pose_question
from potluck.algorithms.shufflefl.hub_state import DONE, HubState
from potluck.algorithms.shufflefl.moves import count_rows, list_moves
from potluck.algorithms.shufflefl.past import Past, expect_slowdown
from potluck.algorithms.shufflefl.planner.problem import find_imbalances
from potluck.algorithms.shufflefl.scaling import find_level
from potluck.algorithms.shufflefl.split import Split
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
    Until,
    nbytes,
    require,
    value,
)
from potluck.rules.as_one import answer_nothing, fold_training

GAUGE, SOLVE, TRAIN = "gauge", "solve", "train"  # steps of a participation, and done
BALLAST = bytes(4096)  # there and back, to measure rates
OWN = ("alpha", "groups", "limit", "deadline", "gateway")  # what the cloud sends to the hub itself


@value
class Hub:
    """Gauges a user's devices, plans moves, lets rows move and devices train, and answers with the mean."""

    local: Train
    solve: Solve
    spread: bool
    shuffle: bool
    cap: bool = False
    transfer: bool = False

    takes: ClassVar = (Gauge,)  # asked before a round, of devices that are there

    def __post_init__(self) -> None:
        self.check_job(self.local)

    @property
    def moves(self) -> bool:
        return self.shuffle

    def check_job(self, job: Job) -> None:
        """Refuse training whose length rows don't decide, and noise that covers less than what leaves."""
        if not (self._gauges and isinstance(job, Train)):
            return
        off = "shuffle = false and cap = false"
        fix = f"rows decide how long devices train; set train.epochs instead, or {off}"
        require(job.steps is None, "train.steps", job.steps, fix)
        fix = f"must be at least 1 where rows or batches are planned; or set {off}"
        require(job.epochs >= 1, "train.epochs", job.epochs, fix)
        fix = "covers updates alone, but rows leave devices as they are; leave it out, or set shuffle = false"
        require(not self.shuffle or job.privacy is None, "train.privacy", job.privacy, fix)

    def start(self, ctx: Context) -> HubState:
        return HubState(model_bytes=nbytes(ctx.models[self.local.model].init(ctx.key)))

    def lanes(self, m: HubState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working and m.doing != DONE else ()

    def plan(self, m: HubState, lane: None, ctx: Context) -> tuple[HubState, list[Command]]:
        left = None if m.until is None else max(0.0, m.until - ctx.now)
        wait = [] if left is None else [Until(left)]
        if m.doing == GAUGE:
            assert ctx.owed is not None
            assert isinstance(ctx.owed.job, Gauge | Train)
            job, ballast = Gauge(ctx.owed.job.model), {"ballast": BALLAST}
            return m, [*wait, *(Task(n, job, ballast) for n in ctx.ready([int(n) for n in ctx.children]))]
        if m.doing == SOLVE:
            solve = self.solve if m.gateway is None else replace(self.solve, gateway=m.gateway)
            return m, [*wait, Task(ctx.here, solve, self._pose_question(m))]
        asked, nodes = ctx.owed, m.keen if self._gauges else ctx.sample(len(ctx.children))
        assert asked is not None
        courses, limit = self._follow(m), None
        if self.cap:
            limit = find_least(None if m.limit is None else max(m.limit, ctx.now - m.split.began), left)
        send = {name: tree for name, tree in asked.send.items() if name not in OWN}
        jobs = {n: cap_job(asked.job, courses[n], limit) if self.cap else asked.job for n in nodes}
        tasks = [Task(n, job, send, slot=asked.slot) for n, job in jobs.items()]
        return m, [*wait, *m.moves, *tasks]  # training waits for its moves

    def merge(self, m: HubState, lane: None, got: Got, ctx: Context) -> tuple[HubState, list[Command]]:
        if m.doing == GAUGE:
            return self._take_gauges(m, got.replies, ctx)
        if m.doing == SOLVE:
            return self._take_plan(m, got.replies, ctx)
        astray = [lost for lost in got.lost if isinstance(lost.what, Move)]
        went = count_rows(m.moves) - count_rows(lost.what for lost in astray if isinstance(lost.what, Move))
        rows = sum(sum(device.counts) for device in m.found.values())
        told, weight, metrics = fold_training(got.replies)
        courses = self._follow(m)
        split = m.split.add(got.replies, courses.values())
        notes = split.note(ctx.now, len(courses) or len(got.replies), ctx.me)
        notes += [Note("rows_moved", went, ctx.me)] if self.shuffle else []
        notes += [Note("trained", weight / rows, ctx.me)] if self.cap and rows else []
        m = replace(
            m,
            split=Split(),
            spared=count_spared(courses, got.replies) if self.cap else 0.0,
            doing=DONE,
            found={},
            past=Past(m.found, rows, went) if m.found and weight > 0 else m.past,  # as the cloud counts
            moves=(),
            told=told,
            weight=weight,
            metrics=metrics,
            round=m.round + 1,
        )
        return m, [*notes, *(Note("not moved", lost.why, ctx.me) for lost in astray)]

    def adopt(self, m: HubState, task: Task, ctx: Context) -> HubState:
        if isinstance(task.job, Gauge):
            return replace(m, doing=GAUGE, found={}, until=None, split=Split(ctx.now))
        self.check_job(task.job)
        m = replace(m, level=0.0, told=None, weight=0.0, metrics={}, spared=0.0, moves=())
        m = replace(m, model_bytes=nbytes(task.send["params"]) if "params" in task.send else m.model_bytes)
        alpha, groups, limit, seconds, gateway = (task.send.get(key) for key in OWN)
        until = None if seconds is None else ctx.now + seconds
        m = replace(m, alpha=alpha, groups=groups, limit=limit, until=until, gateway=gateway)
        m = replace(m, split=m.split.resume(ctx.now))
        if not self._gauges:
            return replace(m, doing=TRAIN)
        if m.doing == DONE and m.found:  # gauged just now, to tell how it has changed
            return self._weigh_balance(m)
        return replace(m, doing=GAUGE, found={})

    def report(self, m: HubState, task: Task, ctx: Context) -> Report | None:
        if m.doing != DONE:
            return None
        if isinstance(task.job, Gauge):
            if not self.cap:
                return {"beta": m.beta}, 1.0
            least = expect_seconds(self._follow(m).values(), self.local.epochs, self.shuffle)
            return {"beta": m.beta, "least": least}, 1.0
        level = {"level": m.level} if m.alpha is None and self.shuffle else {}
        spared = {"spared": m.spared} if self.cap else {}
        told = answer_nothing(task) if m.told is None else m.told
        return {**told, **level, **spared}, m.weight, m.metrics

    def serve(self, m: HubState, node: Node, ctx: Context) -> dict[str, Task]:
        return {}  # the cloud's word is all

    # ------------------------------------------------------------------------------------------- its steps

    def _take_gauges(
        self, m: HubState, replies: Sequence[Reply], ctx: Context
    ) -> tuple[HubState, list[Command]]:
        nodes = [r.task.to for r in replies]
        latency = ctx.profiles(nodes).latency
        found = {n: read_gauge(r, float(t)) for n, r, t in zip(nodes, replies, latency, strict=True)}
        if ctx.owed is None:  # called off
            return replace(m, doing=DONE, found={}), []
        m = replace(m, found=found, beta=expect_slowdown(m.past, found), split=m.split.add(replies))
        if isinstance(ctx.owed.job, Gauge):
            return replace(m, doing=DONE, split=m.split.pause(ctx.now)), []
        return self._weigh_balance(m), []

    def _weigh_balance(self, m: HubState) -> HubState:
        """With what balance is worth to this user, and on to the next step."""
        keen = tuple(n for n, device in m.found.items() if sum(device.counts))
        if not keen:
            return replace(m, doing=DONE, found={})  # nobody is there, or nobody has anything
        problem = self._pose_question(m)["problem"]
        uneven = float(find_imbalances(problem, problem.counts).max()) > 1e-9
        own = find_level([problem]) if uneven else 0.0
        return replace(m, level=own, keen=keen, doing=SOLVE if self.shuffle and len(m.found) > 1 else TRAIN)

    def _take_plan(
        self, m: HubState, replies: Sequence[Reply], ctx: Context
    ) -> tuple[HubState, list[Command]]:
        m = replace(m, doing=TRAIN)
        if not replies:
            return m, []
        (reply,), nodes = replies, list(m.found)
        plan = reply.body["plan"]
        has = plan.sum((0, 1)).tolist()
        keen = tuple(n for n, rows in zip(nodes, has, strict=True) if rows)
        split = replace(m.split, planning=reply.spent.total)
        m = replace(m, moves=list_moves(nodes, plan), keen=keen, split=split)
        summary = {
            "objective_before": reply.body["before"],
            "objective_after": reply.body["after"],
            "planning_seconds": reply.spent.compute,
            "alpha": self._find_alpha(m),
        }
        return m, [Note(name, number, ctx.me) for name, number in summary.items()]

    @property
    def _gauges(self) -> bool:
        return self.shuffle or self.cap

    def _follow(self, m: HubState) -> dict[Node, Course]:
        return follow_moves(m.found, m.moves, m.model_bytes)

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
            np.array([d.transfer(m.model_bytes) for d in devices]) if self.transfer else None,
        )
