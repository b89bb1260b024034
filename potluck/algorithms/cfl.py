"""CFL (Sattler, Müller, Samek 2020, Clustered Federated Learning: Model-Agnostic Distributed Multitask
Optimization under Privacy Constraints).

Where devices want different things, federated averaging comes to rest at a point where nobody does: the mean
update is short while single ones stay long. Then the group is cut in two, so that the updates of the two
halves point as far apart as can be; each half goes on with a model of its own, and may be cut again.

The cut is that of the authors' code: complete linkage on the cosine of whole updates; each half applies the
mean of its own updates of that round. When to cut is ours: the authors' lengths, which `eps1 = 0.4` and
`eps2 = 1.6` bring back, belong to one model, rate and momentum, and elsewhere they never cut or always do. So
lengths are compared with each other: the mean update is shorter than a share `rest` of what single ones have
on average, and these are still longer than a share `apart` of what they had in the first three rounds of all
(on average, where the authors take the longest, which one odd device can decide). Every round notes these
numbers (`lengths`). Groups that one model suits well enough, such as turned images, may stay together.

Other deviations: the paper has everybody take part in every round, which is what happens here when `clients`
is left out; otherwise lengths are those of the round's participants, whose mean is noisier. Members that were
absent at a cut train the model of that moment once and join the half whose mean direction is nearest (the
paper sends new devices down the tree in this way, by the nearest member). The rate isn't decayed. The inner
rule averages by samples (the authors' code: equally), but the criterion doesn't.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Self, TypeAlias

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
    Note,
    Portion,
    Reply,
    Seconds,
    Task,
    Train,
    equally,
    fold,
    require,
    value,
)
from potluck.core.notes import Notes
from potluck.rules.grouped import DOOR, ROOT, GroupRounds, Groups, split_group
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.vectors import Vector, flatten, length, mean_rows, normalise, number_clusters

FIDELITY: Final = "authors' code, but when to cut is Potluck's own"
FIRST: Final = 3  # rounds, whose updates later ones are measured by
NOTES = Notes(
    {
        "lengths mean": "length of the mean update",
        "lengths longest": "length of the longest update",
        "lengths rest": "the mean update's length, as a share of what single ones have on average",
        "lengths apart": "the average length of updates, as a share of that in the first rounds",
    },
    group="cohort",
)


@value
class FirstRounds:
    """How long updates were in the first rounds of all."""

    rounds: int = 0
    single: float = 0.0  # the average length of single updates, a mean over these rounds


Cohorts: TypeAlias = Groups[Any, FirstRounds]


@value
class Lengths:
    """How long a round's updates are."""

    mean: float  # of the mean update
    single: float  # of single ones, on average
    longest: float


