"""FL+HC (Briggs, Fan, Andras 2020, Federated learning with hierarchical clustering of local updates).

Some rounds of federated averaging give a model that all can start from. Then every device trains it once, and
hierarchical clustering of these updates tells who wants the same; each cluster goes on by itself, and nobody
is clustered again.

Deviations: "every device" is asked in waves of `clients`; those that are offline are waited for until a share
`reach` of all has answered, or for `patience` seconds. Who didn't answer trains the model of that moment
once, later, and joins the cluster whose mean update is nearest. Updates of large models are kept as sketches
of `sketch` numbers, which keep euclidean distances and cosines to about a per cent (2,000 updates of 160,000
numbers would fill 1.3 GB, and every snapshot); not so for the manhattan distance, which needs them whole. The
paper sets the threshold by hand; left out, the tree is cut at its widest gap between 2 and `max_groups`
clusters. Waves count as rounds. Clusters share `clients` in proportion to their members.
"""

from dataclasses import replace
from math import ceil
from typing import Annotated, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import (
    Choice,
    Cohort,
    Command,
    Context,
    Few,
    Got,
    Node,
    Repeats,
    RuleState,
    Seconds,
    Task,
    Train,
    Wake,
    require,
    value,
)
from potluck.rules.census import CENSUS, Census
from potluck.rules.grouped import ROOT, GroupRounds, Groups, split_group
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.vectors import Metric, Vector, mean_rows, number_clusters

FIDELITY: Final = "paper"
Linkage = Literal["ward", "complete", "average", "single"]
FoundGroups = Groups[RuleState, Census]


