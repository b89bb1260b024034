"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.algorithms.fedavg import FedAvg
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.job import Cost, Local, Result
from potluck.core.messages import Choice, Command, Node, Note, Task, Until
from potluck.core.rule import Cohort, Got
from potluck.core.trees import Params, split, weighted_sum
from potluck.jobs import Train
from potluck.rules.census import CENSUS, Census
from potluck.rules.grouped import DOOR, ROOT, Grouped, Groups, parted, settled
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.vectors import Vector, length, means, numbered

LABELS = "labels"


@value
class Recount:
    """Compare the labels of a device's rows with those of last time, and say how much they changed."""

    classes: int
    limit: float  # of the change per row; the labels of that moment are the ones to compare with next

    def cost(self, at: Local) -> Cost:
        return Cost(0.0, {"changed": 0.0})

    def run(self, at: Local) -> Result:
        now = torch.bincount(at.y, minlength=self.classes)
        before = now if at.keep is None else at.keep["counts"].to(now.device)
        changed = float((now - before).abs().sum()) / max(1.0, float(before.sum()))
        first = at.keep is None or changed > self.limit
        return Result({"changed": changed}, keep={"counts": now} if first else None)


@value(eq=False)
class Founding:
    """Those who train first; afterwards, those who are to look at their labels."""

    census: Census
    look: list[Node]


