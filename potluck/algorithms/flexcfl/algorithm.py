"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import field, replace
from typing import Annotated, Self

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.flexcfl.device import Recount
from potluck.algorithms.scaffold import ControlState
from potluck.authoring import (
    Choice,
    Cohort,
    Command,
    ConfigError,
    Context,
    Few,
    GlobalState,
    Got,
    Many,
    Node,
    Note,
    Params,
    RuleState,
    Seconds,
    Task,
    Train,
    Until,
    require,
    split,
    value,
    weighted_sum,
)
from potluck.rules.census import CENSUS, Census
from potluck.rules.grouped import DOOR, ROOT, GroupRounds, Groups, move_devices, split_group
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.vectors import Vector, length, mean_rows, number_clusters

LABELS = "labels"


@value(eq=False)
class Founding:
    """Those who train first; afterwards, those who are to look at their labels."""

    census: Census = field(default_factory=Census)
    look: tuple[Node, ...] = ()


FoundGroups = Groups[RuleState, Founding]


@value
class FlexCFL:
    """Groups found before training, which newcomers join and members change when their labels do."""

    local: Train = Train()
    inner: Annotated[Cohort | None, "what each group trains by, its `clients` aside; left out: fedavg"] = None
    clients: Annotated[int, "devices a round, over all groups by members"] = 20
    groups: Annotated[Few, "how many"] = 3
    directions: Annotated[Few | None, "of the embedding; left out: as many as groups"] = None
    pretrain_scale: Annotated[int, "devices, per group, that groups are found from"] = 20
    pretrain_steps: Annotated[Many, "batches of the training that devices are sorted by"] = 50
    group_rate: Annotated[float, "how much of the other groups' models is mixed in; 0: nothing"] = 0.0
    shift: Annotated[float, "labels that change, per row, until a member is sorted again; 0: never"] = 0.2
    deadline: Annotated[Seconds | None, "seconds a round; left out: the inner rule's"] = None

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
        _ = self.grouping  # refuses what it can't do

    @property
    def grouping(self) -> GroupRounds:
        pretrain = replace(self.local, steps=self.pretrain_steps)
        return GroupRounds(self.inner or FedAvg(local=self.local), pretrain, self.clients, self.deadline)

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.grouping.inner, robust))

    def start(self, ctx: Context) -> FoundGroups:
        return self.grouping.start(Founding(), ctx)

    def lanes(self, m: FoundGroups, ctx: Context) -> list[str]:
        if not m.fork or not ctx.working:
            return [CENSUS] if ctx.working else []
        return [*([LABELS] if m.more.look else []), *self.grouping.lanes(m, ctx)]

    def plan(self, m: FoundGroups, lane: str, ctx: Context) -> tuple[FoundGroups, list[Command]]:
        if lane == CENSUS:
            params = self.grouping.params(m.leaf[ROOT], ctx)
            wave = min(self.clients, self._count_enough(ctx) - len(m.more.census.nodes))
            census, commands = m.more.census.plan(params, self.grouping.sort, wave, self.deadline, None, ctx)
            return replace(m, more=Founding(census)), commands
        if lane == LABELS:
            job = Recount(ctx.models[self.local.model].classes, self.shift)
            asked = [Task(n, job, {}, slot=LABELS) for n in m.more.look]
            return replace(m, more=replace(m.more, look=())), [Until(self.deadline), *asked]
        return self.grouping.plan(m, lane, ctx)

    def merge(self, m: FoundGroups, lane: str, got: Got, ctx: Context) -> tuple[FoundGroups, list[Command]]:
        if lane == CENSUS:
            census = m.more.census.merge(got)
            m = self.grouping.close_lane(replace(m, more=Founding(census)), lane, ctx, self.clients)
            if census.is_complete(self._count_enough(ctx), None, ctx):
                return self._form_groups(m, ctx)
            return (replace(m, more=Founding()) if census.is_exhausted(ctx) else m), []
        if lane == LABELS:
            gone = [r.task.to for r in got.replies if r.body["changed"] > self.shift]
            notes: list[Command] = [Note("shift", {"round": m.round, "devices": len(gone)})] if gone else []
            return move_devices(m, dict.fromkeys(gone, ROOT)), notes
        m, commands = self.grouping.merge(m, lane, got, ctx)
        if lane != DOOR and self.group_rate > 0:
            m = replace(m, leaf=m.leaf | {lane: self._mix(m, lane, ctx)})
        if self.shift:
            look = dict.fromkeys([*m.more.look, *(r.task.to for r in got.replies)])
            m = replace(m, more=replace(m.more, look=tuple(look)))
        return m, commands

    def serve(self, m: FoundGroups, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        return self.grouping.serve(m, node, ctx)

    def _count_enough(self, ctx: Context) -> int:
        return min(self.groups * self.pretrain_scale, len(ctx.children))

    def _form_groups(self, m: FoundGroups, ctx: Context) -> tuple[FoundGroups, list[Command]]:
        nodes, rows, state = m.more.census.nodes, m.more.census.rows(), m.leaf[ROOT]
        params = self.grouping.params(state, ctx)
        part = find_clusters(embed(rows, self.directions or self.groups), self.groups, ctx.rng)
        ways = mean_rows(rows, part)
        states = [with_params(state, add_vector(params, way)) for way in ways]
        m, note = split_group(m, ROOT, params, states, nodes, part, ways)
        return replace(m, more=Founding(look=tuple(nodes) if self.shift else ())), [note]

    def _mix(self, m: FoundGroups, group: str, ctx: Context) -> RuleState:
        models = {name: self.grouping.params(state, ctx) for name, state in m.leaf.items()}
        return with_params(m.leaf[group], mix_models(models, group, self.group_rate))


def embed(rows: Vector, directions: int) -> NDArray[np.float64]:
    """The cosines [rows, directions] of updates with the directions that hold most of them (EDC)."""
    table = rows.astype(np.float64)
    squares, left = np.linalg.eigh(table @ table.T)  # of left singular vectors, ascending
    lengths = np.sqrt(np.maximum(squares, 0))[::-1][:directions]
    along = left[:, ::-1][:, :directions] * lengths  # u_k sigma_k: each row's part along v_k
    return np.asarray(along / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12))


