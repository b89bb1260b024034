"""CFL (Sattler, Müller, Samek 2020, Clustered Federated Learning: Model-Agnostic Distributed Multitask
Optimization under Privacy Constraints).

Where devices want different things, federated averaging comes to rest at a point where nobody does: the mean
update is short while single ones stay long. Then the group is cut in two, so that the updates of the two
halves point as far apart as can be; each half goes on with a model of its own, and may be cut again.

The cut is that of the authors' code: complete linkage on the cosine of whole updates; each half applies the
mean of its own updates of that round. Deviations: the paper has everybody take part in every round, which is
what happens here when `clients` is left out; otherwise lengths are those of the round's participants, whose
mean is noisier. Members that were absent at a cut train the model of that moment once and join the half whose
mean direction is nearest (the paper sends new devices down the tree in this way, by the nearest member). The
rate isn't decayed. The inner rule averages by samples (the authors' code: equally), but the criterion
doesn't.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Self

import numpy as np
from numpy.typing import NDArray

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import (
    Choice,
    Cohort,
    Command,
    Context,
    Got,
    Node,
    Reply,
    Seconds,
    Task,
    Train,
    equally,
    fold,
    require,
    value,
)
from potluck.rules.grouped import DOOR, GroupRounds, Groups, split_group
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.vectors import Vector, flatten, length, mean_rows, normalise, number_clusters

FIDELITY: Final = "authors' code"


@value
class CFL:
    """Groups that are cut in two when their members no longer agree."""

    local: Train = Train()
    inner: Annotated[Cohort | None, "what each group trains by, its `clients` aside; left out: fedavg"] = None
    clients: Annotated[int | None, "devices a round, over all groups by members; left out: everybody"] = None
    eps1: Annotated[float, "cut only if the mean update is shorter than this"] = 0.4
    eps2: Annotated[float, "and the longest one is longer than this"] = 1.6
    min_members: Annotated[int, "and so many at least took part"] = 3
    min_round: Annotated[
        int, "and the group, with what it came of, has trained for more rounds than these"
    ] = 20
    deadline: Annotated[Seconds | None, "seconds a round; left out: the inner rule's"] = None

    def __post_init__(self) -> None:
        require(self.eps1 > 0, "eps1", self.eps1, "must be above 0, such as 0.4: a length of the mean update")
        require(
            self.eps2 >= 0, "eps2", self.eps2, "must be 0 or more, such as 1.6: a length of single updates"
        )
        require(
            self.min_members >= 2, "min_members", self.min_members, "must be at least 2: one can't be cut"
        )
        require(self.min_round >= 0, "min_round", self.min_round, "must be 0 or more: rounds before a cut")
        _ = self.groups  # refuses what it can't do

    @property
    def groups(self) -> GroupRounds:
        return GroupRounds(self.inner or FedAvg(local=self.local), self.local, self.clients, self.deadline)

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.groups.inner, robust))

    def start(self, ctx: Context) -> Groups:
        return self.groups.start(None, ctx)

    def lanes(self, m: Groups, ctx: Context) -> list[str]:
        return self.groups.lanes(m, ctx)

    def plan(self, m: Groups, lane: str, ctx: Context) -> tuple[Groups, list[Command]]:
        return self.groups.plan(m, lane, ctx)

    def merge(self, m: Groups, lane: str, got: Got, ctx: Context) -> tuple[Groups, list[Command]]:
        after, commands = self.groups.merge(m, lane, got, ctx)
        heard = [r for r in got.replies if r.weight > 0]
        if lane == DOOR or len(heard) < self.min_members or after.leaf[lane].round <= self.min_round:
            return after, commands
        if not is_at_rest(heard, self.eps1, self.eps2):
            return after, commands
        rows = np.stack([flatten(r.body["delta"]) for r in heard])
        half = halve(rows)
        sides = [Got([r for r, h in zip(heard, half, strict=True) if h == k], got.lost) for k in (0, 1)]
        states = [self.groups.merge_group(m, lane, side, ctx)[0] for side in sides]
        params, nodes = self.groups.params(m.leaf[lane], ctx), [r.task.to for r in heard]
        after, note = split_group(after, lane, params, states, nodes, half, mean_rows(normalise(rows), half))
        return after, [*commands, note]

    def serve(self, m: Groups, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        return self.groups.serve(m, node, ctx)


def is_at_rest(replies: Sequence[Reply], eps1: float, eps2: float) -> bool:
    """Whether the mean of all updates is short while some are long."""
    mean = fold(replies, weigh=equally)
    return mean is not None and length(mean) < eps1 and max(length(r.body["delta"]) for r in replies) > eps2


def halve(rows: Vector) -> NDArray[np.int64]:
    """Two halves, so that the most unlike ones within a half are as alike as can be."""
    from sklearn.cluster import AgglomerativeClustering  # here: it takes a second to import

    unit = normalise(rows)
    tree = AgglomerativeClustering(2, metric="precomputed", linkage="complete")
    return number_clusters(tree.fit(1 - unit @ unit.T).labels_)
