"""Potluck's own way to tell kinds of participants apart, where the paper's loses them.

The paper's rules lose them in four places. A cut in two can't lower the heterogeneity of four equal kinds
enough, and lowers that of pure noise at times: so here several numbers of kinds are tried at once. Whether
there are so many is asked in two ways, of this round's participants alone, since in a large population hardly
anybody comes twice: do sides that were found in the rounds before, of others, tell them apart as they fall
into sides by themselves (Cohen's kappa)? And is there space between sides, more than if all between them were
evenly filled? Noise fails the first, and what varies by degrees the second; where several numbers pass both,
the first one's peak says how many. Sides are carried from round to round by their centroids, not by members.
A newcomer who lands in the wrong cohort would learn only that it is wrong: so every cohort remembers what
visitors from each other cohort look like in it, and one visit tells a device about all of them. As a model
learns, all of these come to look otherwise, so what is remembered is how visitors differ from members. Last,
at a high learning rate the training of some devices blows up: their updates are long and point anywhere, and
a few of them hide what the others would show. So updates much longer than the median are not heard where
sides are sought. And once there are several cohorts, everybody should be like one of them: an update that is
like none, such as one with flipped signs or of wrong labels, stays out of the model, and so does one of a
device that claims to fit and doesn't. Before that nobody can be told apart: kinds contradict each other as
liars do.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.algorithms.auxo import clustering
from potluck.algorithms.auxo.clustering import UNKNOWN, Points, Sides
from potluck.algorithms.auxo.criterion import Evidence, Fact, Findings, check_rates
from potluck.algorithms.auxo.device import Explore
from potluck.algorithms.auxo.likeness import Look, find_homes, take_look, update_likeness
from potluck.algorithms.auxo.tree import name_children, replace_by_parts
from potluck.authoring import Chance, Few, Many, Natural, Power, part, require, tmap, value
from potluck.rules.vectors import flatten, normalise

Table: TypeAlias = NDArray[np.float64]  # [side by the rounds before, side by this round] devices
LEAST = 3  # participants, below which a round says nothing of them
MEMBERS = 10  # and members, below which it says nothing of their sides
CROWDED = 3  # members of an even side, below which so many sides aren't sought
ROUNDS = 4  # that agreement is counted over at least
ALIKE = 0.02  # kappas that differ by no more are one peak


@value(eq=False)
class CalibratedState:
    """What a cohort remembers of kinds, none of whom."""

    mean: Tensor | None  # running, of members' updates
    centre: dict[int, Tensor]  # by the number of sides: how each one's updates differ from it [sides, size]
    rounds: dict[int, list[tuple[Table, float]]]  # the last ones: agreement, and the space between sides
    like: dict[str, Tensor]  # what updates of each cohort's members look like when they train here


@part("criterion")
@value
class Calibrated:
    """Several numbers of kinds at once; a split needs sides that the rounds before foretell, and space."""

    most: Annotated[int, "sides that are looked for"] = 10
    kappa: Annotated[float, "agreement of sides with those that the rounds before foretell"] = 0.85
    gap: Annotated[Chance, "space between sides: 0 is a line evenly filled, 1 nobody between"] = 0.3
    counted: Annotated[Many, "participants that agreement is counted over, in rounds as they come"] = 200
    smallest: Annotated[Chance, "share of an even side that the smallest one must have"] = 0.3
    directions: Annotated[Few, "principal components in which sides are sought"] = 8
    size: Annotated[Many, "numbers that an update is condensed to"] = 4096
    momentum: Annotated[float, "of centroids"] = 0.5
    longest: Annotated[float, "times the median length, up to which an update is listened to"] = 1.5
    stray: Annotated[
        Chance, "likeness to the nearest cohort, over the median one: below, updates stay out; 0: none do"
    ] = 0.0
    gamma: Annotated[float, "weight of the last reward"] = 0.5
    explore: Annotated[Explore, "how devices guess about cohorts that they have not tried"] = "told"
    bonus: Annotated[float, "reward of the child on one's own side, when a cohort splits"] = 1.0
    epsilon: Annotated[float, "how often a device tries another cohort, at first"] = 0.05
    decay: Annotated[float, "factor on epsilon, every round"] = 0.98
    scaling: Annotated[Power, "learning rate by share of clients to this power"] = 0.0
    sure: Annotated[Natural, "rounds in its cohorts, before which a device heeds its loss too"] = 3
    parts: Annotated[Few, "fewest that a cohort splits into"] = 2

    members: ClassVar[int] = MEMBERS

    def __post_init__(self) -> None:
        require(2 <= self.most <= 10, "most", self.most, "must be 2 to 10: sides that are looked for")
        require(0 < self.kappa <= 1, "kappa", self.kappa, "must be above 0 and at most 1, such as 0.9")
        require(self.directions >= 1, "directions", self.directions, "must be at least 1")
        require(self.size >= 16, "size", self.size, "must be at least 16 numbers, such as 4096")
        require(self.longest >= 1, "longest", self.longest, "must be at least 1 median, such as 1.5")
        require(0 < self.momentum <= 1, "momentum", self.momentum, "must be above 0 and at most 1")
        check_rates(self)

    def start(self) -> CalibratedState:
        return CalibratedState(None, {}, {}, {})

    def learn(self, seen: Evidence[CalibratedState]) -> Findings[CalibratedState]:
        s = _bring_to_host(seen.learnt[seen.cohort])
        count = len(seen.updates)
        vectors = np.stack([flatten(u, self.size) for u in seen.updates])
        length = np.linalg.norm(vectors, axis=1)
        wild = length > self.longest * np.median(length)
        calm = np.flatnonzero(~wild)
        if len(calm) < LEAST:
            return Findings(s, [{}] * count, None, None, 0, {})
        rows = torch.from_numpy(normalise(vectors))
        seen = seen._replace(requests=[seen.requests[i] for i in calm.tolist()])
        look = take_look(rows, wild, s.like, list(seen.learnt), seen.cohort, seen.requests, self.stray)
        findings = self._learn_from(s, rows[torch.from_numpy(calm)], look, seen)
        side: list[Mapping[int, int]] = [{}] * count
        gain: list[float | None] = [None] * count
        others: list[Mapping[str, float]] = [{}] * count
        visits, facts = [False] * count, {**findings.facts, "wild": int(wild.sum())}
        for place, i in enumerate(calm.tolist()):
            side[i] = findings.side[place]
            visits[i] = bool(findings.visits and findings.visits[place])
        if look is None:
            return Findings(findings.state, side, None, None, findings.into, facts, visits, None)
        facts["strays"] = int(look.strays.sum())
        for i, fits in enumerate(look.fits):
            # A model that isn't for a device trains it far. Of the other wild ones, whose training may have
            # blown up, nothing can be said: they hear nothing, and what they know stays as it is.
            away = fits[seen.cohort] < 0
            visits[i] = visits[i] or bool(wild[i] and away)
            if not wild[i] or (away and not look.strays[i]):
                gain[i], others[i] = fits[seen.cohort], fits
        return Findings(
            findings.state, side, gain, others, findings.into, facts, visits, look.strays.tolist()
        )

    def _learn_from(
        self,
        s: CalibratedState,
        rows: Tensor,
        look: Look | None,
        seen: Evidence[CalibratedState],
    ) -> Findings[CalibratedState]:
        """What the rows tell."""
        count = len(rows)
        facts: dict[str, Fact] = {"heterogeneity": float((rows - rows.mean(0)).square().sum(1).mean() ** 0.5)}
        like, member = s.like, np.ones(count, bool)
        if len(seen.learnt) > 1:
            fits = None if look is None else look.told
            home = find_homes(fits, seen.cohort, seen.requests, self.gamma)
            mine, whose = (rows, home) if look is None else (look.rows, look.home)
            like = update_likeness(s.like, mine, whose, seen.cohort, self.momentum)
            member = np.array([name == seen.cohort for name in home])
            facts["members"] = int(member.sum())
        side: list[dict[int, int]] = [{} for _ in range(count)]
        if member.sum() < MEMBERS:
            state = CalibratedState(s.mean, s.centre, s.rounds, like)
            return Findings(state, side, None, None, 0, facts, (~member).tolist())
        places = np.flatnonzero(member)
        mine = rows[torch.from_numpy(places)]
        now = mine.mean(0)
        mean = now if s.mean is None else (1 - self.momentum) * s.mean + self.momentum * now
        apart, centre, rounds = mine - now, dict(s.centre), dict(s.rounds)
        points = clustering.find_coordinates(apart, max(self.directions, self.most - 1))
        found, gaps = dict[int, float](), dict[int, float]()
        for k in range(2, min(self.most, max(2, seen.room), len(mine) // CROWDED) + 1):
            before = centre.get(k)
            new, centre[k] = self._find_sides(points, apart, k, before, seen.rng)
            if before is not None:
                foretold = clustering.find_likest(apart, before)
                table = clustering.count_changes(foretold, new, k)
                gap = clustering.measure_gap(apart, foretold, before)
                rounds[k] = self._keep_last([*rounds.get(k, []), (table, gap)])
                found[k] = self._measure_agreement([table for table, _ in rounds[k]], k)
                gaps[k] = float(np.mean([gap for _, gap in rounds[k]]))
            for i, one in zip(places, clustering.find_likest(apart, centre[k]), strict=True):
                side[int(i)][k] = int(one)
        state = CalibratedState(mean, centre, rounds, like)
        facts["persistence"] = {str(k): round(kappa, 4) for k, kappa in found.items()}
        facts["gap"] = {str(k): round(gap, 4) for k, gap in gaps.items()}
        good = [k for k in gaps if k <= seen.room and found[k] >= self.kappa and gaps[k] >= self.gap]
        peak = max((found[k] for k in good), default=0.0)
        into = max((k for k in good if found[k] >= peak - ALIKE), default=0)  # fewer would split again
        kept = into or max(found, key=lambda k: found[k], default=2)  # what a split would leave within sides
        sides = np.array([side[int(i)][kept] for i in places])
        facts["heterogeneity_after"] = (clustering.spread(mine.double().numpy(), sides) / len(mine)) ** 0.5
        return Findings(state, side, None, None, into, facts, (~member).tolist())

    def split(
        self, learnt: Mapping[str, CalibratedState], cohort: str, into: int
    ) -> dict[str, CalibratedState]:
        old = learnt[cohort]
        names = name_children(cohort, into)
        centres = old.centre.get(into)
        parts: dict[str, Tensor] = {}
        if centres is not None and old.mean is not None:
            parts = dict(zip(names, old.mean + centres, strict=True))
        away = {name: seen for name, seen in old.like.items() if name != cohort}
        young = [CalibratedState(None, {}, {}, {**away, **parts}) for _ in names]
        out = replace_by_parts(learnt, cohort, young)
        for name, kinds in out.items():
            if name not in names:  # elsewhere, children look as their parent did, until they are told apart
                like = dict(kinds.like)
                if cohort in like:
                    like |= dict.fromkeys(names, like.pop(cohort))
                out[name] = replace(kinds, like=like)
        return out

    def _find_sides(
        self, points: Points, apart: Tensor, sides: int, before: Tensor | None, rng: np.random.Generator
    ) -> tuple[Sides, Tensor]:
        """Sides of this round alone, named as the rounds before have them, and the centroids now."""
        unknown = np.full(len(points), UNKNOWN)
        side = clustering.find_sides(points, unknown, sides, rng)
        now = clustering.average_sides(apart, side, sides)
        if before is None:
            return side, now
        side = clustering.match_centres(before, now)[side]
        now = clustering.average_sides(apart, side, sides, before)
        return side, (1 - self.momentum) * before + self.momentum * now

    def _keep_last(self, rounds: list[tuple[Table, float]]) -> list[tuple[Table, float]]:
        """The last rounds, as many as it takes to have counted enough participants."""
        while len(rounds) > ROUNDS and sum(float(t.sum()) for t, _ in rounds[1:]) >= self.counted:
            rounds = rounds[1:]
        return rounds

    def _measure_agreement(self, tables: list[Table], sides: int) -> float:
        """Kappa of the last rounds, less its standard error; 0 with too few of them or too small a side."""
        whole = np.sum(tables, axis=0)
        total = whole.sum()
        if len(tables) < ROUNDS or total < self.counted:
            return 0.0
        if whole.sum(0).min() / total < self.smallest / sides:
            return 0.0
        kappa = clustering.cohens_kappa(whole)
        return kappa - float(np.sqrt(max(0.0, kappa * (1 - kappa)) / total))


def _bring_to_host(kinds: CalibratedState) -> CalibratedState:
    """What is remembered stays off a GPU; a resumed run finds all its tensors there."""
    mean = None if kinds.mean is None else kinds.mean.cpu()
    return CalibratedState(mean, tmap(Tensor.cpu, kinds.centre), kinds.rounds, tmap(Tensor.cpu, kinds.like))
