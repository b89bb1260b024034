"""A user's hub: gauges devices, plans which rows they exchange, lets them move and train, and answers.

One task of the cloud takes three barriers: gauge, solve, train. What is kept from one participation to the
next is how fast devices were then, to tell how much longer a user will take now.
"""

from dataclasses import field, replace

import numpy as np
from torch import Tensor

from potluck.algorithms.shufflefl.cap import (
    Course,
    cap_job,
    count_spared,
    expect_seconds,
    find_least,
    follow_moves,
)
from potluck.algorithms.shufflefl.device import DeviceGauge, Gauge, read_gauge
from potluck.algorithms.shufflefl.gateway import Solve, pose_question
from potluck.algorithms.shufflefl.moves import count_rows, list_moves
from potluck.algorithms.shufflefl.planner.problem import find_imbalances
from potluck.algorithms.shufflefl.scaling import compute_share, find_level, slowdown
from potluck.algorithms.shufflefl.split import Split
from potluck.authoring import (
    Average,
    Command,
    Context,
    Got,
    Move,
    Node,
    Note,
    Params,
    Reply,
    Task,
    Train,
    Tree,
    Until,
    nbytes,
    sub,
    value,
)

GAUGE, SOLVE, TRAIN, DONE = "gauge", "solve", "train", "done"  # steps of a participation
BALLAST = bytes(4096)  # there and back, to measure rates
OWN = ("alpha", "groups", "limit", "deadline", "gateway")  # what the cloud sends to the hub itself


@value
class Past:
    """A user's last participation, to compare with."""

    found: dict[Node, DeviceGauge]
    rows: int
    went: int  # of these, those that moved


@value(eq=False)
class HubState:
    """What a user's hub remembers; nothing that lasts may live elsewhere."""

    params: Params
    doing: str = DONE  # what is next
    found: dict[Node, DeviceGauge] = field(default_factory=dict)  # devices, as gauged for what is at hand
    beta: float = 1.0  # expected time now, over that of the last time
    alpha: float | None = None
    level: float = 0.0  # the alpha at which this user's two terms are equal; 0: there is none
    groups: Tensor | None = None  # [classes]
    limit: float | None = None  # seconds for moves and training; None: as long as it takes
    until: float | None = None  # time on the clock when it answers with what is done; None: when all is
    gateway: str | None = None  # of its own; None: as all have
    spared: float = 0.0  # seconds that it would have taken beyond the limit
    split: Split = Split()
    moves: tuple[Move, ...] = ()
    keen: tuple[Node, ...] = ()  # who will have rows to train on
    past: Past | None = None
    weight: float = 0.0
    round: int = 0


