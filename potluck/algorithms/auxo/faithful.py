"""How a cohort tells its participants apart: the contract, and the paper's own way."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from potluck.algorithms.auxo import clustering as online
from potluck.algorithms.auxo.clustering import UNKNOWN, Sides
from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.trees import Params
from potluck.jobs.affinity import Explore
from potluck.jobs.cohort_tree import children, halved

PATIENCE = 3  # rounds without known members of a side, after which sides are sought anew


class Heard(NamedTuple):
    """What a cohort knows at the end of a round, of nobody but the participants of this round."""

    cohort: str
    updates: Sequence[Params]
    requests: Sequence[Mapping[str, Any]]  # what each said when it checked in, of this cohort
    head: Sequence[str]  # names of the last layer's parameters
    learnt: Mapping[str, Any]  # what every cohort has learnt so far
    room: int  # at most so many parts may a split have now
    population: int
    rng: np.random.Generator


class Told(NamedTuple):
    """What a cohort has learnt, and what each participant is told."""

    state: Any
    side: Sequence[Mapping[int, int]]  # the side of each, by the number of sides; empty: unknown
    gain: Sequence[float | None] | None  # how well each fits this cohort; None: nothing can be said
    others: Sequence[Mapping[str, float]] | None  # and each other one, if it can be told
    into: int  # a split into so many parts would pay; 0: none would
    facts: dict[str, Any]  # to record


class Mode(Protocol):
    """How sides, rewards and the moment of a split are found; a state per cohort, none per client."""

    @property
    def gamma(self) -> float: ...  # weight of the last reward
    @property
    def explore(self) -> Explore: ...  # how devices guess about cohorts that they haven't tried
    @property
    def bonus(self) -> float: ...  # reward of the child on one's own side, when a cohort splits
    @property
    def epsilon(self) -> float: ...  # how often a device tries another cohort, at first
    @property
    def decay(self) -> float: ...  # of epsilon, a round
    @property
    def scaling(self) -> float: ...  # learning rate by share of clients to this power
    @property
    def parts(self) -> int: ...  # fewest that a cohort splits into

    def start(self) -> Any: ...
    def learn(self, heard: Heard) -> Told: ...
    def split(self, learnt: Mapping[str, Any], cohort: str, into: int) -> dict[str, Any]: ...


@value(eq=False)
class Memory:
    """What a cohort remembers from round to round."""

    rounds: int = 0
    ratios: tuple[float, ...] = ()  # heterogeneity within sides over that of all, of the last rounds
    labelled: tuple[int, ...] = ()  # members that got a side for the first time, by side
    skips: int = 0  # rounds in a row in which a side had no known member


@value
class Faithful:
    """The paper's rules: sides by round-local centres, split when heterogeneity falls by sqrt(K)."""

    sides: int = 2  # parts that a cohort splits into
    gamma: float = 0.9  # weight of the last reward
    b: float = 1.0  # deviations from the mean distance at which a participant is an outlier
    hetero_ratio: float | None = None  # of norms; 1 / sqrt(sides) by Lemma 1 unless said
    window: int = 5  # rounds that the ratio is averaged over
    labelled: float = 0.05  # share of the population that must have a side, on each; less with more cohorts
    explore: Explore = "adds"
    bonus: float = 0.1
    epsilon: float = 0.3
    decay: float = 0.98
    scaling: float = 1.0

    def __post_init__(self) -> None:
        require(2 <= self.sides <= 10, "sides", self.sides, "must be 2 to 10: parts of a split")
        require(self.b >= 0, "b", self.b, "must be 0 or more, such as 1")
        given = self.hetero_ratio
        require(given is None or given > 0, "hetero_ratio", given, "must be above 0, such as 0.7071")
        require(self.window >= 1, "window", self.window, "must be at least 1 round")
        require(0 <= self.labelled < 1, "labelled", self.labelled, "must be a share, such as 0.05")
        check(self)

    @property
    def parts(self) -> int:
        return self.sides

    def start(self) -> Memory:
        return Memory()

    def split(self, learnt: Mapping[str, Any], cohort: str, into: int) -> dict[str, Any]:
        return halved(dict(learnt), cohort, [self.start() for _ in children(cohort, into)])

    def learn(self, heard: Heard) -> Told:
        s: Memory = heard.learnt[heard.cohort]
        points = online.coordinates(online.normalised(online.stacked(heard.updates)))
        before = np.array([r["side"].get(self.sides, UNKNOWN) for r in heard.requests], np.int64)
        side, skips = self._sides(points, before, PATIENCE if s.rounds == 0 else s.skips, heard.rng)
        ratio = self._ratio(heard, side)
        counts = np.array(s.labelled or (0,) * self.sides)
        counts += [int(((before == UNKNOWN) & (side == k)).sum()) for k in range(self.sides)]
        recent = (*s.ratios, ratio)[-self.window :] if ratio is not None else s.ratios
        state = Memory(s.rounds + 1, recent, tuple(int(c) for c in counts), skips)
        gain = None
        if len(heard.learnt) > 1:
            known = np.array([r["affinity"] > 0 and r["times"] > 0 for r in heard.requests])
            gain = online.fit(points, known, self.b)
        facts = {"heterogeneity": (online.spread(points) / len(points)) ** 0.5}
        if ratio is not None:
            facts["ratio"] = ratio
            facts["heterogeneity_after"] = (online.spread(points, side) / len(points)) ** 0.5
        named = [{} if k == UNKNOWN else {self.sides: int(k)} for k in side]
        into = self.sides if self._ready(state, heard) else 0
        return Told(state, named, None if gain is None else gain.tolist(), None, into, facts)

    def _sides(
        self, points: online.Points, before: Sides, skips: int, rng: np.random.Generator
    ) -> tuple[Sides, int]:
        """By this round's centres; after some rounds without all of them, from nothing again."""
        middle = online.centres(points, before, self.sides)
        if middle is not None:
            return online.nearest(points, middle), 0
        if skips < PATIENCE:
            return before, skips + 1
        return online.first_sides(points, before, self.sides, rng), 0

    def _ratio(self, heard: Heard, side: Sides) -> float | None:
        """The ratio of norms, on the last layer, whose few numbers carry little noise; None without sides."""
        if (side == UNKNOWN).any() or len(side) <= self.sides:
            return None
        rows = online.stacked(heard.updates, heard.head)
        points = online.coordinates(online.normalised(rows, centred=True))
        whole = online.spread(points)
        return float((online.spread(points, side) / whole) ** 0.5) if whole > 0 else None

    def _ready(self, s: Memory, heard: Heard) -> bool:
        most = self.sides**-0.5 if self.hetero_ratio is None else self.hetero_ratio
        if self.sides > heard.room or len(s.ratios) < self.window or np.mean(s.ratios) > most:
            return False
        least = self.labelled * heard.population * 0.9 ** (len(heard.learnt) - 1)
        # The first split may be as uneven as it likes; later ones at most two to one.
        uneven = len(heard.learnt) > 1 and max(s.labelled) >= 2 * min(s.labelled)
        return min(s.labelled) > least and not uneven


def check(mode: Mode) -> None:
    """What all modes have in common."""
    require(0 < mode.gamma <= 1, "gamma", mode.gamma, "must be above 0 and at most 1, such as 0.9")
    require(0 <= mode.epsilon <= 1, "epsilon", mode.epsilon, "must be a chance between 0 and 1")
    require(0 < mode.decay <= 1, "decay", mode.decay, "must be above 0 and at most 1, such as 0.98")
    require(mode.bonus >= 0, "bonus", mode.bonus, "must be 0 or more, such as 0.1")
    require(mode.scaling >= 0, "scaling", mode.scaling, "must be 0 (one rate for all) or more; 1 is linear")
