"""How Fed-RAC makes tiers of participants and finds everybody's place."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, isfinite, log
from typing import Any, Literal, get_args

import numpy as np

from potluck.algorithms.fedrac.bounds import Landscape, drift, whole_rounds
from potluck.algorithms.fedrac.budgets import share_time
from potluck.algorithms.fedrac.clustering.methods import Method
from potluck.algorithms.fedrac.clustering.resources import Floats, Ints, Resources, check_weights, weighed
from potluck.algorithms.fedrac.costs import (
    Bound,
    Crowd,
    Judge,
    Place,
    Surrogate,
    Terms,
    assign,
    near_enough,
    thresholds,
)
from potluck.algorithms.fedrac.forming import (
    By,
    bytes_of,
    costs,
    gathered,
    refuse,
    response_time,
    sized,
    unable,
)
from potluck.algorithms.fedrac.state import Tiers, nearest_cluster, open_tiers, placed, settled
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import nearest, require
from potluck.core.job import ModelSpec, Nets
from potluck.core.messages import Command, Node, Note
from potluck.jobs import Train
from potluck.rules.nested import cut

Judged = Literal["surrogate", "bound"]
GROWTH = 1.2  # of theta from tier to tier, as in the notebook
LEAST = 4  # participants: with fewer there are no two clusters to choose from


@value
class Placing:
    """Clusters, models, times and Procedure 2."""

    local: Train
    rounds: tuple[int, ...]  # of the leader, the next tier and so on; the last number is for all others too
    goal: float | None  # precision from which rounds are computed instead
    tiers: int | None
    fewer: int
    smallest_tier: int
    method: Method
    weights: tuple[float, float, float]
    alpha: float
    by: By
    kappa: float
    mar: float | None
    judge: Judged
    delta: float
    theta: float
    landscape: Landscape
    least_epochs: int | None
    least_rows: float
    teach: bool
    hints: bool  # whether features are taught, too
    chained: bool
    mix: bool
    leave_out: bool

    def __post_init__(self) -> None:
        check_weights(self.weights)
        for key in ("alpha", "kappa"):
            share = getattr(self, key)
            require(0 < share < 1, key, share, "must be above 0 and below 1, such as 0.5")
        for key, known in (("by", By), ("judge", Judged), ("method", Method)):
            choice, names = getattr(self, key), get_args(known)
            require(choice in names, key, choice, nearest(str(choice), names))
        fix = "give at least 1 round, or numbers for the leader, the next tier and so on"
        require(bool(self.rounds) and min(self.rounds) >= 1, "rounds", list(self.rounds), fix)
        require(self.tiers is None or self.tiers >= 1, "tiers", self.tiers, "must be at least 1, or left out")
        require(self.fewer >= 0, "fewer", self.fewer, "must be 0 or more: tiers fewer than clusters")
        require(self.smallest_tier >= 1, "smallest_tier", self.smallest_tier, "must be at least 1: devices")
        for key in ("goal", "mar"):
            number = getattr(self, key)
            require(number is None or 0 < number < float("inf"), key, number, "must be above 0, or left out")
        for key in ("delta", "theta"):
            require(getattr(self, key) > 0, key, getattr(self, key), "must be above 0")
        require(0 < self.least_rows <= 1, "least_rows", self.least_rows, "must be a share above 0, up to 1")
        most, low = self.local.epochs, self.least_epochs
        fix = f"must be between 1 and train.epochs, {most}"
        require(low is None or 1 <= low <= most, "least_epochs", low, fix)

    def left_out(self, ctx: Context) -> frozenset[Node]:
        """Those, there or not, that can't hold even the smallest model: refused, unless that is allowed."""
        memory = _memory(ctx)
        lacking = unable(memory, ctx.models, self.local, self.alpha, self.by)
        if not self.leave_out:
            refuse(lacking, memory)
        fix = "too few are left without them; choose a smaller model or batch"
        enough = len(memory) - len(lacking) >= LEAST
        require(enough or not lacking, "leave_out", self.leave_out, fix)
        return frozenset(lacking)

    def found(self, m: Tiers, ctx: Context) -> tuple[Tiers, list[Command]]:
        """The tiers of everybody who is known."""
        why = "too little memory for the smallest model"
        notes: list[Command] = [Note("left_out", why, n) for n in sorted(m.left_out)]
        nodes = sorted(m.known)
        resources = self._resources(m, nodes)
        if resources.constant:
            notes.append(Note("constant_resources", list(resources.constant)))  # they tell nobody apart
        labels, index = gathered(resources, self.tiers, self.fewer, self.smallest_tier, self.method, seed=0)
        specs = self._specs(m, dict(zip(nodes, labels.tolist(), strict=True)), ctx)
        m = self._begun(m, specs, labels, nodes, ctx)
        crowd = self._crowd(m, nodes, resources.scores, ctx.models)
        total = self.mar
        if total is None:
            total = response_time(crowd, labels, self.epochs(len(specs)), m.rounds, self.kappa, self.chained)
        times = share_time(total, len(specs), self.kappa, self.chained)
        m = replace(m, seconds=tuple(float(t) / r for t, r in zip(times, m.rounds, strict=True)))
        places = self.places(m, ctx)
        m = settled(m, places)
        sizes = [ctx.models[spec].nbytes for spec in specs]
        found = {k: reached if isfinite(reached) else "infinite" for k, reached in index.items()}
        told = {"index": found, "clusters": np.bincount(labels).tolist(), "members": list(m.sizes),
                "scales": [getattr(spec, self.by) for spec in specs], "bytes": sizes, "mar": total,
                "seconds": list(m.seconds), "rounds": list(m.rounds)}  # fmt: skip
        late = [n for n, place in places.items() if place.late]
        notes += [Note("tiers", told), *(placed(n, place, "resources") for n, place in places.items())]
        return m, [*notes, *([Note("late_at_best", late)] if late else [])]

    def places(self, m: Tiers, ctx: Context) -> dict[Node, Place]:
        """Everybody's place, by what is known of them now."""
        nodes = sorted(m.known)
        resources = self._resources(m, nodes)
        clusters = nearest_cluster(m, nodes, resources.scores)
        labels = np.array([clusters[n] for n in nodes])
        allowed = near_enough(resources.scores, labels) if self.judge == "surrogate" else None
        terms = Terms(
            np.array(m.seconds), self.epochs(len(m.specs)), self.local.batch, least_rows=self.least_rows
        )
        crowd = self._crowd(m, nodes, resources.scores, ctx.models)
        found = assign(
            crowd,
            terms,
            lambda tier, batch: bytes_of(ctx.models, m.specs[tier], self.local, batch),
            self._judge(m, nodes, ctx),
            open_tiers(m, nodes, allowed),
        )
        if not self.leave_out:
            refuse([nodes[i] for i in found.unable], _memory(ctx))
        return {nodes[place.who]: place for place in found.places}

    def richest(self, m: Tiers, nodes: Sequence[Node], share: float) -> list[Node]:
        """This share of some devices, rounded up, by what is known of everybody now."""
        everybody = sorted(m.known)
        scores = dict(zip(everybody, self._resources(m, everybody).scores.tolist(), strict=True))
        return sorted(sorted(nodes, key=lambda n: -scores[n])[: ceil(share * len(nodes))])

    def epochs(self, tiers: int) -> Ints:
        """Of each tier: the same, or falling evenly to the least."""
        last = self.local.epochs if self.least_epochs is None else self.least_epochs
        return np.rint(np.linspace(self.local.epochs, last, tiers)).astype(np.int64)

    def teachers(self, specs: Sequence[ModelSpec]) -> list[ModelSpec | None]:
        """Whose model teaches each tier, if all of them have members."""
        if not self.teach:
            return [None] * len(specs)
        return [None if f == 0 else specs[f - 1 if self.chained else 0] for f in range(len(specs))]

    def _resources(self, m: Tiers, nodes: Sequence[Node]) -> Resources:
        return weighed(np.array([m.known[n].vector for n in nodes]), self.weights)

    def _crowd(self, m: Tiers, nodes: Sequence[Node], scores: Floats, models: Nets) -> Crowd:
        devices = [m.known[n] for n in nodes]
        return costs(devices, scores, models, m.specs, m.rounds, self.teachers(m.specs), self.hints)

    def _specs(self, m: Tiers, clusters: dict[Node, int], ctx: Context) -> tuple[ModelSpec, ...]:
        """The tiers' models."""
        memory = {n: there for n, there in _memory(ctx).items() if n not in m.left_out}
        last = max(clusters.values())  # its model is for those who come later, too
        labels = np.array([clusters.get(n, last) for n in memory])
        least = np.array(list(memory.values()))
        return sized(least, labels, ctx.models, self.local, self.alpha, self.by)

    def _begun(
        self, m: Tiers, specs: tuple[ModelSpec, ...], labels: Ints, nodes: list[Node], ctx: Context
    ) -> Tiers:
        """Models before training, and how many rounds each has."""
        big, whole = ctx.models[specs[0]], ctx.models[specs[0]].init(ctx.key)
        # Layers can be averaged across tiers only if their channels mean the same: parts of one model then.
        params = [cut(whole, big, ctx.models[s]) if self.mix else ctx.models[s].init(ctx.key) for s in specs]
        rounds = [self.rounds[min(f, len(self.rounds) - 1)] for f in range(len(specs))]
        if self.goal is not None:
            rows = np.array([m.known[n].rows for n in nodes], np.float64)
            for f, epochs in enumerate(self.epochs(len(specs)).tolist()):
                shares = rows[labels == f] / rows[labels == f].sum()
                rounds[f] = whole_rounds(
                    self.goal, epochs, self.landscape, drift(shares, epochs, self.landscape)
                )
        clusters = dict(zip(nodes, labels.tolist(), strict=True))
        none = (0,) * len(specs)
        return replace(m, specs=specs, params=tuple(params), rounds=tuple(rounds), done=none, sizes=none,
                       clusters=clusters)  # fmt: skip

    def _judge(self, m: Tiers, nodes: Sequence[Node], ctx: Context) -> Judge:
        tiers = len(m.specs)
        limits: Any = thresholds(tiers, self.delta), thresholds(tiers, self.theta, GROWTH)
        if self.judge == "bound":
            return Bound(self.landscape, np.array(m.rounds, np.float64), self.local.optim.lr, *limits)
        guess = log(max(2, ctx.models[m.specs[0]].classes))  # the loss of a guess
        return Surrogate(np.array([m.losses.get(n, np.nan) for n in nodes]) / guess, *limits)


def _memory(ctx: Context) -> dict[Node, float]:
    """Bytes that everybody says to have, whether there or not."""
    nodes = [int(n) for n in ctx.children]
    return dict(zip(nodes, ctx.profiles(nodes).memory.tolist(), strict=True))
