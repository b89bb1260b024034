"""A rule around another: for parts that change one thing about whatever a rule does.

A rule around another has the hooks of that one: ask `is_inner` and `is_cohort`, which look through it.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeGuard, runtime_checkable

from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.job import ModelSpec
from potluck.core.messages import Choice, Command, Lane, Node, Reply, Task
from potluck.core.rule import Cohort, Compares, FederationFacts, Fits, Got, Inner, M, Recalls, Report, Rule
from potluck.core.trees import Params
from potluck.jobs.train import Train


@dataclass(frozen=True, slots=True)
class AroundRule(Generic[M]):
    """Does all that the inner rule does; a subclass says what it does differently."""

    inner: Rule[M]

    def fits(self, federation: FederationFacts) -> None:
        if isinstance(self.inner, Fits):
            self.inner.fits(federation)

    @property
    def recalls(self) -> tuple[Hashable, ...]:
        return self.inner.recalls if isinstance(self.inner, Recalls) else ()

    def start(self, ctx: Context) -> M:
        return self.inner.start(ctx)

    def lanes(self, m: M, ctx: Context) -> Iterable[Lane]:
        return self.inner.lanes(m, ctx)

    def plan(self, m: M, lane: Any, ctx: Context) -> tuple[M, list[Command]]:
        return self.inner.plan(m, lane, ctx)

    def merge(self, m: M, lane: Any, got: Got, ctx: Context) -> tuple[M, list[Command]]:
        return self.inner.merge(m, lane, got, ctx)

    def serve(self, m: M, node: Node, ctx: Context) -> Mapping[str, Task | Choice]:
        return self.inner.serve(m, node, ctx)

    def adopt(self, m: M, task: Task, ctx: Context) -> M:
        assert is_inner(self.inner)
        return self.inner.adopt(m, task, ctx)

    def report(self, m: M, task: Task, ctx: Context) -> Report | None:
        assert is_inner(self.inner)
        return self.inner.report(m, task, ctx)

    def resize(self, clients: int, rate: float) -> Self:
        assert is_cohort(self.inner)
        return replace(self, inner=self.inner.resize(clients, rate))


def unwrap(rule: Rule[M]) -> Rule[M]:
    """The rule inside all that is around it."""
    while isinstance(rule, AroundRule):
        rule = rule.inner
    return rule


def is_inner(rule: Rule[M]) -> TypeGuard[Inner[M]]:
    """Whether a rule may sit below a parent."""
    return isinstance(unwrap(rule), Inner)


def is_cohort(rule: Rule[M]) -> TypeGuard[Cohort[M]]:
    """Whether a rule can be given a share of the clients."""
    return isinstance(unwrap(rule), Cohort)


def require_cohort(rule: Rule[M]) -> None:
    """Refuse, as somebody's `inner`, a rule that groups of devices can't each train by."""
    fix = "has no one model that a part of the devices could train; take a rule in rounds that has, "
    require(is_cohort(rule), "inner", type(unwrap(rule)).__name__, fix + "such as 'fedavg' or 'fedyogi'")


def take_comparable(rule: Rule[M], reply: Reply, ctx: Context) -> Params:
    """What changes of all members have, by which groups are found."""
    found = unwrap(rule)
    delta: Params = found.comparable(reply, ctx) if isinstance(found, Compares) else reply.body["delta"]
    return delta


@runtime_checkable
class OneModel(Protocol):
    """A rule that says which training it is about."""

    @property
    def local(self) -> Train: ...


def find_model(rule: Rule[M]) -> ModelSpec | None:
    """The model that a rule trains; None if it doesn't say."""
    found = unwrap(rule)
    return found.local.model if isinstance(found, OneModel) else None


def find_training(part: object) -> list[Train]:
    """All training that a rule's fields hold, and those of its parts."""
    if isinstance(part, Train):
        return [part]
    if isinstance(part, tuple | list):
        return [job for each in part for job in find_training(each)]
    if is_dataclass(part) and not isinstance(part, type):
        return [job for f in fields(part) for job in find_training(getattr(part, f.name))]
    return []


@runtime_checkable
class Overcommits(Protocol):
    """A rule that asks more devices than it goes on with."""

    @property
    def overcommit(self) -> float: ...


def find_overcommit(rule: Rule[M]) -> float:
    """How many times its clients a rule asks."""
    found = unwrap(rule)
    return found.overcommit if isinstance(found, Overcommits) else 1.0
