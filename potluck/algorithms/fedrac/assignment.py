"""Fed-RAC's assignment of devices to tiers, with their work: Procedure 2, with an end to both of its loops.

The print goes on to the next tier after it has placed a participant, and may reduce work for ever: here the
first tier that takes a participant is its tier, and work has a floor. Time is real, too: of training and
sending the model of a tier, beside the bytes that it takes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from potluck.algorithms.fedrac.budgets import SLACK
from potluck.algorithms.fedrac.clustering.resources import Bools, Floats, Ints
from potluck.algorithms.fedrac.costs import Costs
from potluck.authoring import require, value

CLOSE = 1e-12  # by which sums of seconds may differ
Need = Callable[[int, int], float]  # (tier, batch) -> bytes that training the tier's model takes


@value(eq=False)
class Terms:
    """What a tier asks of its members, and how far it meets those who can't."""

    seconds: Floats  # [tiers] for a round: T_f / R_f; infinite: no limit
    epochs: Ints  # [tiers] E_f
    batch: int = 32
    least_rows: float = 0.5  # share of its rows that a participant trains on at least
    least_steps: int = 1  # tau that no reduction goes below
    whole: bool = False  # work and batches are reduced in the last tier only
    reserve: bool = False  # who is in a richer tier has time for the last one's model, too

    def __post_init__(self) -> None:
        require(self.batch >= 1, "batch", self.batch, "train on one row at a time at least")
        require(bool((self.epochs >= 1).all()), "epochs", self.epochs.tolist(), "train for at least 1")
        require(0 < self.least_rows <= 1, "least_rows", self.least_rows, "give a share above 0, up to 1")
        require(self.least_steps >= 1, "least_steps", self.least_steps, "a round has one step at least")
        shape = np.shape(self.seconds)
        require(shape == np.shape(self.epochs), "seconds.shape", shape, "give every tier seconds and epochs")


@value
class Place:
    """One participant's tier and work."""

    who: int
    tier: int
    epochs: int
    rows: int
    batch: int
    reduced: bool = False  # it trains less than the tier asks
    late: bool = False  # in the last tier, over its time even with the least work

    @property
    def steps(self) -> int:
        """Local steps in a round (tau), at least one."""
        return max(1, self.epochs * self.rows // self.batch)


@value
class Assignment:
    """Everyone's place, and those for whom even the last tier's model is too big."""

    places: tuple[Place, ...]  # by participant
    unable: tuple[int, ...]

    def members(self, tier: int) -> tuple[Place, ...]:
        """The places of a tier, by participant."""
        return tuple(place for place in self.places if place.tier == tier)


class Judge(Protocol):
    """Whether a tier stays precise and even enough with these members, the last of whom is new."""

    def admits(self, tier: int, members: Sequence[Place]) -> bool: ...


def allow_by_score(scores: Floats, labels: Ints) -> Bools:
    """Who may train in which tier [participants, tiers], by score alone: the authors' stand-in for times.

    A tier is open to scores of at least its cluster's mean, or nearer to it than to the next poorer one's.
    """
    means = np.bincount(labels, scores) / np.bincount(labels)
    off = np.abs(scores[:, None] - means)
    allowed = scores[:, None] >= means
    allowed[:, :-1] |= off[:, :-1] < off[:, 1:]
    allowed[:, -1] = True
    return allowed


def assign(
    costs: Costs, terms: Terms, need: Need, judge: Judge | None = None, allowed: Bools | None = None
) -> Assignment:
    """A place for everyone, in order of score: the first tier that it can train in time and that admits it.

    The last tier takes all who are left, if they can hold its model. `allowed` [participants, tiers]
    (`allow_by_score`) closes tiers to some, but never the last.
    """
    tiers = len(terms.seconds)
    shape = np.shape(costs.compute)
    require(shape[1] == tiers, "compute.shape", shape, f"there are terms for {tiers} tiers")
    inside: list[list[Place]] = [[] for _ in range(tiers)]
    unable: list[int] = []
    for who in np.argsort(-costs.scores, kind="stable").tolist():
        for tier, members in enumerate(inside):
            last = tier == tiers - 1
            if not last and allowed is not None and not allowed[who, tier]:
                continue
            limit = None if last else _limit_seconds(costs, terms, who, tier)
            place = find_place(costs, terms, need, who, tier, seconds=limit, whole=terms.whole and not last)
            if place is None:
                if last:
                    unable.append(who)
                continue
            fits = not place.late and (judge is None or judge.admits(tier, [*members, place]))
            if fits or last:
                members.append(place)
                break
    places = sorted((place for members in inside for place in members), key=lambda place: place.who)
    return Assignment(tuple(places), tuple(sorted(unable)))


def find_place(
    costs: Costs,
    terms: Terms,
    need: Need,
    who: int,
    tier: int,
    *,
    seconds: float | None = None,
    whole: bool = False,
) -> Place | None:
    """The most work that a participant can do in a tier's time, or the least, and late; None: no memory.

    `seconds`: another time than the tier's; `whole`: all of its work, in whole batches, or none.
    """
    limit = terms.seconds[tier] if seconds is None else seconds
    batch = terms.batch
    while need(tier, batch) > costs.memory[who]:
        if batch == 1 or whole:
            return None
        batch //= 2
    compute, link = float(costs.compute[who, tier]), float(costs.link[who, tier])
    full = int(terms.epochs[tier]), int(costs.rows[who])
    place: Place | None = None
    for work in _reduce_work(*full, terms.least_rows):
        epochs, rows = work
        late = bool(epochs * rows * compute + link > limit * (1 + CLOSE))
        less = Place(who, tier, epochs, rows, batch, work != full, late)
        if place is not None and less.steps < terms.least_steps:
            break
        place = less
        if whole or not late:
            break
    return place


def _limit_seconds(costs: Costs, terms: Terms, who: int, tier: int) -> float:
    """What a participant may spend in a tier other than the last: all of its time, or what is left of it."""
    seconds = float(terms.seconds[tier])
    if not terms.reserve:
        return seconds
    last = Place(who, len(terms.seconds) - 1, int(terms.epochs[-1]), int(costs.rows[who]), terms.batch)
    return seconds / SLACK - measure_work(costs, last)


def measure_work(costs: Costs, place: Place) -> float:
    """Seconds that a place's work takes in a round."""
    compute, link = costs.compute[place.who, place.tier], costs.link[place.who, place.tier]
    return float(place.epochs * place.rows * compute + link)


def _reduce_work(epochs: int, rows: int, least: float) -> Iterator[tuple[int, int]]:
    """Epochs and rows: all, then fewer rows by tenths of all of them, then fewer epochs."""
    kept = rows
    for tenths in range(10):
        fewer = rows - rows * tenths // 10
        if fewer < least * rows - 1e-9:
            break
        if tenths == 0 or fewer < kept:
            yield epochs, fewer
        kept = fewer
    for fewer in range(epochs - 1, 0, -1):
        yield fewer, kept
