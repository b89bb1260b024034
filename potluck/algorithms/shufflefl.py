"""ShuffleFL (Zhu, Yang and Wang 2024, Addressing Heterogeneity in Multi-Device Federated Learning).

A user's devices may exchange rows through the user's gateway. Before they train, the user's hub looks for
moves after which the slowest of them is fast, all take about as long, and each has about as many rows of
every class. Then they train; the hub averages its devices and the cloud its users, both by samples. Slow
users are to save time, fast ones to balance classes: each has an alpha of its own, by how long it is expected
to take. Rows stay where they were moved to.

There is no authors' code. What the paper leaves open or prints in error is settled in aggregate/shuffle: its
imbalance is taken of shares (problem.py), Eq. 8 goes by its text (scaling.py), rows are planned whole
(search.py; `planner = "slsqp"` is the paper's). Deviations: alpha, which the paper never gives, is the mean
of what makes both terms of the objective equal at the users of the first round; in that round each uses its
own. Hubs measure their devices' pace anew before every plan, by ballast and a few forward passes; that takes
time, and counts in how long a user takes. Where fewer than two of a round's users have taken part before,
nobody is asked how it has changed. Classes are not merged unless `gamma` says so; the map is made once, of
the server's rows, by their labels and the first model, and t-SNE itself takes no time on the clock; classes
of which the server has no row fill up the smallest groups. Devices outside any user are chosen as users are,
and train as in FedAvg. Everybody is served the cloud's model.
"""

from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from potluck.aggregate import Global
from potluck.aggregate.shuffle.gateway import Group, Solve
from potluck.aggregate.shuffle.hub import Hub
from potluck.aggregate.shuffle.merging import sizes
from potluck.aggregate.shuffle.problem import Planner
from potluck.aggregate.shuffle.scaling import alphas
from potluck.aggregate.shuffle.search import Search
from potluck.aggregate.shuffle.times import step_seconds
from potluck.algorithms.fedavg import FedAvg
from potluck.codec import value
from potluck.contracts import Context, Federation, Got
from potluck.errors import ConfigError, require
from potluck.jobs import Train
from potluck.jobs.gauge import Gauge
from potluck.messages import Command, Node, Note, Task
from potluck.trees import Tree

GROUP, ASK, TRAIN = "group", "ask", "train"  # what the cloud asks for


@value(eq=False)
class AtCloud:
    """The model, and what is known of users."""

    inner: Global
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


@value
class Cloud:
    """FedAvg of users, each with an alpha of its own."""

    inner: FedAvg
    alpha: float | None
    gamma: float
    adaptive: bool
    shuffle: bool

    def start(self, ctx: Context) -> AtCloud:
        return AtCloud(self.inner.start(ctx), self.alpha)

    def lanes(self, m: AtCloud, ctx: Context) -> tuple[None, ...]:
        return self.inner.lanes(m.inner, ctx)

    def plan(self, m: AtCloud, lane: None, ctx: Context) -> tuple[AtCloud, list[Command]]:
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
        sent = self._scaled(m, [n for n in nodes if n > ctx.me])
        tasks = [Task(n, self.inner.local, plain | sent[n] if n in sent else plain) for n in nodes]
        return replace(m, doing=TRAIN), [*tasks]

    def merge(self, m: AtCloud, lane: None, got: Got, ctx: Context) -> tuple[AtCloud, list[Command]]:
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
        after = AtCloud(inner, alpha, TRAIN, m.groups, took=m.took | took)
        return after, commands

    def serve(self, m: AtCloud, node: Node, ctx: Context) -> dict[str, Task]:
        return self.inner.serve(m.inner, node, ctx)

    def _scaled(self, m: AtCloud, users: list[Node]) -> dict[Node, dict[str, Tree]]:
        """What each user is sent beside the model."""
        more: dict[str, Tree] = {} if m.groups is None else {"groups": m.groups}
        if m.alpha is None or not self.shuffle:
            return dict.fromkeys(users, more)
        expected = {n: m.beta[n] * m.took[n] if n in m.beta else None for n in users}
        each = alphas(m.alpha, expected) if self.adaptive else dict.fromkeys(users, m.alpha)
        return {n: {**more, "alpha": alpha} for n, alpha in each.items()}


@value
class Users:
    """Devices, the users that they belong to, and a cloud."""

    cloud: Cloud
    hub: Hub

    tiers: ClassVar[tuple[str, ...]] = ("user",)

    def at(self, tier: str) -> Any:
        return self.cloud if tier == "cloud" else self.hub

    def fits(self, federation: Federation) -> None:
        """Refuse a server without rows where classes are to be merged by them."""
        if self.cloud.shuffle and self.cloud.gamma < 1 and not federation.server:
            raise ConfigError(
                f"gamma = {self.cloud.gamma}: classes are merged by how rows at the server look, and it has "
                "none; set aside a share, such as data.server = 0.1, or leave gamma out"
            )


def shufflefl(
    local: Train = Train(),
    users: int = 10,  # a round; devices without a user count as one each
    alpha: float | None = None,  # seconds that balance is worth; left out: from the first round
    planner: Planner = Search(),  # how moves are found: search, slsqp (the paper's) or fill
    gateway: str = "pi4",  # where they are planned: times on the clock are of this machine
    gamma: float = 1.0,  # below 1, so many groups of classes are planned for, as a share of the classes
    adaptive: bool = True,  # an alpha for each user, by how long it is expected to take
    balance_time: bool = True,  # whether devices of a user should take equally long
    shuffle: bool = True,  # False: no rows move; averages of averages alone
) -> Users:
    """FedAvg of users whose devices exchange rows before they train."""
    require(users >= 1, "users", users, "must be at least 1: users a round")
    good = alpha is None or 0 <= alpha < float("inf")
    require(good, "alpha", alpha, "give 0 or more seconds, or leave it out")
    sizes(gamma, 2)  # refuses a share that is none
    step_seconds(gateway)  # refuses one that nobody has measured
    if shuffle:
        fix = "rows decide how long devices train; set train.epochs instead, or shuffle = false"
        require(local.steps is None, "train.steps", local.steps, fix)
        require(local.epochs >= 1, "train.epochs", local.epochs, "must be at least 1 where rows are planned")
        fix = "covers updates alone, but rows leave devices as they are; leave it out, or set shuffle = false"
        require(local.privacy is None, "train.privacy", local.privacy, fix)
    cloud = Cloud(FedAvg(users, local), alpha, gamma, adaptive, shuffle)
    return Users(cloud, Hub(local, Solve(planner, gateway), balance_time, shuffle))