@value
class FlexCFL:
    """Groups found before training, which newcomers join and members change when their labels do."""

    local: Train = Train()
    inner: Annotated[Cohort | None, "what each group trains by, its `clients` aside; left out: fedavg"] = None
    clients: Annotated[int, "devices a round, over all groups by members"] = 20
    groups: Annotated[int, "how many"] = 3
    directions: Annotated[int | None, "of the embedding; left out: as many as groups"] = None
    pretrain_scale: Annotated[int, "devices, per group, that groups are found from"] = 20
    pretrain_steps: Annotated[int, "batches of the training that devices are sorted by"] = 50
    group_rate: Annotated[float, "how much of the other groups' models is mixed in; 0: nothing"] = 0.0
    shift: Annotated[float, "labels that change, per row, until a member is sorted again; 0: never"] = 0.2
    deadline: Annotated[float | None, "seconds a round; left out: the inner rule's"] = None

    def __post_init__(self) -> None:
        wide = self.directions is None or self.directions >= 1
        require(self.groups >= 1, "groups", self.groups, "must be at least 1, such as 3")
        require(wide, "directions", self.directions, "must be at least 1, or left out")
        require(
            self.pretrain_scale >= 1, "pretrain_scale", self.pretrain_scale, "must be at least 1, such as 20"
        )
        require(
            self.pretrain_steps >= 1, "pretrain_steps", self.pretrain_steps, "must be at least 1, such as 50"
        )
        require(self.group_rate >= 0, "group_rate", self.group_rate, "must be 0 or more, such as 0.1")
        require(self.shift >= 0, "shift", self.shift, "must be 0 or more, such as 0.2; 0: members stay")
        _ = self.many  # refuses what it can't do

    @property
    def many(self) -> Grouped:
        pretrain = replace(self.local, steps=self.pretrain_steps)
        return Grouped(self.inner or FedAvg(local=self.local), pretrain, self.clients, self.deadline)

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.many.inner, robust))

    def start(self, ctx: Context) -> Groups:
        return replace(self.many.start(ctx), more=Founding(Census([], [], {}), []))

    def lanes(self, m: Groups, ctx: Context) -> list[str]:
        if not m.fork or not ctx.working:
            return [CENSUS] if ctx.working else []
        return [*([LABELS] if m.more.look else []), *self.many.lanes(m, ctx)]

    def plan(self, m: Groups, lane: str, ctx: Context) -> tuple[Groups, list[Command]]:
        if lane == CENSUS:
            params, missing = (
                self.many.params(m.leaf[ROOT], ctx),
                self._enough(ctx) - len(m.more.census.nodes),
            )
            wave = min(self.clients, missing)
            census, commands = m.more.census.plan(params, self.many.sort, wave, self.deadline, None, ctx)
            return replace(m, more=Founding(census, [])), commands
        if lane == LABELS:
            job = Recount(ctx.models[self.local.model].classes, self.shift)
            asked = [Task(n, job, {}, slot=LABELS) for n in m.more.look]
            return replace(m, more=replace(m.more, look=[])), [Until(self.deadline), *asked]
        return self.many.plan(m, lane, ctx)

    def merge(self, m: Groups, lane: str, got: Got, ctx: Context) -> tuple[Groups, list[Command]]:
        if lane == CENSUS:
            census = m.more.census.merge(got)
            m = self.many.counted(replace(m, more=Founding(census, [])), lane, ctx, self.clients)
            if census.complete(self._enough(ctx), None, ctx):
                return self._founded(m, ctx)
            return (replace(m, more=Founding(Census([], [], {}), [])) if census.exhausted(ctx) else m), []
        if lane == LABELS:
            gone = [r.task.to for r in got.replies if r.body["changed"] > self.shift]
            notes: list[Command] = [Note("shift", {"round": m.round, "devices": len(gone)})] if gone else []
            return settled(m, dict.fromkeys(gone, ROOT)), notes
        m, commands = self.many.merge(m, lane, got, ctx)
        if lane != DOOR and self.group_rate > 0:
            m = replace(m, leaf=m.leaf | {lane: self._mixed(m, lane, ctx)})
        if self.shift:
            look = dict.fromkeys([*m.more.look, *(r.task.to for r in got.replies)])
            m = replace(m, more=replace(m.more, look=list(look)))
        return m, commands

    def serve(self, m: Groups, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        return self.many.serve(m, node, ctx)

    def _enough(self, ctx: Context) -> int:
        return min(self.groups * self.pretrain_scale, len(ctx.children))

    def _founded(self, m: Groups, ctx: Context) -> tuple[Groups, list[Command]]:
        nodes, rows, state = m.more.census.nodes, m.more.census.rows(), m.leaf[ROOT]
        params = self.many.params(state, ctx)
        part = clusters(embedding(rows, self.directions or self.groups), self.groups, ctx.rng)
        ways = means(rows, part)
        states = [with_params(state, moved(params, way)) for way in ways]
        m, note = parted(m, ROOT, params, states, nodes, part, ways)
        return replace(m, more=Founding(Census([], [], {}), list(nodes) if self.shift else [])), [note]

    def _mixed(self, m: Groups, group: str, ctx: Context) -> Any:
        models = {name: self.many.params(state, ctx) for name, state in m.leaf.items()}
        return with_params(m.leaf[group], mixed(models, group, self.group_rate))


def embedding(rows: Vector, directions: int) -> NDArray[np.float64]:
    """The cosines [rows, directions] of updates with the directions that hold most of them (EDC)."""
    table = rows.astype(np.float64)
    squares, left = np.linalg.eigh(table @ table.T)  # of left singular vectors, ascending
    lengths = np.sqrt(np.maximum(squares, 0))[::-1][:directions]
    along = left[:, ::-1][:, :directions] * lengths  # u_k sigma_k: each row's part along v_k
    return np.asarray(along / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12))


def clusters(points: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """k-means, the best of ten starts; fewer clusters than asked for if there are fewer points."""
    from sklearn.cluster import KMeans  # here: it takes a second to import

    count = min(count, len(np.unique(points, axis=0)))
    return numbered(KMeans(count, n_init=10, random_state=int(rng.integers(2**31))).fit(points).labels_)


def mixed(models: dict[str, Params], group: str, rate: float) -> Params:
    """A group's model with some of the others', each divided by its length."""
    weights = [1.0 if name == group else rate / max(length(p), 1e-12) for name, p in models.items()]
    share = torch.tensor(weights, dtype=torch.float64)
    params: Params = weighted_sum(list(models.values()), share / share.sum())
    return params


def moved(params: Params, way: Vector) -> Params:
    """Parameters plus an update that was laid out as one vector."""
    tensors, rebuild = split(params)
    steps = torch.as_tensor(way).split([p.numel() for p in tensors])
    out: Params = rebuild([p + s.reshape(p.shape).to(p) for p, s in zip(tensors, steps, strict=True)])
    return out


def with_params(state: Any, params: Params) -> Any:
    """The state of a rule with one model, or of one around it, with other parameters."""
    if hasattr(state, "params"):
        return replace(state, params=params)
    return replace(state, inner=with_params(state.inner, params))
