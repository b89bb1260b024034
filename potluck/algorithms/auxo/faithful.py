"""The paper's own way to tell participants apart, and when a split pays."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np

from potluck.algorithms.auxo import clustering
from potluck.algorithms.auxo.clustering import UNKNOWN, Sides
from potluck.algorithms.auxo.criterion import Evidence, Fact, Findings, check_rates
from potluck.algorithms.auxo.device import Explore
from potluck.algorithms.auxo.tree import replace_by_parts
from potluck.authoring import Natural, Power, part, require, value

PATIENCE = 3  # rounds without known members of a side, after which sides are sought anew


@value(eq=False)
class FaithfulState:
    """What a cohort remembers from round to round."""

    rounds: int = 0
    ratios: tuple[float, ...] = ()  # heterogeneity within sides over that of all, of the last rounds
    labelled: tuple[int, ...] = ()  # members that got a side for the first time, by side
    skips: int = 0  # rounds in a row in which a side had no known member


@part("criterion")
@value
class Faithful:
    """The paper's rules: sides by round-local centres, split when heterogeneity falls by sqrt(K)."""

    sides: Annotated[int, "parts that a cohort splits into"] = 2
    gamma: Annotated[float, "weight of the last reward"] = 0.9
    b: Annotated[float, "deviations from the mean distance at which a participant is an outlier"] = 1.0
    hetero_ratio: Annotated[float | None, "of norms; 1 / sqrt(sides) by Lemma 1 unless said"] = None
    directions: Annotated[
        Natural, "principal components of whole updates to measure the ratio on; 0: the last layer, as it is"
    ] = 0
    window: Annotated[int, "rounds that the ratio is averaged over"] = 5
    labelled: Annotated[
        float, "share of the population that must have a side, on each; less with more cohorts"
    ] = 0.05
    explore: Annotated[Explore, "how devices guess about cohorts that they have not tried"] = "adds"
    bonus: Annotated[float, "reward of the child on one's own side, when a cohort splits"] = 0.1
    epsilon: Annotated[float, "how often a device tries another cohort, at first"] = 0.3
    decay: Annotated[float, "factor on epsilon, every round"] = 0.98
    scaling: Annotated[Power, "learning rate by share of clients to this power"] = 1.0
    sure: Annotated[Natural, "rounds in its cohorts, before which a device heeds its loss too"] = 0

    def __post_init__(self) -> None:
        require(2 <= self.sides <= 10, "sides", self.sides, "must be 2 to 10: parts of a split")
        require(self.b >= 0, "b", self.b, "must be 0 or more, such as 1")
        given = self.hetero_ratio
        require(given is None or given > 0, "hetero_ratio", given, "must be above 0, such as 0.7071")
        require(self.window >= 1, "window", self.window, "must be at least 1 round")
        require(0 <= self.labelled < 1, "labelled", self.labelled, "must be a share, such as 0.05")
        check_rates(self)

    members: ClassVar[int] = 2

    @property
    def parts(self) -> int:
        return self.sides

    def start(self) -> FaithfulState:
        return FaithfulState()

    def split(self, learnt: Mapping[str, FaithfulState], cohort: str, into: int) -> dict[str, FaithfulState]:
        return replace_by_parts(learnt, cohort, [self.start() for _ in range(into)])

    def learn(self, seen: Evidence[FaithfulState]) -> Findings[FaithfulState]:
        s = seen.learnt[seen.cohort]
        points = clustering.find_coordinates(clustering.normalise(clustering.stack_updates(seen.updates)))
        before = np.array([r["side"].get(self.sides, UNKNOWN) for r in seen.requests], np.int64)
        side, skips = self._find_sides(points, before, PATIENCE if s.rounds == 0 else s.skips, seen.rng)
        ratio = self._measure_ratio(seen, side)
        counts = np.array(s.labelled or (0,) * self.sides)
        counts += [int(((before == UNKNOWN) & (side == k)).sum()) for k in range(self.sides)]
        recent = (*s.ratios, ratio)[-self.window :] if ratio is not None else s.ratios
        state = FaithfulState(s.rounds + 1, recent, tuple(int(c) for c in counts), skips)
        gain = None
        if len(seen.learnt) > 1:
            known = np.array([r["affinity"] > 0 and r["times"] > 0 for r in seen.requests])
            gain = clustering.measure_fit(points, known, self.b)
        facts: dict[str, Fact] = {"heterogeneity": (clustering.spread(points) / len(points)) ** 0.5}
        if ratio is not None:
            facts["ratio"] = ratio
            facts["heterogeneity_after"] = (clustering.spread(points, side) / len(points)) ** 0.5
        named = [{} if k == UNKNOWN else {self.sides: int(k)} for k in side]
        into = self.sides if self._pays(state, seen) else 0
        return Findings(state, named, None if gain is None else gain.tolist(), None, into, facts)

    def _find_sides(
        self, points: clustering.Points, before: Sides, skips: int, rng: np.random.Generator
    ) -> tuple[Sides, int]:
        """By this round's centres; after some rounds without all of them, from nothing again."""
        middle = clustering.find_centres(points, before, self.sides)
        if middle is not None:
            return clustering.find_nearest(points, middle), 0
        if skips < PATIENCE:
            return before, skips + 1
        return clustering.find_sides(points, before, self.sides, rng), 0

    def _measure_ratio(self, seen: Evidence[FaithfulState], side: Sides) -> float | None:
        """The ratio of norms, where there is little noise: on few numbers; None without sides."""
        if (side == UNKNOWN).any() or len(side) <= self.sides:
            return None
        rows = clustering.stack_updates(seen.updates, None if self.directions else seen.head)
        rows = clustering.normalise(rows, centre=True)
        points = clustering.find_coordinates(rows, self.directions or None)
        whole = clustering.spread(points)
        return float((clustering.spread(points, side) / whole) ** 0.5) if whole > 0 else None

    def _pays(self, s: FaithfulState, seen: Evidence[FaithfulState]) -> bool:
        most = self.sides**-0.5 if self.hetero_ratio is None else self.hetero_ratio
        if self.sides > seen.room or len(s.ratios) < self.window or np.mean(s.ratios) > most:
            return False
        least = self.labelled * seen.population * 0.9 ** (len(seen.learnt) - 1)
        # The first split may be as uneven as it likes; later ones at most two to one.
        uneven = len(seen.learnt) > 1 and max(s.labelled) >= 2 * min(s.labelled)
        return min(s.labelled) > least and not uneven