@value
class Hub:
    """Gauges a user's devices, plans moves, lets rows move and devices train, and answers with the mean."""

    local: Train
    solve: Solve
    spread: bool
    shuffle: bool
    cap: bool
    transfer: bool

    def start(self, ctx: Context) -> HubState:
        return HubState(ctx.models[self.local.model].init(ctx.key))

    def lanes(self, m: HubState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working and m.doing != DONE else ()

    def plan(self, m: HubState, lane: None, ctx: Context) -> tuple[HubState, list[Command]]:
        left = None if m.until is None else max(0.0, m.until - ctx.now)
        wait = [] if left is None else [Until(left)]
        if m.doing == GAUGE:
            job, ballast = Gauge(self.local.model), {"ballast": BALLAST}
            return m, [*wait, *(Task(n, job, ballast) for n in ctx.ready([int(n) for n in ctx.children]))]
        if m.doing == SOLVE:
            solve = self.solve if m.gateway is None else replace(self.solve, gateway=m.gateway)
            return m, [*wait, Task(ctx.here, solve, self._pose_question(m))]
        send = {"params": m.params}
        if not self._gauges:
            return m, [*wait, *(Task(n, self.local, send) for n in ctx.sample(len(ctx.children)))]
        courses, limit = self._follow(m), None
        if self.cap:
            limit = find_least(None if m.limit is None else max(m.limit, ctx.now - m.split.began), left)
        tasks = [Task(n, cap_job(self.local, courses[n], limit), send) for n in m.keen]
        return m, [*wait, *m.moves, *tasks]  # training waits for its moves

    def merge(self, m: HubState, lane: None, got: Got, ctx: Context) -> tuple[HubState, list[Command]]:
        if m.doing == GAUGE:
            return self._take_gauges(m, got.replies, ctx)
        if m.doing == SOLVE:
            return self._take_plan(m, got.replies, ctx)
        astray = [lost for lost in got.lost if isinstance(lost.what, Move)]
        went = count_rows(m.moves) - count_rows(lost.what for lost in astray if isinstance(lost.what, Move))
        rows = sum(sum(device.counts) for device in m.found.values())
        weight = sum(r.weight for r in got.replies)
        courses = self._follow(m)
        split = m.split.add(got.replies, courses.values())
        notes = split.note(ctx.now, len(courses) or len(got.replies), ctx.me)
        notes += [Note("rows_moved", went, ctx.me)] if self.shuffle else []
        notes += [Note("trained", weight / rows, ctx.me)] if self.cap and rows else []
        m = replace(
            m,
            split=Split(),
            spared=count_spared(courses, got.replies) if self.cap else 0.0,
            params=Average().step(m.params, None, got.replies)[0],
            doing=DONE,
            found={},
            past=Past(m.found, rows, went) if m.found and weight > 0 else m.past,  # as the cloud counts
            moves=(),
            weight=weight,
            round=m.round + 1,
        )
        return m, [*notes, *(Note("not moved", lost.why, ctx.me) for lost in astray)]

    def adopt(self, m: HubState, task: Task, ctx: Context) -> HubState:
        if isinstance(task.job, Gauge):
            return replace(m, doing=GAUGE, found={}, until=None, split=Split(ctx.now))
        m = replace(m, params=task.send["params"], level=0.0, weight=0.0, spared=0.0, moves=())
        alpha, groups, limit, seconds, gateway = (task.send.get(key) for key in OWN)
        until = None if seconds is None else ctx.now + seconds
        m = replace(m, alpha=alpha, groups=groups, limit=limit, until=until, gateway=gateway)
        m = replace(m, split=m.split.resume(ctx.now))
        if not self._gauges:
            return replace(m, doing=TRAIN)
        if m.doing == DONE and m.found:  # gauged just now, to tell how it has changed
            return self._weigh_balance(m)
        return replace(m, doing=GAUGE, found={})

    def report(self, m: HubState, task: Task, ctx: Context) -> tuple[Tree, float] | None:
        if m.doing != DONE:
            return None
        if isinstance(task.job, Gauge):
            if not self.cap:
                return {"beta": m.beta}, 1.0
            least = expect_seconds(self._follow(m).values(), self.local.epochs, self.shuffle)
            return {"beta": m.beta, "least": least}, 1.0
        level = {"level": m.level} if m.alpha is None and self.shuffle else {}
        spared = {"spared": m.spared} if self.cap else {}
        return {"delta": sub(m.params, task.send["params"]), **level, **spared}, m.weight

    def serve(self, m: HubState, node: Node, ctx: Context) -> dict[str, Task]:
        return {}  # the cloud's word is all

    # ------------------------------------------------------------------------------------------- its steps

    def _take_gauges(self, m: HubState, replies: list[Reply], ctx: Context) -> tuple[HubState, list[Command]]:
        nodes = [r.task.to for r in replies]
        latency = ctx.profiles(nodes).latency
        found = {n: read_gauge(r, float(t)) for n, r, t in zip(nodes, replies, latency, strict=True)}
        if ctx.owed is None:  # called off
            return replace(m, doing=DONE, found={}), []
        m = replace(m, found=found, beta=_expect_slowdown(m.past, found), split=m.split.add(replies))
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

    def _take_plan(self, m: HubState, replies: list[Reply], ctx: Context) -> tuple[HubState, list[Command]]:
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
        return follow_moves(m.found, m.moves, nbytes(m.params))

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
            np.array([d.transfer(nbytes(m.params)) for d in devices]) if self.transfer else None,
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
