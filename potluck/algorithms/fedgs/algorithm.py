"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import field, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedgs.device import NextCounts, OneBatch
from potluck.algorithms.fedgs.selection import find_nearest_sum
from potluck.authoring import (
    Average,
    Command,
    Context,
    GlobalState,
    Got,
    LabelCounts,
    Node,
    Params,
    Rule,
    Task,
    Train,
    Tree,
    leaves,
    require,
    sub,
    value,
)
from potluck.rules.edges import EVERYBODY, rewrite_tasks

CENSUS, ASK, TRAIN = "census", "ask", "train"


@value(eq=False)
class GroupState:
    """What a group remembers; nothing that lasts may live elsewhere."""

    params: Params
    key: int  # of the orders in which devices go through their rows
    share: Tensor | None = None  # [classes] labels of the federation
    census: Tensor | None = None  # [classes] labels of the group, if they were asked for just now
    doing: str = TRAIN  # what was asked for last
    next_labels: dict[Node, tuple[int, ...]] = field(default_factory=dict)  # labels of next batches
    place: dict[Node, int] = field(default_factory=dict)  # batches that a device has trained
    round: int = 0  # steps
    since: int = 0  # of these, since the cloud's model came
    updates: int = 0  # since then

    def name_next(self, node: Node) -> Tensor:
        """Which batch is a device's next one."""
        where = leaves(self.params)[0].device
        return torch.tensor([self.key, self.place.get(node, 0)], device=where)


