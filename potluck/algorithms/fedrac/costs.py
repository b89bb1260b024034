"""Who trains in which tier, with how much work: the paper's Procedure 2, with an end to both of its loops.

The print goes on to the next tier after it has placed a participant, and may reduce work for ever: here the
first tier that takes a participant is its tier, and work has a floor. Time is real, too: of training and
sending the model of a tier, beside the bytes that it takes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from potluck.algorithms.fedrac.bounds import Landscape, drift, inconsistency, precision
from potluck.algorithms.fedrac.clustering.resources import Bools, Floats, Ints
from potluck.core.codec import value
from potluck.core.errors import require

Need = Callable[[int, int], float]  # (tier, batch) -> bytes that training the tier's model takes


@value(name="fedrac.Crowd", eq=False)
class Crowd:
    """Participants, and what the tiers' models would cost them."""

    scores: Floats  # [participants] they choose in the order of these, from the highest
    rows: Ints  # [participants] n_i
    memory: Floats  # [participants] bytes a_i that training may take
    compute: Floats  # [participants, tiers] seconds for training one row in one epoch
    link: Floats  # [participants, tiers] seconds for fetching and returning the model

    def __post_init__(self) -> None:
        n, tiers = len(self.scores), np.shape(self.compute)[-1]
        for name, shape in (
            ("rows", (n,)),
            ("memory", (n,)),
            ("compute", (n, tiers)),
            ("link", (n, tiers)),
        ):
            of = np.asarray(getattr(self, name))
            require(of.shape == shape, f"{name}.shape", of.shape, f"should be {shape}")
            require(bool((of >= 0).all()), name, of.tolist(), "give 0 or more")
        require(bool((self.rows >= 1).all()), "rows", self.rows.tolist(), "who takes part has a row at least")


@value(eq=False)
class Terms:
    """What a tier asks of its members, and how far it meets those who can't."""

    seconds: Floats  # [tiers] for a round: T_f / R_f; infinite: no limit
    epochs: Ints  # [tiers] E_f
    batch: int = 32
    least_rows: float = 0.5  # share of its rows that a participant trains on at least
    least_steps: int = 1  # tau that no reduction goes below

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


@value(eq=False)
class Surrogate:
    """By measured losses: their mean is `precision` at most, and none is farther from it than `spread`.

    A participant whose loss isn't known yet (NaN) doesn't count: its resources alone place it. The authors'
    notebook draws these losses at random, which makes the assignment noise.
    """

    losses: Floats  # [participants] recent local losses, as measured
    precision: Floats  # [tiers] delta_f
    spread: Floats  # [tiers] theta_f

    def admits(self, tier: int, members: Sequence[Place]) -> bool:
        losses = self.losses[[place.who for place in members]]
        if np.isnan(losses[-1]):
            return True
        losses = losses[~np.isnan(losses)]
        mean = losses.mean()
        return bool(mean <= self.precision[tier] and np.abs(losses - mean).max() <= self.spread[tier])


@value(eq=False)
class Bound:
    """By the bounds of Eq. 6 and 8; where members' epochs differ, by their mean over rows."""

    land: Landscape
    rounds: Floats  # [tiers] R_f
    lr: float
    precision: Floats  # [tiers] delta_f
    spread: Floats  # [tiers] theta_f

    def admits(self, tier: int, members: Sequence[Place]) -> bool:
        rows = np.array([place.rows for place in members], np.float64)
        shares, rounds = rows / rows.sum(), float(self.rounds[tier])
        epochs = float(shares @ [place.epochs for place in members])
        above = precision(rounds, epochs, self.land, drift(shares, epochs, self.land))
        uneven = inconsistency([place.steps for place in members], shares, self.lr, rounds, self.land)
        return bool(above <= self.precision[tier] and uneven <= self.spread[tier])


def thresholds(tiers: int, base: float = 0.03, growth: float = 1.0) -> Floats:
    """A threshold for every tier, `growth` times the one above: in the notebook 1 (delta) and 1.2 (theta)."""
    require(base > 0, "threshold", base, "give a loss above 0")
    require(growth > 0, "growth", growth, "give a factor above 0")
    return base * growth ** np.arange(tiers, dtype=np.float64)


def near_enough(scores: Floats, labels: Ints) -> Bools:
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
    crowd: Crowd, terms: Terms, need: Need, judge: Judge | None = None, allowed: Bools | None = None
) -> Assignment:
    """A place for everyone, in order of score: the first tier that it can train in time and that admits it.

    The last tier takes all who are left, if they can hold its model. `allowed` [participants, tiers]
    (`near_enough`) closes tiers to some, but never the last.
    """
    tiers = len(terms.seconds)
    shape = np.shape(crowd.compute)
    require(shape[1] == tiers, "compute.shape", shape, f"there are terms for {tiers} tiers")
    inside: list[list[Place]] = [[] for _ in range(tiers)]
    unable: list[int] = []
    for who in np.argsort(-crowd.scores, kind="stable").tolist():
        for tier, members in enumerate(inside):
            last = tier == tiers - 1
            if not last and allowed is not None and not allowed[who, tier]:
                continue
            place = _offer(crowd, terms, need, who, tier)
            if place is None:
                if last:
                    unable.append(who)
                continue
            fits = not place.late and (judge is None or judge.admits(tier, [*members, place]))
            if fits or last:
                members.append(place)
                break
    placed = sorted((place for members in inside for place in members), key=lambda place: place.who)
    return Assignment(tuple(placed), tuple(sorted(unable)))


def _offer(crowd: Crowd, terms: Terms, need: Need, who: int, tier: int) -> Place | None:
    """The most work that a participant can do in a tier's time, or the least, and late; None: no memory."""
    batch = terms.batch
    while need(tier, batch) > crowd.memory[who]:
        if batch == 1:
            return None
        batch //= 2
    compute, link = float(crowd.compute[who, tier]), float(crowd.link[who, tier])
    full = int(terms.epochs[tier]), int(crowd.rows[who])
    place: Place | None = None
    for work in _less_and_less(*full, terms.least_rows):
        epochs, rows = work
        late = epochs * rows * compute + link > terms.seconds[tier]
        less = Place(who, tier, epochs, rows, batch, work != full, late)
        if place is not None and less.steps < terms.least_steps:
            break
        place = less
        if not late:
            break
    return place


def _less_and_less(epochs: int, rows: int, least: float) -> Iterator[tuple[int, int]]:
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
