"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.shufflefl.device import Gauge
from potluck.algorithms.shufflefl.gateway import Group, Solve
from potluck.algorithms.shufflefl.hub import Hub
from potluck.algorithms.shufflefl.merging import sizes
from potluck.algorithms.shufflefl.planner.problem import Planner
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.scaling import alphas
from potluck.algorithms.shufflefl.times import step_seconds
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import ConfigError, require
from potluck.core.messages import Command, Node, Note, Task
from potluck.core.rule import FederationFacts, Got
from potluck.core.trees import Tree
from potluck.jobs import Train
from potluck.rules import GlobalState

GROUP, ASK, TRAIN = "group", "ask", "train"  # what the cloud asks for


@value(name="shufflefl.AtCloud", eq=False)
class AtCloud:
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

    def fits(self, federation: FederationFacts) -> None:
        """Refuse a server without rows where classes are to be merged by them."""
        if self.cloud.shuffle and self.cloud.gamma < 1 and not federation.server:
            raise ConfigError(
                f"gamma = {self.cloud.gamma}: classes are merged by how rows at the server look, and it has "
                "none; set aside a share, such as data.server = 0.1, or leave gamma out"
            )


def shufflefl(
    local: Train = Train(),
    users: Annotated[int, "a round; devices without a user count as one each"] = 10,
    alpha: Annotated[float | None, "seconds that balance is worth; left out: from the first round"] = None,
    planner: Annotated[Planner, "how moves are found: search, slsqp (the paper's) or fill"] = Search(),
    gateway: Annotated[str, "where they are planned: times on the clock are of this machine"] = "pi4",
    gamma: Annotated[
        float, "below 1, so many groups of classes are planned for, as a share of the classes"
    ] = 1.0,
    adaptive: Annotated[bool, "an alpha for each user, by how long it is expected to take"] = True,
    balance_time: Annotated[bool, "whether devices of a user should take equally long"] = True,
    shuffle: Annotated[bool, "False: no rows move; averages of averages alone"] = True,
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