@value
class FLHC:
    """Federated averaging, one clustering of everybody's update, then federated averaging per cluster."""

    local: Train = Train()
    inner: Annotated[Cohort | None, "what all, then each group train by; left out: fedavg"] = None
    clients: Annotated[int, "devices a round, over all groups by members"] = 10
    first_rounds: Annotated[int, "before the clustering"] = 10
    metric: Annotated[Metric, "between updates"] = "euclidean"
    linkage: Annotated[Linkage, "between clusters"] = "ward"
    threshold: Annotated[float | None, "clusters farther apart stay apart; left out: the widest gap"] = None
    max_groups: Annotated[Few, "the most clusters, if the threshold is left out"] = 6
    sketch: Annotated[Repeats, "numbers kept of an update; 0: all"] = 16384
    reach: Annotated[float, "share of the devices whose updates are waited for"] = 0.9
    patience: Annotated[float | None, "seconds after which the clustering goes on with fewer"] = None
    deadline: Annotated[Seconds | None, "seconds a round or wave; left out: the inner rule's"] = None

    def __post_init__(self) -> None:
        ward = self.linkage != "ward" or self.metric == "euclidean"
        require(self.metric in get_args(Metric), "metric", self.metric, f"must be one of {get_args(Metric)}")
        require(
            self.linkage in get_args(Linkage), "linkage", self.linkage, f"must be one of {get_args(Linkage)}"
        )
        require(ward, "metric", self.metric, "linkage 'ward' needs 'euclidean'; or take another linkage")
        require(self.first_rounds >= 0, "first_rounds", self.first_rounds, "must be 0 or more")
        require(self.threshold is None or self.threshold > 0, "threshold", self.threshold, "must be above 0")
        require(
            self.max_groups >= 2, "max_groups", self.max_groups, "must be at least 2; one group is fedavg"
        )
        require(
            self.sketch >= 0, "sketch", self.sketch, "must be above 0, such as 16384, or 0 for whole updates"
        )
        require(
            0 < self.reach <= 1, "reach", self.reach, "must be above 0 and at most 1: a share of the devices"
        )
        patient = self.patience is None or self.patience > 0
        require(patient, "patience", self.patience, "must be above 0 seconds, or left out")
        _ = self.groups  # refuses what it can't do

    @property
    def groups(self) -> GroupRounds:
        short = self.sketch if self.sketch and self.metric != "manhattan" else None
        inner = self.inner or FedAvg(local=self.local)
        return GroupRounds(inner, self.local, self.clients, self.deadline, self.metric, short)

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.groups.inner, robust))

    def start(self, ctx: Context) -> FoundGroups:
        return self.groups.start(Census(), ctx)

    def lanes(self, m: FoundGroups, ctx: Context) -> list[str]:
        early = not m.fork and m.leaf[ROOT].round < self.first_rounds
        return self.groups.lanes(m, ctx) if early or m.fork else [CENSUS] if ctx.working else []

    def plan(self, m: FoundGroups, lane: str, ctx: Context) -> tuple[FoundGroups, list[Command]]:
        if lane != CENSUS:
            return self.groups.plan(m, lane, ctx)
        if m.more.is_complete(self._count_enough(ctx), self.patience, ctx):
            m, commands = self._split(m, ctx)
            return m, [*commands, Wake(ctx.now, "parted")]  # an event, so that the groups may begin
        params = self.groups.params(m.leaf[ROOT], ctx)
        more, commands = m.more.plan(params, self.local, self.clients, self.deadline, self.patience, ctx)
        return replace(m, more=more), commands

    def merge(self, m: FoundGroups, lane: str, got: Got, ctx: Context) -> tuple[FoundGroups, list[Command]]:
        if lane != CENSUS:
            return self.groups.merge(m, lane, got, ctx)
        census = m.more.merge(got, self.groups.sketch)
        m = self.groups.close_lane(replace(m, more=census), lane, ctx, self.clients)
        if census.is_complete(self._count_enough(ctx), self.patience, ctx):
            return self._split(m, ctx)
        # Nobody could be heard at all: once more from the beginning.
        return (replace(m, more=Census()) if census.is_exhausted(ctx) else m), []

    def serve(self, m: FoundGroups, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        return self.groups.serve(m, node, ctx)

    def _count_enough(self, ctx: Context) -> int:
        return ceil(self.reach * len(ctx.children))

    def _split(self, m: FoundGroups, ctx: Context) -> tuple[FoundGroups, list[Command]]:
        nodes, rows, state = m.more.nodes, m.more.rows(), m.leaf[ROOT]
        part = find_clusters(rows, self.metric, self.linkage, self.threshold, self.max_groups)
        states = [state] * (int(part.max()) + 1)  # all go on from the state of all, the optimiser's too
        params = self.groups.params(state, ctx)
        m, note = split_group(
            replace(m, more=Census()), ROOT, params, states, nodes, part, mean_rows(rows, part)
        )
        return m, [note]


def find_clusters(
    rows: Vector, metric: Metric, linkage: Linkage, threshold: float | None, most: int
) -> NDArray[np.int64]:
    """The clusters of the rows of a table."""
    if len(rows) < 2:
        return np.zeros(len(rows), np.int64)
    from scipy.sparse import coo_array  # here: these take a second to import
    from scipy.sparse.csgraph import connected_components
    from sklearn.cluster import AgglomerativeClustering

    tree = AgglomerativeClustering(None, metric=metric, linkage=linkage, distance_threshold=0.0)
    tree.fit(rows.astype(np.float64))
    height = find_gap(tree.distances_, most) if threshold is None else threshold
    merges = np.flatnonzero(tree.distances_ < height)  # node n + i of the tree is its merge i
    ends, size = (len(rows) + np.repeat(merges, 2), tree.children_[merges].reshape(-1)), 2 * len(rows) - 1
    joined = coo_array((np.ones(2 * len(merges)), ends), shape=(size, size))
    return number_clusters(connected_components(joined, directed=False)[1][: len(rows)])


def find_gap(heights: NDArray[np.float64], most: int) -> float:
    """The middle of the widest gap between the heights of merges, where 2 to `most` clusters are left."""
    ordered = np.concatenate([[0.0], np.sort(heights)])[-most:]
    widest = int(np.diff(ordered).argmax())
    return float(ordered[widest : widest + 2].mean()) or np.inf  # 0: all are alike
