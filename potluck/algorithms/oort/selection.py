"""Oort's selection: devices whose losses are large and who are fast, and now and then somebody new.

The score of a device that was heard is its statistical utility, |B| sqrt(mean squared loss), brought to about
0..1, plus a bonus that grows while it isn't heard; one that takes longer than the preferred time is punished.
A part of every round goes to devices never heard, those with many rows first, with the same penalty for slow
ones. The preferred time is a percentile of all durations, which a pacer raises when utility no longer
changes, so that slow devices get their turn.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from potluck.algorithms.oort.state import (
    Floats,
    Observation,
    OortState,
    measure_utility,
    stack_claims,
)
from potluck.authoring import (
    Context,
    Got,
    Lost,
    Node,
    Power,
    Reply,
    Spent,
    Tally,
    Task,
    Train,
    part,
    require,
    value,
)


@part("select")
@value
class Oort:
    """Exploits devices of high utility, statistical and of speed, and explores new ones."""

    explore: Annotated[float, "share of a round that goes to devices never heard, at first"] = 0.9
    explore_decay: Annotated[float, "factor on it, every round"] = 0.98
    explore_least: Annotated[float, "and where it ends"] = 0.3
    window: Annotated[float, "new devices are drawn among so many times as are wanted: the best"] = 5.0
    cutoff: Annotated[float, "known ones are drawn above this share of the lowest score that would do"] = 0.05
    clip: Annotated[float, "utilities above this quantile count as if at it: outliers don't take over"] = 0.9
    doubt: Annotated[float, "how much it counts that a device wasn't heard for long"] = 0.1
    penalty: Annotated[Power, "power of (preferred / own seconds) for devices slower than preferred"] = 2.0
    pace: Annotated[float, "percentile of durations that is preferred, at first"] = 30.0
    pace_every: Annotated[int, "rounds between two looks of the pacer"] = 20
    pace_step: Annotated[float, "by how much it raises or lowers the percentile"] = 5.0
    reach: Annotated[int, "new devices that are looked at a round, of a larger crowd"] = 10_000

    def __post_init__(self) -> None:
        for name in ("explore", "explore_least", "clip", "cutoff"):
            share = getattr(self, name)
            require(0 <= share <= 1, name, share, "must be a share, from 0 to 1")
        for name in ("doubt", "penalty"):
            power = getattr(self, name)
            require(0 <= power < inf, name, power, "must be 0 or more; 0 leaves it out")
        decay, every = self.explore_decay, self.pace_every
        require(0 < decay <= 1, "explore_decay", decay, "must be above 0 and at most 1, such as 0.98")
        require(1 <= self.window < inf, "window", self.window, "must be at least 1, such as 5")
        require(0 < self.pace <= 100, "pace", self.pace, "must be a percentile above 0; 100 prefers nobody")
        require(every >= 1, "pace_every", every, "must be at least 1 round, such as 20")
        require(0 <= self.pace_step <= 100, "pace_step", self.pace_step, "must be 0 to 100; 0: no pacer")
        require(self.reach >= 1, "reach", self.reach, "must be at least 1, such as 10000")

    def start(self) -> OortState:
        return OortState(self.explore, self.pace)

    def pick(self, picks: OortState, count: int, ctx: Context) -> tuple[list[Node], OortState]:
        members, fresh = picks.find_members(ctx.children), ctx.ready(self._find_new(picks, ctx))
        known, now = ctx.ready(members), picks.round + 1
        expected = picks.expect(fresh, ctx).sum(1)
        limit = find_preferred([*(picks.heard[n].spent.total for n in members), *expected], picks.pace)
        share = max(picks.explore * self.explore_decay, self.explore_least)
        # Rounded at random, so that the share holds however few are asked for.
        new = min(int(count * share + ctx.rng.random()), len(fresh))
        old = min(count - new, len(known))
        new = min(count - old, len(fresh))
        if old + new == 0:
            return [], picks
        scores = self.scores([picks.heard[n] for n in known], now, limit)
        exploited = [known[i] for i in self.draw_known(scores, old, ctx.rng)]
        worth = picks.count_rows(fresh, ctx) * self.penalise(expected, limit)
        explored = [fresh[i] for i in self.draw_new(worth, new, ctx.rng)]
        asked = dict.fromkeys(explored, (ctx.now, False)) | dict.fromkeys(exploited, (ctx.now, True))
        ctx.only(asked).sample(len(asked))  # nobody else gets them during this event
        return [*asked], replace(picks, explore=share, round=now, asked=picks.asked | asked)

    def jobs(self, local: Train, nodes: list[Node], picks: OortState) -> list[Train]:
        return [replace(local, objective=Tally(local.objective))] * len(nodes)

    def learn(
        self, picks: OortState, got: Got, ctx: Context, measure: Callable[[Reply], float] = measure_utility
    ) -> OortState:
        known, heard, asked, replies = picks.heard.copy(), {}, picks.asked.copy(), got.replies
        for r in replies:
            heard[r.task.to] = Observation(measure(r), r.spent, picks.round)
        gains = [h.utility for n, h in heard.items() if asked.get(n, (0.0, False))[1]]
        weight = sum(r.weight for r in replies)
        usual = sum(r.weight * heard[r.task.to].utility for r in replies) / weight if weight > 0 else 0.0
        for node, why in _list_lost(got.lost):
            if why == "late":  # as useful as the others, and as slow as it proved to be
                took = self._time_late(picks, node, ctx.now - asked.get(node, (ctx.now, False))[0], ctx)
                heard[node] = Observation(usual, took, picks.round)
            elif why == "bad" and node in known:
                heard[node] = replace(known[node], utility=0.0, last=picks.round)
            elif why == "bad":
                heard[node] = Observation(0.0, picks.expect_one(node, ctx), picks.round)
        for node in (*heard, *(n for n, _ in _list_lost(got.lost))):
            asked.pop(node, None)
        mean = sum(gains) / len(gains) if gains else 0.0
        picks = replace(
            picks, heard=known | heard, asked=asked, gains=(*picks.gains, mean)[-2 * self.pace_every :]
        )
        return self.set_pace(self._learn_rates(picks, replies, ctx))

    # ---------------------------------------------------------------------------------------------- formulas

    def scores(self, heard: Sequence[Observation], now: int, limit: float) -> Floats:
        """Of known devices in round `now`, if `limit` seconds are preferred."""
        utility = np.array([h.utility for h in heard])
        good = np.sort(utility[utility > 0])
        low, high, top = (
            (good[0] * 0.999, good[-1], _find_quantile(good, self.clip)) if len(good) else (0.0, 1.0, 0.0)
        )
        gain = (np.clip(utility, low, top) - low) / max(high - low, 1e-4)
        bonus = np.sqrt(self.doubt * np.log(now) / np.array([h.last for h in heard]))
        out: Floats = (gain + bonus) * self.penalise(np.array([h.spent.total for h in heard]), limit)
        return out

    def penalise(self, seconds: Floats, limit: float) -> Floats:
        """1, or less for devices that take longer than is preferred."""
        late = np.nan_to_num(seconds) > limit
        return np.where(
            late, (limit / np.where(late, seconds, 1.0)) ** self.penalty if limit < inf else 1.0, 1.0
        )

    def draw_known(self, scores: Floats, count: int, rng: np.random.Generator) -> list[int]:
        """Places of so many, drawn by score among those not far below the lowest that would do."""
        if count == 0:
            return []
        order = np.argsort(-scores, kind="stable")
        pool = order[scores[order] >= self.cutoff * scores[order[count - 1]]]
        return [int(i) for i in pool[draw_by_weight(scores[pool], count, rng)]]

    def draw_new(self, weights: Floats, count: int, rng: np.random.Generator) -> list[int]:
        """Places of so many, drawn by weight among those that weigh most."""
        mixed = rng.permutation(len(weights))  # else equals would come by number
        pool = mixed[np.argsort(-weights[mixed], kind="stable")][: int(self.window * count)]
        return [int(i) for i in pool[draw_by_weight(weights[pool], count, rng)]]

    def set_pace(self, picks: OortState) -> OortState:
        """Slower devices are welcome when utility no longer changes; less so when it changes sharply."""
        every, step, now = self.pace_every, self.pace_step, picks.round
        if now < 2 * every or now % every:
            return picks
        before, after = sum(picks.gains[:-every]), sum(picks.gains[-every:])
        change = abs(after - before)
        if change <= 0.1 * before:
            return replace(picks, pace=min(100.0, picks.pace + step))
        return replace(picks, pace=max(step, picks.pace - step)) if change >= 5 * before else picks

    # ------------------------------------------------------------------------------------------------- parts

    def _find_new(self, picks: OortState, ctx: Context) -> list[Node]:
        """Devices never heard: all of them, or of a large crowd as many as can be looked at."""
        children, n = ctx.children, len(ctx.children)
        few = (
            children
            if n <= self.reach
            else [children[i] for i in np.unique(ctx.rng.integers(n, size=self.reach))]
        )
        return [int(node) for node in few if node not in picks.heard]

    def _time_late(self, picks: OortState, node: Node, elapsed: float, ctx: Context) -> Spent:
        """What a late device takes: as known or claimed, and no less than it has taken already."""
        was = picks.heard[node].spent if node in picks.heard else picks.expect_one(node, ctx)
        if was.total <= 0:
            return Spent(compute=elapsed)
        more = max(1.0, elapsed / was.total)
        return Spent(was.down * more, was.compute * more, was.up * more)

    def _learn_rates(self, picks: OortState, replies: Sequence[Reply], ctx: Context) -> OortState:
        if not replies:
            return picks
        spent = np.array([(r.spent.down, r.spent.compute, r.spent.up) for r in replies]).sum(0)
        claimed = stack_claims(ctx.profiles([r.task.to for r in replies])).sum(0)
        seconds, units = picks.seconds + spent, picks.units + claimed
        return replace(picks, seconds=tuple(seconds.tolist()), units=tuple(units.tolist()))


def find_preferred(seconds: Iterable[float], pace: float) -> float:
    """The percentile of some durations; without any, or at 100, no time is too long."""
    known = np.sort([s for s in seconds if s == s])
    return _find_quantile(known, pace / 100) if len(known) and pace < 100 else inf


def draw_by_weight(weights: Floats, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Places drawn one after another without repeats, by weight: who wins a race of exponential times."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.argsort(rng.exponential(size=len(weights)) / weights, kind="stable")[:count]


def _find_quantile(ordered: Floats, quantile: float) -> float:
    return float(ordered[min(int(len(ordered) * quantile), len(ordered) - 1)])


def _list_lost(lost: Sequence[Lost]) -> list[tuple[Node, str]]:
    return [(x.what.to, x.why) for x in lost if isinstance(x.what, Task)]