@value(name="fedgs.Group")
class Group:
    """Steps of a few devices each, whose next batches balance."""

    local: Train  # of one batch
    clients: int  # devices a step; L
    syncs: int  # steps before the cloud is answered
    chance: int = 0  # of the devices a step, so many are drawn; L_rnd

    takes: ClassVar = (LabelCounts,)  # asked at a boundary, of devices that are there

    def start(self, ctx: Context) -> GroupState:
        return GroupState(ctx.models[self.local.model].init(ctx.key), ctx.key >> 1)

    def lanes(self, m: GroupState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working else ()

    def plan(self, m: GroupState, lane: None, ctx: Context) -> tuple[GroupState, list[Command]]:
        classes, there = ctx.models[self.local.model].classes, ctx.ready([int(n) for n in ctx.children])
        if _asks_labels(ctx.owed):
            return replace(m, doing=CENSUS), [Task(n, LabelCounts(classes), {}) for n in there]
        able, silent = [n for n in there if n in m.next_labels], [n for n in there if n not in m.next_labels]
        if silent and (m.doing != ASK or not able):
            ask = NextCounts(classes, self.local.batch)
            return replace(m, doing=ASK), [Task(n, ask, {"next": m.name_next(n)}) for n in silent]
        nodes = self.choose(m, able, ctx.rng)
        tasks = [Task(n, self.local, {"params": m.params, "next": m.name_next(n)}) for n in nodes]
        return replace(m, doing=TRAIN), [*tasks]

    def choose(self, m: GroupState, able: list[Node], rng: np.random.Generator) -> list[Node]:
        """Some devices by chance, and those whose next batches, with theirs, are most like the federation."""
        if not able:
            return []
        assert m.share is not None
        table = np.array([m.next_labels[n] for n in able], np.float64).T
        count = min(self.clients, len(able))
        target = m.share.cpu().numpy() * count * table.sum() / len(able)
        order = rng.permutation(len(able)) if self.chance else np.arange(len(able))
        drawn, rest = np.sort(order[: self.chance]), np.sort(order[self.chance :])
        best = find_nearest_sum(table[:, rest], target - table[:, drawn].sum(1), count - len(drawn))
        return [able[i] for i in sorted([*drawn, *rest[best]])]

    def merge(self, m: GroupState, lane: None, got: Got, ctx: Context) -> tuple[GroupState, list[Command]]:
        heard = [r for r in got.replies if r.weight > 0]
        if m.doing == CENSUS:
            none = torch.zeros(ctx.models[self.local.model].classes, dtype=torch.int64)
            return replace(m, census=sum((r.body["counts"].cpu() for r in heard), none)), []
        if m.doing == ASK:
            next_labels = m.next_labels | {r.task.to: tuple(r.body["counts"].tolist()) for r in heard}
            vain = 0 if next_labels else 1  # a step that nobody takes, else the cloud would wait for ever
            return replace(m, next_labels=next_labels, since=m.since + vain), []
        bad = [lost.what for lost in got.lost if lost.why == "bad"]
        through = {task.to for task in (*(r.task for r in got.replies), *bad) if isinstance(task, Task)}
        m = replace(
            m,
            params=Average().step(m.params, None, got.replies)[0],
            next_labels={n: counts for n, counts in m.next_labels.items() if n not in through},
            place=m.place | {n: m.place.get(n, 0) + 1 for n in through},
            round=m.round + 1,
            since=m.since + 1,
            updates=m.updates + len(heard),
        )
        return m, []

    def adopt(self, m: GroupState, task: Task, ctx: Context) -> GroupState:
        if _asks_labels(task):
            return replace(m, census=None)
        return replace(m, params=task.send["params"], share=task.send["share"], since=0, updates=0)

    def report(self, m: GroupState, task: Task, ctx: Context) -> tuple[Tree, float] | None:
        if _asks_labels(task):
            return None if m.census is None else ({"counts": m.census}, 1.0)
        due = m.since >= self.syncs
        return ({"delta": sub(m.params, task.send["params"])}, float(m.updates)) if due else None

    def serve(self, m: GroupState, node: Node, ctx: Context) -> dict[str, Task]:
        return {}  # the cloud's word is all


@value(name="fedgs.CloudState", eq=False)
class CloudState:
    """The model, and the labels of the federation once they are known."""

    inner: GlobalState
    share: Tensor | None = None  # [classes]

    @property
    def round(self) -> int:
        return self.inner.round


@value(name="fedgs.Cloud")
class Cloud:
    """FedAvg of groups, which are asked for their labels first."""

    inner: FedAvg

    def start(self, ctx: Context) -> CloudState:
        return CloudState(self.inner.start(ctx))

    def lanes(self, m: CloudState, ctx: Context) -> tuple[None, ...]:
        return self.inner.lanes(m.inner, ctx)

    def plan(self, m: CloudState, lane: None, ctx: Context) -> tuple[CloudState, list[Command]]:
        groups = ctx.only(int(node) for node in ctx.children if node > ctx.me)
        if m.share is None:
            ask = LabelCounts(ctx.models[self.inner.local.model].classes)
            return m, [Task(node, ask, {}) for node in groups.sample(len(groups.children))]
        inner, commands = self.inner.plan(m.inner, lane, groups)
        return replace(m, inner=inner), rewrite_tasks(commands, send=lambda sent: {**sent, "share": m.share})

    def merge(self, m: CloudState, lane: None, got: Got, ctx: Context) -> tuple[CloudState, list[Command]]:
        if m.share is not None:
            inner, commands = self.inner.merge(m.inner, lane, got, ctx)
            return replace(m, inner=inner), commands
        counts = [r.body["counts"].double() for r in got.replies]
        total = torch.stack(counts).sum(0) if counts else torch.zeros(1)
        return (replace(m, share=total / total.sum()) if total.sum() > 0 else m), []

    def serve(self, m: CloudState, node: Node, ctx: Context) -> dict[str, Task]:
        return self.inner.serve(m.inner, node, ctx)


@value(name="fedgs.Groups")
class Groups:
    """Devices, the groups that they belong to, and a cloud."""

    cloud: Cloud
    group: Group
    tiers: tuple[str, ...]

    def at(self, tier: str) -> Rule:
        return self.cloud if tier == "cloud" else self.group


def fedgs(
    local: Train = Train(),
    clients: Annotated[int, "devices of a group a step"] = 10,
    syncs: Annotated[int, "steps of a group before the cloud averages"] = 50,
    group: Annotated[
        Literal["edge", "user"], "whose devices make a group: those of an edge, or of a user"
    ] = "edge",
    chance: Annotated[float, "share of the devices a step that is drawn by chance"] = 0.2,
) -> Groups:
    """FedAvg of groups that take many small steps, each with devices whose next batches balance."""
    require(clients >= 1, "clients", clients, "must be at least 1: devices of a group a step")
    require(syncs >= 1, "syncs", syncs, "must be at least 1: steps of a group a round")
    require(0 <= chance <= 1, "chance", chance, "must be a share, from 0 to 1, such as 0.2")
    require(group in ("edge", "user"), "group", group, "must be 'edge' or 'user'")
    fix = "covers updates alone, but devices also tell the labels of their batches; leave it out"
    require(local.privacy is None, "train.privacy", local.privacy, fix)
    one = replace(local, sampler=OneBatch(), epochs=1, steps=1)
    steps = Group(one, clients, syncs, round(chance * clients))
    return Groups(Cloud(FedAvg(EVERYBODY, local)), steps, (group,))


def _asks_labels(task: Task | None) -> bool:
    return task is not None and "params" not in task.send
