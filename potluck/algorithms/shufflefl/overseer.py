"""Any rule above users: who is chosen is gauged before it trains, then told what differs from user to user.

It stands at the cloud or at an edge. The rule chooses members and merges their answers; its training tasks
wait until users have said how they have changed and what they need at least. From that come each user's alpha
and the limit of the work cap. By the model, classes are merged once. A rule may have several lanes: each has
a round of its own, and what is known of users serves all.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Generic

import numpy as np
from torch import Tensor

from potluck.algorithms.shufflefl.cap import cap_job, expect_seconds, find_least, find_limit, read_claims
from potluck.algorithms.shufflefl.device import Gauge
from potluck.algorithms.shufflefl.gateway import Group
from potluck.algorithms.shufflefl.own import Own, find_ways
from potluck.algorithms.shufflefl.scaling import scale_alphas
from potluck.authoring import (
    Choice,
    Command,
    ConfigError,
    Context,
    FederationFacts,
    Got,
    Lane,
    Lost,
    Node,
    Note,
    Reply,
    Report,
    Task,
    Train,
    Tree,
    Until,
    value,
)
from potluck.core.rule import M
from potluck.rules.guard import RobustRule, TakesJudge
from potluck.rules.robust import Robust
from potluck.rules.wrap import AroundRule

GROUP, ASK, TRAIN = "group", "ask", "train"  # what was asked for last
BESIDE = ("level", "spared")  # what a user tells beside what its devices send


@value(name="shufflefl.Round", eq=False)
class Round:
    """What a lane has planned and hasn't merged yet."""

    doing: str
    tasks: tuple[Task, ...] = ()  # as the rule planned them
    wait: Until = Until()
    began: float = 0.0  # when users were chosen
    beta: dict[Node, float] = field(default_factory=dict)
    least: dict[Node, float] = field(default_factory=dict)  # seconds that a user needs at least
    asking: dict[Node, float] = field(default_factory=dict)  # seconds that this took
    left: tuple[Task, ...] = ()  # of members who had gone before the model was sent


@value(name="shufflefl.Overseen", eq=False)
class Overseen(Generic[M]):
    """The rule's state, and what is known of users."""

    inner: M
    alpha: float | None
    groups: dict[float, Tensor] = field(default_factory=dict)  # by gamma: [classes]
    took: dict[Node, float] = field(default_factory=dict)  # seconds of a user's last participation; h
    open: dict[Hashable, Round] = field(default_factory=dict)  # by lane

    @property
    def round(self) -> int:
        return self.inner.round


