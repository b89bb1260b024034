"""The cloud: FedAvg of users. It merges classes once, asks users how they have changed, and scales alpha."""

from dataclasses import field, replace

import numpy as np
from torch import Tensor

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.shufflefl.device import Gauge
from potluck.algorithms.shufflefl.gateway import Group
from potluck.algorithms.shufflefl.scaling import scale_alphas
from potluck.authoring import Command, Context, GlobalState, Got, Node, Note, Task, Tree, value

GROUP, ASK, TRAIN = "group", "ask", "train"  # what the cloud asks for


@value(name="shufflefl.CloudState", eq=False)
class CloudState:
    """The model, and what is known of users."""

    inner: GlobalState
    alpha: float | None
    doing: str = TRAIN  # what was asked for last
    groups: Tensor | None = None  # [classes]
    chosen: tuple[Node, ...] = ()  # of a round that has begun
    took: dict[Node, float] = field(default_factory=dict)  # seconds of a user's last participation; h
    beta: dict[Node, float] = field(default_factory=dict)  # of this round
    asking: dict[Node, float] = field(default_factory=dict)  # seconds that this took

    @property
    def round(self) -> int:
        return self.inner.round


@value(name="shufflefl.Cloud")
class Cloud:
    """FedAvg of users, each with an alpha of its own."""

    inner: FedAvg
    alpha: float | None
    gamma: float
    adaptive: bool
    shuffle: bool

    def start(self, ctx: Context) -> CloudState:
        return CloudState(self.inner.start(ctx), self.alpha)

    def lanes(self, m: CloudState, ctx: Context) -> tuple[None, ...]:
        return self.inner.lanes(m.inner, ctx)

    def plan(self, m: CloudState, lane: None, ctx: Context) -> tuple[CloudState, list[Command]]:
        model = self.inner.local.model
        if self.shuffle and self.gamma < 1 and m.groups is None:
            return replace(m, doing=GROUP), [
                Task(ctx.here, Group(model, self.gamma), {"params": m.inner.params})
            ]
        if not m.chosen:
            inner, commands = self.inner.plan(m.inner, lane, ctx)
            m = replace(m, inner=inner, chosen=tuple(c.to for c in commands if isinstance(c, Task)))
            known = [n for n in m.chosen if n in m.took]
            if self.shuffle and self.adaptive and len(known) > 1:  # else there is nobody to compare with
                return replace(m, doing=ASK), [Task(n, Gauge(model), {}) for n in known]
        there = set(ctx.ready(m.chosen)) if m.doing == ASK else set(m.chosen)  # some may have left meanwhile
        nodes = [n for n in m.chosen if n in there]
        plain = {"params": m.inner.params}
        sent = self._choose_sends(m, [n for n in nodes if n > ctx.me])
        tasks = [Task(n, self.inner.local, plain | sent[n] if n in sent else plain) for n in nodes]
        return replace(m, doing=TRAIN), [*tasks]

    def merge(self, m: CloudState, lane: None, got: Got, ctx: Context) -> tuple[CloudState, list[Command]]:
        if m.doing == GROUP:
            (reply,) = got.replies
            return replace(m, groups=reply.body["groups"]), []
        if m.doing == ASK:
            beta = {r.task.to: float(r.body["beta"]) for r in got.replies}
            m = replace(m, beta=beta, asking={r.task.to: r.spent.total for r in got.replies})
            return m, [Note("beta", number, user) for user, number in beta.items()]
        inner, commands = self.inner.merge(m.inner, lane, got, ctx)
        users = [r for r in got.replies if r.task.to > ctx.me and r.weight > 0]
        took = {r.task.to: r.spent.total + m.asking.get(r.task.to, 0.0) for r in users}
        levels = [r.body["level"] for r in users if r.body.get("level", 0.0) > 0]
        alpha = float(np.mean(levels)) if m.alpha is None and levels else m.alpha
        after = CloudState(inner, alpha, TRAIN, m.groups, took=m.took | took)
        return after, commands

    def serve(self, m: CloudState, node: Node, ctx: Context) -> dict[str, Task]:
        return self.inner.serve(m.inner, node, ctx)

    def _choose_sends(self, m: CloudState, users: list[Node]) -> dict[Node, dict[str, Tree]]:
        """What each user is sent beside the model."""
        more: dict[str, Tree] = {} if m.groups is None else {"groups": m.groups}
        if m.alpha is None or not self.shuffle:
            return dict.fromkeys(users, more)
        expected = {n: m.beta[n] * m.took[n] if n in m.beta else None for n in users}
        each = scale_alphas(m.alpha, expected) if self.adaptive else dict.fromkeys(users, m.alpha)
        return {n: {**more, "alpha": alpha} for n, alpha in each.items()}
