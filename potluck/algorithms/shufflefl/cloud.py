"""The cloud: FedAvg of users. It merges classes once, asks users how they have changed, and scales alpha."""

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np
from torch import Tensor

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.shufflefl.cap import (
    Course,
    cap_job,
    expect_seconds,
    find_least,
    find_limit,
    read_claims,
)
from potluck.algorithms.shufflefl.device import Gauge
from potluck.algorithms.shufflefl.gateway import Group
from potluck.algorithms.shufflefl.own import Own, find_ways
from potluck.algorithms.shufflefl.scaling import scale_alphas
from potluck.authoring import Command, Context, GlobalState, Got, Node, Note, Task, Tree, Until, value

GROUP, ASK, TRAIN = "group", "ask", "train"  # what the cloud asks for


@value(name="shufflefl.CloudState", eq=False)
class CloudState:
    """The model, and what is known of users."""

    inner: GlobalState
    alpha: float | None
    doing: str = TRAIN  # what was asked for last
    groups: dict[float, Tensor] = field(default_factory=dict)  # by gamma: [classes]
    began: float = 0.0  # when users were chosen
    chosen: tuple[Node, ...] = ()  # of a round that has begun
    took: dict[Node, float] = field(default_factory=dict)  # seconds of a user's last participation; h
    beta: dict[Node, float] = field(default_factory=dict)  # of this round
    least: dict[Node, float] = field(default_factory=dict)  # seconds that a user of this round needs at least
    asking: dict[Node, float] = field(default_factory=dict)  # seconds that this took

    @property
    def round(self) -> int:
        return self.inner.round


@value(name="shufflefl.Cloud")
class Cloud:
    """FedAvg of users, each with an alpha of its own."""

    inner: FedAvg
    alpha: float | None
    own: Own
    adaptive: bool
    shuffle: bool
    cap: bool

    def start(self, ctx: Context) -> CloudState:
        return CloudState(self.inner.start(ctx), self.alpha)

    def lanes(self, m: CloudState, ctx: Context) -> tuple[None, ...]:
        return self.inner.lanes(m.inner, ctx)

    def plan(self, m: CloudState, lane: None, ctx: Context) -> tuple[CloudState, list[Command]]:
        model = self.inner.local.model
        if self.shuffle and self.own.shares and not m.groups:
            plain, jobs = {"params": m.inner.params}, [Group(model, gamma) for gamma in self.own.shares]
            return replace(m, doing=GROUP), [Task(ctx.here, job, plain) for job in jobs]
        if not m.chosen:
            inner, commands = self.inner.plan(m.inner, lane, ctx)
            chosen = tuple(c.to for c in commands if isinstance(c, Task))
            m = replace(m, inner=inner, chosen=chosen, began=ctx.now)
            asked = self._list_asked(m, ctx)
            if asked:
                wait = Until(self.inner.deadline)
                return replace(m, doing=ASK), [wait, *(Task(n, Gauge(model), {}) for n in asked)]
        there = set(ctx.ready(m.chosen)) if m.doing == ASK else set(m.chosen)  # some may have left meanwhile
        nodes = [n for n in m.chosen if n in there]
        lone = read_claims([n for n in nodes if n < ctx.me], self.inner.local, ctx) if self.cap else {}
        users = [n for n in nodes if n > ctx.me]
        limit, left = self._find_limit(m, users, lone), self._find_left(m, ctx)
        plain, local = {"params": m.inner.params}, self.inner.local
        sent = self._choose_sends(m, users, limit, ctx)
        if left is not None:
            sent = {n: {**more, "deadline": left} for n, more in sent.items()}
            ways = find_ways(sent, m.inner.params, ctx)
            sent = {n: {**more, "deadline": max(0.0, left - ways[n])} for n, more in sent.items()}
        fitted = {n: cap_job(local, course, find_least(limit, left)) for n, course in lone.items()}
        tasks = [Task(n, fitted.get(n, local), plain | sent.get(n, {})) for n in nodes]
        notes: list[Command] = [] if limit is None else [Note("limit", limit)]
        return replace(m, doing=TRAIN), [Until(left), *notes, *tasks]

    def merge(self, m: CloudState, lane: None, got: Got, ctx: Context) -> tuple[CloudState, list[Command]]:
        if m.doing == GROUP:
            merged = zip(self.own.shares, got.replies, strict=True)
            return replace(m, groups={gamma: r.body["groups"] for gamma, r in merged}), []
        if m.doing == ASK:
            known = [r for r in got.replies if r.task.to in m.took]
            beta = {r.task.to: float(r.body["beta"]) for r in known}
            least = {r.task.to: float(r.body["least"]) for r in got.replies if "least" in r.body}
            asking = {r.task.to: r.spent.total for r in got.replies}
            m = replace(m, beta=beta, least=least, asking=asking)
            return m, [Note("beta", number, user) for user, number in beta.items()]
        inner, commands = self.inner.merge(m.inner, lane, got, ctx)
        users = [r for r in got.replies if r.task.to > ctx.me and r.weight > 0]
        took = {
            r.task.to: r.spent.total + m.asking.get(r.task.to, 0.0) + float(r.body.get("spared", 0.0))
            for r in users
        }
        levels = [r.body["level"] for r in users if r.body.get("level", 0.0) > 0]
        alpha = float(np.mean(levels)) if m.alpha is None and levels else m.alpha
        after = CloudState(inner, alpha, TRAIN, m.groups, took=m.took | took)
        return after, commands

    def serve(self, m: CloudState, node: Node, ctx: Context) -> dict[str, Task]:
        return self.inner.serve(m.inner, node, ctx)

    def _list_asked(self, m: CloudState, ctx: Context) -> list[Node]:
        """Users that are gauged first, if there is somebody to compare them with."""
        if self.cap and len(m.chosen) > 1:
            return [n for n in m.chosen if n > ctx.me]
        known = [n for n in m.chosen if n in m.took]
        return known if self.shuffle and self.adaptive and len(known) > 1 else []

    def _find_limit(self, m: CloudState, users: list[Node], lone: Mapping[Node, Course]) -> float | None:
        if not self.cap:
            return None
        own = [expect_seconds([course], self.inner.local.epochs, self.shuffle) for course in lone.values()]
        return find_limit([*(m.least.get(n, 0.0) for n in users), *own])

    def _find_left(self, m: CloudState, ctx: Context) -> float | None:
        """Seconds of the round that are left."""
        seconds = self.inner.deadline
        return None if seconds is None else max(0.0, seconds - (ctx.now - m.began))

    def _choose_sends(
        self, m: CloudState, users: list[Node], limit: float | None, ctx: Context
    ) -> dict[Node, dict[str, Tree]]:
        """What each user is sent beside the model."""
        sent = {n: self.own.choose(n, m.groups, ctx) for n in users}
        if limit is not None:
            sent = {n: {**more, "limit": limit} for n, more in sent.items()}
        if m.alpha is None or not self.shuffle:
            return sent
        expected = {n: m.beta[n] * m.took[n] if n in m.beta else None for n in users}
        each = scale_alphas(m.alpha, expected) if self.adaptive else dict.fromkeys(users, m.alpha)
        return {n: {**sent[n], "alpha": alpha} for n, alpha in each.items()}