@value
class CFL:
    """Groups that are cut in two when their members no longer agree."""

    local: Train = Train()
    inner: Annotated[Cohort | None, "what each group trains by, its `clients` aside; left out: fedavg"] = None
    clients: Annotated[int | None, "devices a round, over all groups by members; left out: everybody"] = None
    rest: Annotated[
        Portion, "cut only if the mean update has less than this share of single ones' length"
    ] = 0.2
    apart: Annotated[
        Portion, "and these more than this share of the length that they had in the first rounds"
    ] = 0.6
    eps1: Annotated[
        float | None, "in place of `rest`: the mean update is shorter than this; the authors' 0.4"
    ] = None
    eps2: Annotated[
        float | None, "in place of `apart`: the longest one is longer than this; the authors' 1.6"
    ] = None
    min_members: Annotated[int, "and so many at least took part"] = 3
    min_round: Annotated[
        int, "and the group, with what it came of, has trained for more rounds than these"
    ] = 20
    deadline: Annotated[Seconds | None, "seconds a round; left out: the inner rule's"] = None

    def __post_init__(self) -> None:
        for name in ("rest", "apart"):
            share = getattr(self, name)
            require(
                0 < share <= 1, name, share, "must be above 0 and at most 1: a share of lengths of updates"
            )
        fix = "must be above 0, such as 0.4: a length of the mean update; or left out"
        require(self.eps1 is None or self.eps1 > 0, "eps1", self.eps1, fix)
        fix = "must be 0 or more, such as 1.6: a length of single updates; or left out"
        require(self.eps2 is None or self.eps2 >= 0, "eps2", self.eps2, fix)
        require(
            self.min_members >= 2, "min_members", self.min_members, "must be at least 2: one can't be cut"
        )
        require(self.min_round >= 0, "min_round", self.min_round, "must be 0 or more: rounds before a cut")
        _ = self.groups  # refuses what it can't do

    @property
    def groups(self) -> GroupRounds:
        return GroupRounds(self.inner or FedAvg(local=self.local), self.local, self.clients, self.deadline)

    def find_doubt(self, members: int) -> str | None:
        """Whether a round hears too few ever to cut a group."""
        heard = members if self.clients is None else min(self.clients, members)
        if heard >= self.min_members:
            return None
        fix = "raise clients" if members >= self.min_members else "lower it"
        return f"cfl: no group is cut: {heard} members a round, and min_members = {self.min_members}; {fix}"

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.groups.inner, robust))

    def start(self, ctx: Context) -> Cohorts:
        return self.groups.start(FirstRounds(), ctx)

    def lanes(self, m: Cohorts, ctx: Context) -> list[str]:
        return self.groups.lanes(m, ctx)

    def plan(self, m: Cohorts, lane: str, ctx: Context) -> tuple[Cohorts, list[Command]]:
        return self.groups.plan(m, lane, ctx)

    def merge(self, m: Cohorts, lane: str, got: Got, ctx: Context) -> tuple[Cohorts, list[Command]]:
        after, commands = self.groups.merge(m, lane, got, ctx)
        heard = [r for r in got.replies if r.weight > 0]
        if lane == DOOR or not heard:
            return after, commands
        now = measure_lengths(heard)
        first: FirstRounds = extend_first(m.more, now) if lane == ROOT else m.more
        after = replace(after, more=first)
        commands = [*commands, note_lengths(now, first, lane)]
        if len(heard) < self.min_members or after.leaf[lane].round <= self.min_round:
            return after, commands
        if not self.is_at_rest(now, first):
            return after, commands
        rows = np.stack([flatten(r.body["delta"]) for r in heard])
        half = halve(rows)
        sides = [Got([r for r, h in zip(heard, half, strict=True) if h == k], got.lost) for k in (0, 1)]
        states = [self.groups.merge_group(m, lane, side, ctx)[0] for side in sides]
        params, nodes = self.groups.params(m.leaf[lane], ctx), [r.task.to for r in heard]
        after, note = split_group(after, lane, params, states, nodes, half, mean_rows(normalise(rows), half))
        return after, [*commands, note]

    def is_at_rest(self, now: Lengths, first: FirstRounds) -> bool:
        """Whether the mean of all updates is short while single ones are long."""
        short = now.mean < (self.rest * now.single if self.eps1 is None else self.eps1)
        if self.eps2 is None:
            return short and now.single > self.apart * first.single
        return short and now.longest > self.eps2

    def serve(self, m: Cohorts, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        return self.groups.serve(m, node, ctx)


def measure_lengths(replies: Sequence[Reply]) -> Lengths:
    """How long updates are, and their mean; each counts alike."""
    lengths = [length(r.body["delta"]) for r in replies]
    mean = fold(replies, weigh=equally)
    assert mean is not None, "somebody was heard"
    return Lengths(length(mean), sum(lengths) / len(lengths), max(lengths))


def extend_first(first: FirstRounds, now: Lengths) -> FirstRounds:
    """The same with another of the first rounds; later ones don't count."""
    if first.rounds >= FIRST:
        return first
    rounds = first.rounds + 1
    return FirstRounds(rounds, first.single + (now.single - first.single) / rounds)


def note_lengths(now: Lengths, first: FirstRounds, group: str) -> Note:
    """What the criterion sees, so that people know how far from a cut a group is."""
    shares = {"rest": now.mean / (now.single or 1.0), "apart": now.single / (first.single or 1.0)}
    return Note("lengths", {"mean": now.mean, "longest": now.longest, **shares}, group or None)


def halve(rows: Vector) -> NDArray[np.int64]:
    """Two halves, so that the most unlike ones within a half are as alike as can be."""
    from sklearn.cluster import AgglomerativeClustering  # here: it takes a second to import

    unit = normalise(rows)
    tree = AgglomerativeClustering(2, metric="precomputed", linkage="complete")
    return number_clusters(tree.fit(1 - unit @ unit.T).labels_)
