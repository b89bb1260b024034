"""The way of the authors' code (FedScale): rewards add up, newcomers take their neighbour's side."""

from collections.abc import Mapping
from math import ceil
from typing import Annotated, ClassVar

import numpy as np

from potluck.algorithms.auxo import clustering
from potluck.algorithms.auxo.clustering import UNKNOWN, Points, Sides
from potluck.algorithms.auxo.criterion import Evidence, Fact, Findings, check_rates
from potluck.algorithms.auxo.device import Explore
from potluck.algorithms.auxo.tree import replace_by_parts
from potluck.authoring import Natural, Power, part, require, value
from potluck.rules.vectors import flatten, normalise

SIDES = 2
TAIL = 0.1  # of an update's numbers, the last ones, which are compared
KNOWN = 20  # a split needs as many labelled members on each side as the population over this; fewer later


@value(eq=False)
class AuthorsState:
    """What a cohort remembers from round to round: how many members got each side."""

    labelled: tuple[int, ...] = ()  # empty: nobody was clustered yet


@part("criterion")
@value
class Authors:
    """The authors' code: k-means once, then the nearest neighbour's side; splits by counts, or `force`."""

    base: Annotated[float, "what a perfect fit adds to a reward, if all participants are known"] = 5.0
    b: Annotated[float, "deviations from the mean distance at which a participant is an outlier"] = 1.0
    gamma: Annotated[float, "unused: rewards add up"] = 0.9
    explore: Annotated[Explore, "how devices guess about cohorts that they have not tried"] = "sums"
    bonus: Annotated[float, "reward of the child on one's own side, when a cohort splits"] = 1.0
    epsilon: Annotated[float, "how often a device tries another cohort, at first"] = 0.01
    decay: Annotated[float, "factor on epsilon, every round"] = 0.99
    scaling: Annotated[Power, "learning rate by share of clients to this power"] = 0.0
    sure: Annotated[Natural, "rounds in its cohorts, before which a device heeds its loss too"] = 0

    def __post_init__(self) -> None:
        require(self.base > 0, "base", self.base, "must be above 0, such as 5")
        require(self.b >= 0, "b", self.b, "must be 0 or more, such as 1")
        check_rates(self)

    members: ClassVar[int] = 2

    @property
    def parts(self) -> int:
        return SIDES

    def start(self) -> AuthorsState:
        return AuthorsState()

    def split(self, learnt: Mapping[str, AuthorsState], cohort: str, into: int) -> dict[str, AuthorsState]:
        return replace_by_parts(learnt, cohort, [self.start() for _ in range(into)])

    def learn(self, seen: Evidence[AuthorsState]) -> Findings[AuthorsState]:
        vectors = np.stack([flatten(u) for u in seen.updates]).astype(np.float64)
        tail = vectors[:, -ceil(TAIL * vectors.shape[1]) :]
        points = normalise(tail - tail.mean(0)).astype(np.float64)
        before = np.array([r["side"].get(SIDES, UNKNOWN) for r in seen.requests], np.int64)
        s = seen.learnt[seen.cohort]
        side = find_sides_by_neighbours(points, before) if s.labelled else None
        if side is None:
            side = clustering.find_sides(points, before, SIDES, seen.rng)
        new = (before == UNKNOWN) & (side != UNKNOWN)
        counts = np.array(s.labelled or (0,) * SIDES) + np.bincount(side[new], minlength=SIDES)
        state = AuthorsState(tuple(int(c) for c in counts))
        gain = self._measure_gain(points, seen) if len(seen.learnt) > 1 else None
        facts: dict[str, Fact] = {"heterogeneity": (clustering.spread(points) / len(points)) ** 0.5}
        facts["heterogeneity_after"] = (clustering.spread(points, side) / len(points)) ** 0.5
        named = [{} if k == UNKNOWN else {SIDES: int(k)} for k in side]
        return Findings(state, named, gain, None, SIDES if self._pays(state, seen) else 0, facts)

    def _measure_gain(self, points: Points, seen: Evidence[AuthorsState]) -> list[float | None] | None:
        """What each adds to its reward: the more, the more participants are known."""
        known = np.array([r["affinity"] > 0 and r["times"] > 0 for r in seen.requests])
        fit = clustering.measure_fit(points, known, self.b)
        return None if fit is None else (self.base * known.mean() * fit).tolist()

    def _pays(self, s: AuthorsState, seen: Evidence[AuthorsState]) -> bool:
        cohorts = len(seen.learnt)
        few, many = min(s.labelled), max(s.labelled)
        enough = few > seen.population / KNOWN * 0.9 ** (cohorts - 1)
        return seen.room >= SIDES and enough and (cohorts == 1 or many < 2 * few)


def find_sides_by_neighbours(points: Points, before: Sides) -> Sides | None:
    """Those without a side take that of the nearest who has one; None if nobody has.

    If only one side is there, the quarter nearest to it is of it, and the others are of the other one.
    """
    known = np.flatnonzero(before != UNKNOWN)
    if not len(known):
        return None
    far = np.linalg.norm(points[:, None] - points[known][None], axis=2)
    side = np.where(before == UNKNOWN, before[known][far.argmin(1)], before)
    if len(set(before[known].tolist())) < SIDES:
        there = int(before[known][0])
        order = np.argsort(np.where(before == UNKNOWN, far.min(1), -1.0), kind="stable")
        others = order[max(len(known), ceil(len(points) / 4)) :]
        side[others] = 1 - there
    return np.asarray(side, np.int64)
