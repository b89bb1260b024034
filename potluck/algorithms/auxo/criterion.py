"""How a cohort tells its participants apart: the contract of `Faithful` and `Calibrated`."""

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from potluck.algorithms.auxo.device import Explore, Request
from potluck.authoring import Params, require, role

L = TypeVar("L")  # what a cohort has learnt of its members
Fact = float | dict[str, float]  # int counts as float


class Evidence(NamedTuple, Generic[L]):
    """What a cohort knows at the end of a round, of nobody but the participants of this round."""

    cohort: str
    updates: Sequence[Params]
    requests: Sequence[Request]  # what each said when it checked in, of this cohort
    head: Sequence[str]  # names of the last layer's parameters
    learnt: Mapping[str, L]  # what every cohort has learnt so far
    room: int  # at most so many parts may a split have now
    population: int
    rng: np.random.Generator


class Findings(NamedTuple, Generic[L]):
    """What a cohort has learnt, and what each participant is told."""

    state: L
    side: Sequence[Mapping[int, int]]  # the side of each, by the number of sides; empty: unknown
    gain: Sequence[float | None] | None  # how well each fits this cohort; None: nothing can be said
    others: Sequence[Mapping[str, float]] | None  # and each other one, if it can be told
    into: int  # a split into so many parts would pay; 0: none would
    facts: dict[str, Fact]  # to record
    visits: Sequence[bool] | None = None  # who belongs elsewhere, so that the cohort's model isn't for them
    strays: Sequence[bool] | None = None  # and who belongs nowhere; None: not looked for


class Rates(Protocol):
    """Numbers that all criteria have."""

    @property
    def gamma(self) -> float: ...  # weight of the last reward
    @property
    def bonus(self) -> float: ...  # reward of the child on one's own side, when a cohort splits
    @property
    def epsilon(self) -> float: ...  # how often a device tries another cohort, at first
    @property
    def decay(self) -> float: ...  # of epsilon, a round
    @property
    def scaling(self) -> float: ...  # learning rate by share of clients to this power
    @property
    def sure(self) -> int: ...  # rounds in its cohorts, before which a device heeds its loss too


@role("criterion")
class Criterion(Rates, Protocol[L]):
    """How sides, rewards and the moment of a split are found; a state per cohort, none per client."""

    @property
    def explore(self) -> Explore: ...  # how devices guess about cohorts that they haven't tried
    @property
    def parts(self) -> int: ...  # fewest that a cohort splits into
    @property
    def members(self) -> int: ...  # a round, below which it never finds sides

    def start(self) -> L: ...
    def learn(self, seen: Evidence[L]) -> Findings[L]: ...
    def split(self, learnt: Mapping[str, L], cohort: str, into: int) -> dict[str, L]: ...


def check_rates(rates: Rates) -> None:
    """Refuse numbers that no criterion can use."""
    require(0 < rates.gamma <= 1, "gamma", rates.gamma, "must be above 0 and at most 1, such as 0.9")
    require(0 <= rates.epsilon <= 1, "epsilon", rates.epsilon, "must be a chance between 0 and 1")
    require(0 < rates.decay <= 1, "decay", rates.decay, "must be above 0 and at most 1, such as 0.98")
    require(rates.bonus >= 0, "bonus", rates.bonus, "must be 0 or more, such as 0.1")
    require(rates.scaling >= 0, "scaling", rates.scaling, "must be 0 (one rate for all) or more; 1 is linear")