def find_clusters(points: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """k-means, the best of ten starts; fewer clusters than asked for if there are fewer points."""
    from sklearn.cluster import KMeans  # here: it takes a second to import

    count = min(count, len(np.unique(points, axis=0)))
    return number_clusters(
        KMeans(count, n_init=10, random_state=int(rng.integers(2**31))).fit(points).labels_
    )


def mix_models(models: dict[str, Params], group: str, rate: float) -> Params:
    """A group's model with some of the others', each divided by its length."""
    weights = [1.0 if name == group else rate / max(length(p), 1e-12) for name, p in models.items()]
    share = torch.tensor(weights, dtype=torch.float64)
    params: Params = weighted_sum(list(models.values()), share / share.sum())
    return params


def add_vector(params: Params, way: Vector) -> Params:
    """Parameters plus an update that was laid out as one vector."""
    tensors, rebuild = split(params)
    steps = torch.as_tensor(way).split([p.numel() for p in tensors])
    out: Params = rebuild([p + s.reshape(p.shape).to(p) for p, s in zip(tensors, steps, strict=True)])
    return out


def with_params(state: RuleState, params: Params) -> RuleState:
    """The state of a rule with one model, or of one around it, with other parameters."""
    if isinstance(state, GlobalState):
        return replace(state, params=params)
    if isinstance(state, ControlState):
        return replace(state, inner=replace(state.inner, params=params))
    fix = "its model can't be replaced; take a rule in rounds with one model, such as 'fedyogi'"
    raise ConfigError(f"inner: {type(state).__name__} is what it remembers, and {fix}")
