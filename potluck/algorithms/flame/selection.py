"""FLAME's selection: devices of high utility, and with each of them others of the same user.

The utility of a device that was heard is a product: its mean loss times the root of its rows, less if it
takes longer than a round should, and, where devices have a budget, less the more of it is used up. From the
highest down, each leads its user's devices into the round, up to a number a user; users whose devices were
taken make way for the next. In a share of the cases the lead goes to a device never heard, drawn in the way
of Oort, but by the root of its rows.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from math import inf, sqrt
from typing import Annotated

import numpy as np

from potluck.algorithms.oort.selection import Oort, find_preferred
from potluck.algorithms.oort.state import Floats, OortState, count_rows, find_mean
from potluck.authoring import Context, Got, Node, Reply, Task, Train, part, require, value

LEAST = 1e-9  # seconds: who took no time at all has used up next to nothing


@value(eq=False)
class FlameState:
    """What is known of devices, and the seconds that each has worked so far."""

    known: OortState
    drain: dict[Node, float] = field(default_factory=dict)


@part("select")
@value
class Flame:
    """Chooses the best devices and completes their users."""

    alpha: Annotated[
        float, "factor on the utility of a device that is just too slow; the lower the harsher"
    ] = 0.5
    seconds: Annotated[float | None, "what a task should take; T; None: as `quantile` says"] = None
    quantile: Annotated[float, "of the times that devices took: what a task should, if no seconds say"] = 0.5
    devices: Annotated[int, "of a user, at most; K"] = 4
    budget: Annotated[float | None, "seconds that a device can work; None: as many as it likes; D_max"] = None
    rank: Annotated[Oort, "how devices never heard are drawn, and what is learnt of the others"] = Oort()

    def __post_init__(self) -> None:
        good = self.budget is None or 0 < self.budget < inf
        require(0 < self.alpha <= 1, "alpha", self.alpha, "must be above 0 and at most 1, such as 0.5")
        timed = self.seconds is None or 0 < self.seconds < inf
        require(timed, "seconds", self.seconds, "must be above 0, such as 30; left out: `quantile` says")
        share = self.quantile
        require(0 < share <= 1, "quantile", share, "must be above 0 and at most 1; 1: nobody is too slow")
        require(self.devices >= 1, "devices", self.devices, "must be at least 1, such as 4")
        require(good, "budget", self.budget, "must be above 0 seconds; left out: energy doesn't count")

    def start(self) -> FlameState:
        return FlameState(self.rank.start())

    def pick(self, picks: FlameState, count: int, ctx: Context) -> tuple[list[Node], FlameState]:
        known = picks.known
        share = max(known.explore * self.rank.explore_decay, self.rank.explore_least)
        there = ctx.ready(self._find_candidates(known, ctx))
        fresh, old = [n for n in there if n not in known.heard], [n for n in there if n in known.heard]
        limit = self.find_limit([known.heard[n].spent.total for n in known.find_members(ctx.children)])
        score = dict(zip(old, self.utilities(old, picks, limit).tolist(), strict=True))
        speed = self.weigh_time(known.expect(fresh, ctx).sum(1), limit)
        worth = np.sqrt(known.count_rows(fresh, ctx)) * speed
        drawn = [fresh[i] for i in self.rank.draw_new(worth, min(count, len(fresh)), ctx.rng)]
        ranked = sorted(score, key=lambda n: -score[n])
        chosen: list[Node] = []
        passed: set[Node] = set()  # devices of users who had their turn
        while len(chosen) < count:
            new, best = (next((n for n in nodes if n not in passed), None) for nodes in (drawn, ranked))
            explores = new is not None and (best is None or ctx.rng.random() < share)
            lead = new if explores else best
            if lead is None:
                break
            user = ctx.siblings(lead)
            others = sorted((n for n in ctx.ready(user) if n != lead), key=lambda n: -score.get(n, -inf))
            chosen += [lead, *others][: min(self.devices, count - len(chosen))]
            passed.update(user)
        if not chosen:
            return [], picks
        ctx.only(chosen).sample(len(chosen))  # nobody else gets them during this event
        asked = known.asked | {n: (ctx.now, n in known.heard) for n in chosen}
        return chosen, replace(picks, known=replace(known, explore=share, round=known.round + 1, asked=asked))

    def jobs(self, local: Train, nodes: list[Node], picks: FlameState) -> list[Train]:
        return self.rank.jobs(local, nodes, picks.known)

    def learn(self, picks: FlameState, got: Got, ctx: Context) -> FlameState:
        drain = picks.drain.copy()
        for r in got.replies:
            drain[r.task.to] = drain.get(r.task.to, 0.0) + r.spent.total
        for lost in got.lost:
            if isinstance(lost.what, Task) and lost.why == "late":
                since, _ = picks.known.asked.get(lost.what.to, (ctx.now, False))
                drain[lost.what.to] = drain.get(lost.what.to, 0.0) + ctx.now - since
        return FlameState(self.rank.learn(picks.known, got, ctx, measure_utility), drain)

    # ---------------------------------------------------------------------------------------------- formulas

    def find_limit(self, times: Sequence[float]) -> float:
        """What a task should take, where devices took these times."""
        return find_preferred(times, 100 * self.quantile) if self.seconds is None else self.seconds

    def utilities(self, nodes: Sequence[Node], picks: FlameState, limit: float) -> Floats:
        """Of devices that were heard, if a task should take so many seconds."""
        heard = [picks.known.heard[n] for n in nodes]
        stat = np.array([h.utility for h in heard])
        time = self.weigh_time(np.array([h.spent.total for h in heard]), limit)
        return np.asarray(stat * time * self.weigh_energy(np.array([picks.drain.get(n, 0.0) for n in nodes])))

    def weigh_time(self, seconds: Floats, limit: float) -> Floats:
        """1, or less for devices that take too long; those of whom nothing is known (NaN) don't."""
        late = np.nan_to_num(seconds) > limit
        return np.where(late, self.alpha * limit / np.where(late, seconds, 1.0) if limit < inf else 1.0, 1.0)

    def weigh_energy(self, drain: Floats) -> Floats:
        """ln(budget / drain), 0 from where it is used up; 1 if there is no budget."""
        if self.budget is None:
            return np.ones(len(drain))
        return np.asarray(np.maximum(np.log(self.budget / np.maximum(drain, LEAST)), 0.0))

    def _find_candidates(self, known: OortState, ctx: Context) -> list[Node]:
        """All devices; of a large crowd those that were heard and as many others as can be looked at."""
        children, n = ctx.children, len(ctx.children)
        if n <= self.rank.reach:
            return [int(node) for node in children]
        some = (int(children[i]) for i in np.unique(ctx.rng.integers(n, size=self.rank.reach)))
        return [*known.find_members(children), *(i for i in some if i not in known.heard)]


def measure_utility(reply: Reply) -> float:
    """FLAME's: mean loss x sqrt(rows)."""
    return find_mean(reply, "losses") * sqrt(count_rows(reply))