@value(name="shufflefl.Overseer")
class Overseer(AroundRule[Any]):
    """A rule whose members are users, each with an alpha of its own and all with one limit."""

    alpha: float | None
    own: Own
    adaptive: bool
    shuffle: bool
    cap: bool

    def fits(self, federation: FederationFacts) -> None:
        """Refuse a server without rows where classes are to be merged by them."""
        AroundRule.fits(self, federation)
        if self.shuffle and self.own.shares and not federation.server:
            raise ConfigError(
                f"gamma = {min(self.own.shares)}: classes are merged by how rows at the server look, and it "
                "has none; set aside a share, such as data.server = 0.1, or leave gamma out"
            )

    def with_judge(self, robust: Robust) -> "Overseer | RobustRule":
        """A rule that knows where it is judged is asked; else what it merges is judged before."""
        if isinstance(self.inner, TakesJudge):
            return replace(self, inner=self.inner.with_judge(robust))
        return RobustRule(self, robust)

    def start(self, ctx: Context) -> Overseen:
        return Overseen(self.inner.start(ctx), self.alpha)

    def lanes(self, m: Overseen, ctx: Context) -> list[Lane]:
        """Those that have begun come first, before others choose the same members."""
        return sorted(self.inner.lanes(m.inner, ctx), key=lambda lane: lane not in m.open)

    def plan(self, m: Overseen, lane: Lane, ctx: Context) -> tuple[Overseen, list[Command]]:
        if self.shuffle and self.own.shares and not m.groups:
            return _set_round(m, lane, Round(GROUP)), self._ask_groups(m, ctx)
        if lane in m.open:
            return self._send(m, lane, m.open[lane], ctx)
        inner, commands = self.inner.plan(m.inner, lane, ctx)
        m = replace(m, inner=inner)
        tasks = tuple(c for c in commands if isinstance(c, Task) and isinstance(c.job, Train))
        if len(tasks) < sum(isinstance(c, Task) for c in commands) or not tasks:
            return m, commands  # an errand
        wait = next((c for c in commands if isinstance(c, Until)), Until())
        notes: list[Command] = [c for c in commands if not isinstance(c, Task | Until)]
        now = Round(ASK, tasks, wait, ctx.now)
        if asked := self._list_asked(m, tasks, ctx):
            gauges = [Task(t.to, Gauge(_job(t).model), {}) for t in asked]
            return _set_round(m, lane, now), [*notes, Until(wait.after), *gauges]
        m, sent = self._send(m, lane, replace(now, doing=TRAIN), ctx)
        return m, [*notes, *sent]

    def merge(self, m: Overseen, lane: Lane, got: Got, ctx: Context) -> tuple[Overseen, list[Command]]:
        now = m.open.get(lane, Round(TRAIN))
        if now.doing == GROUP:
            merged = zip(self.own.shares, got.replies, strict=True)
            return replace(_close(m, lane), groups={gamma: r.body["groups"] for gamma, r in merged}), []
        if now.doing == ASK:
            known = [r for r in got.replies if r.task.to in m.took]
            beta = {r.task.to: float(r.body["beta"]) for r in known}
            least = {r.task.to: float(r.body["least"]) for r in got.replies if "least" in r.body}
            asking = {r.task.to: r.spent.total for r in got.replies}
            m = _set_round(m, lane, replace(now, beta=beta, least=least, asking=asking))
            return m, [Note("beta", number, user) for user, number in beta.items()]
        gone = [Lost(task, "gone") for task in now.left]
        bare = Got([_strip(r) for r in got.replies], [*got.lost, *gone])
        inner, commands = self.inner.merge(m.inner, lane, bare, ctx)
        users = [r for r in got.replies if isinstance(r.task.job, Train) and r.task.to > ctx.me]
        heard = [r for r in users if r.weight > 0]
        took = {
            r.task.to: r.spent.total + now.asking.get(r.task.to, 0.0) + float(r.body.get("spared", 0.0))
            for r in heard
        }
        levels = [r.body["level"] for r in heard if r.body.get("level", 0.0) > 0]
        alpha = float(np.mean(levels)) if m.alpha is None and levels else m.alpha
        return replace(_close(m, lane), inner=inner, alpha=alpha, took=m.took | took), commands

    def serve(self, m: Overseen, node: Node, ctx: Context) -> Mapping[str, Task | Choice]:
        return self.inner.serve(m.inner, node, ctx)

    def adopt(self, m: Overseen, task: Task, ctx: Context) -> Overseen:
        """A parent's model; what was planned with the one before isn't sent."""
        return replace(m, inner=AroundRule.adopt(self, m.inner, task, ctx), open={})

    def report(self, m: Overseen, task: Task, ctx: Context) -> Report | None:
        return AroundRule.report(self, m.inner, task, ctx)

    # ------------------------------------------------------------------------------------------- its steps

    def _ask_groups(self, m: Overseen, ctx: Context) -> list[Command]:
        """Classes that look alike to the model, by the server's rows."""
        view = self.inner.serve(m.inner, ctx.me, ctx)["global"]
        assert isinstance(view, Task)
        jobs = [Group(_job(view).model, gamma) for gamma in self.own.shares]
        return [Task(ctx.here, job, {"params": view.send["params"]}) for job in jobs]

    def _list_asked(self, m: Overseen, tasks: Sequence[Task], ctx: Context) -> list[Task]:
        """Users that are gauged first, if there is somebody to compare them with."""
        if self.cap and len(tasks) > 1:
            return [t for t in tasks if t.to > ctx.me]
        known = [t for t in tasks if t.to in m.took]
        return known if self.shuffle and self.adaptive and len(known) > 1 else []

    def _send(self, m: Overseen, lane: Lane, now: Round, ctx: Context) -> tuple[Overseen, list[Command]]:
        """The tasks of a round, each with what its user is to know."""
        there = {t.to for t in now.tasks}
        if now.doing == ASK:  # some may have left meanwhile
            there = set(ctx.ready([t.to for t in now.tasks]))
        tasks = [t for t in now.tasks if t.to in there]
        lone = [t for t in tasks if t.to < ctx.me] if self.cap else []
        courses = {t.to: read_claims([t.to], _job(t), ctx)[t.to] for t in lone}
        users = {t.to: t for t in tasks if t.to > ctx.me}
        left = None if now.wait.after is None else max(0.0, now.wait.after - (ctx.now - now.began))
        limit = None
        if self.cap:
            own = [expect_seconds([courses[t.to]], _job(t).epochs, self.shuffle) for t in lone]
            limit = find_limit([*(now.least.get(n, 0.0) for n in users), *own])
        sent = self._choose_sends(m, now.beta, users, limit, ctx)
        if left is not None:
            sent = {n: {**more, "deadline": left} for n, more in sent.items()}
            ways = find_ways({n: t.send for n, t in users.items()}, sent, ctx)
            sent = {n: {**more, "deadline": max(0.0, left - ways[n])} for n, more in sent.items()}
        least = find_least(limit, left)
        jobs = {t.to: cap_job(t.job, courses[t.to], least) for t in lone}
        out = [replace(t, job=jobs.get(t.to, t.job), send=t.send | sent.get(t.to, {})) for t in tasks]
        notes: list[Command] = [] if limit is None else [Note("limit", limit, lane)]
        gone = tuple(t for t in now.tasks if t.to not in there)
        m = _set_round(m, lane, replace(now, doing=TRAIN, left=gone))
        return m, [Until(left, now.wait.enough), *notes, *out]

    def _choose_sends(
        self,
        m: Overseen,
        beta: Mapping[Node, float],
        users: Iterable[Node],
        limit: float | None,
        ctx: Context,
    ) -> dict[Node, dict[str, Tree]]:
        """What each user is sent beside the model."""
        sent = {n: self.own.choose(n, m.groups, ctx) for n in users}
        if limit is not None:
            sent = {n: {**more, "limit": limit} for n, more in sent.items()}
        if m.alpha is None or not self.shuffle:
            return sent
        expected = {n: beta[n] * m.took[n] if n in beta else None for n in sent}
        each = scale_alphas(m.alpha, expected) if self.adaptive else dict.fromkeys(sent, m.alpha)
        return {n: {**sent[n], "alpha": alpha} for n, alpha in each.items()}


def _set_round(m: Overseen, lane: Lane, now: Round) -> Overseen:
    return replace(m, open=m.open | {lane: now})


def _close(m: Overseen, lane: Lane) -> Overseen:
    return replace(m, open={key: each for key, each in m.open.items() if key != lane})


def _strip(reply: Reply) -> Reply:
    """An answer as a rule knows it."""
    if not isinstance(reply.body, dict) or not any(key in reply.body for key in BESIDE):
        return reply
    return replace(reply, body={key: part for key, part in reply.body.items() if key not in BESIDE})


def _job(task: Task) -> Train:
    assert isinstance(task.job, Train)
    return task.job
