"""The contracts of aggregation.

An *algorithm* is one aggregation point: it takes a state and an event and gives a state and commands. A
*rule* is an algorithm without its loop; `rules.Rounds` lends it one. Neither does input or output, looks at a
clock or keeps hidden state, so each can be tested by hand, stored between any two events and run by any
runtime.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from potluck.core.context import Context
from potluck.core.job import Job
from potluck.core.messages import Choice, Command, Event, Lane, Lost, Node, Reply, Task, Why
from potluck.core.parts import role
from potluck.core.trees import Params, Tree


class RuleState(Protocol):
    """What a rule remembers from event to event; only the rule itself looks further into it."""

    @property
    def round(self) -> int: ...  # how often the served model changed


# Of an answer to a parent: body, weight, and what devices tell beside, if that is passed on.
Report: TypeAlias = tuple[Tree, float] | tuple[Tree, float, Mapping[str, float]]
S = TypeVar("S", default=Any)  # of an algorithm's state
M = TypeVar("M", bound=RuleState, default=Any)


@runtime_checkable
class Algorithm(Protocol[S]):
    """One aggregation point: cloud, edge or user hub. `receive` consumes the state; tensors never change."""

    def init(self, ctx: Context) -> tuple[S, list[Command]]: ...
    def receive(self, s: S, e: Event, ctx: Context) -> tuple[S, list[Command]]: ...
    def serve(self, s: S, node: Node, ctx: Context) -> Mapping[str, Task | Choice]: ...
    def round(self, s: S) -> int: ...  # how often the served model changed
    def waiting(self, s: S, ctx: Context) -> list[Lane]: ...  # lanes that would go on but can't


class Got(NamedTuple):
    """What a closed barrier brought: replies in task order, and what was lost."""

    replies: Sequence[Reply]
    lost: list[Lost]

    def find_lost(self, why: Why) -> list[Task]:
        """The tasks that were lost for this reason."""
        return [lost.what for lost in self.lost if lost.why == why and isinstance(lost.what, Task)]


class FederationFacts(Protocol):
    """What a rule may ask of a federation before it runs there, to refuse one that can't carry it."""

    @property
    def devices(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...  # of a row
    @property
    def tokens(self) -> bool: ...  # whether rows are tokens instead of values
    @property
    def classes(self) -> int: ...
    @property
    def server(self) -> int: ...  # the server's own rows

    def count_labels(self) -> NDArray[np.int64] | None:
        """Train rows of each class at the start, counted when asked for; None where nobody can know.

        Of all clients together; where nothing is stored of each (procedural), of the first 10,000.
        """
        ...


@role("rule")
@runtime_checkable
class Rule(Protocol[M]):
    """An algorithm without its loop."""

    def start(self, ctx: Context) -> M: ...
    def lanes(self, m: M, ctx: Context) -> Iterable[Lane]: ...  # the barriers that should be open
    # A rule knows the type of its own lanes, so they aren't `Lane` here.
    def plan(self, m: M, lane: Any, ctx: Context) -> tuple[M, list[Command]]: ...  # no Task: parked
    # Makes a new state and leaves the one that it is given: a merge that makes NaN of it is undone.
    def merge(self, m: M, lane: Any, got: Got, ctx: Context) -> tuple[M, list[Command]]: ...
    def serve(
        self, m: M, node: Node, ctx: Context
    ) -> Mapping[str, Task | Choice]: ...  # view -> what this node uses


# Hooks that a rule may have. `rules.wrap` says whether one around another has them.


@runtime_checkable
class Fits(Protocol):
    """A rule that not every federation can carry; the run's rule is asked before anything is written."""

    def fits(self, federation: FederationFacts) -> None: ...  # raises ConfigError if it can't


@runtime_checkable
class Doubts(Protocol):
    """A rule that may be set such that it never does what it is for: said when a run begins."""

    def find_doubt(self, members: int) -> str | None: ...  # members: those whom it may ask at most


@runtime_checkable
class Inner(Rule[M], Protocol[M]):
    """A rule that may sit below a parent; it is asked at a boundary only, never in mid-round."""

    def adopt(self, m: M, task: Task, ctx: Context) -> M: ...
    def report(self, m: M, task: Task, ctx: Context) -> Report | None: ...  # None: not yet


@runtime_checkable
class Takes(Protocol):
    """A rule below a parent that answers some jobs by rounds of its own which aren't training."""

    @property
    def takes(self) -> tuple[type[Job], ...]: ...


@runtime_checkable
class Relays(Protocol):
    """A rule below a parent that passes on the parent's training, and answers as one device would."""

    @property
    def moves(self) -> bool: ...  # whether rows go from one of its members to another
    def check_job(self, job: Job) -> None: ...  # raises ConfigError if it can't pass it on


@runtime_checkable
class Cohort(Rule[M], Protocol[M]):
    """A rule with one model that can run inside another, which shares out clients and learning rates.

    One model: whoever groups devices compares their changes of it. Rules with several don't have this.
    """

    def resize(self, clients: int, rate: float) -> Self: ...  # rate: a factor on its learning rate


@runtime_checkable
class Compares(Protocol):
    """A rule whose devices train parts of its model: how their changes are compared."""

    def comparable(self, reply: Reply, ctx: Context) -> Params: ...  # what all of them have


@runtime_checkable
class Recalls(Protocol):
    """A rule whose devices may begin with what they remember from another run (`fleet.memories`)."""

    @property
    def recalls(self) -> tuple[Hashable, ...]: ...  # the slots of those memories


@runtime_checkable
class Tiered(Protocol):
    """An algorithm of several tiers: names them from the cloud downward and gives each its rule."""

    @property
    def tiers(self) -> tuple[str, ...]: ...  # attributes of devices, e.g. ("edge",)
    def at(self, tier: str) -> Rule | Algorithm: ...  # "cloud" or one of tiers


Runnable: TypeAlias = Rule | Algorithm | Tiered  # whatever a run can be of
