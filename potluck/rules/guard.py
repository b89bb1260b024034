"""Robust aggregation around any rule: what devices sent is judged before the rule merges it.

Updates are judged within groups that started from the same model, so class-wise rules and those with several
models work as they are. A rule that shares its devices out to an inner one (Auxo, CFL, FL+HC, FlexCFL) is
guarded there: each group of devices judges its own, and groups are still found from what devices really sent,
else a minority would be thrown out before it could become a group. Where a rule has a judge of its own (its
`robust`), this one takes its place: nothing is judged twice.

Where a rule merges every reply as it comes (fedasync, fedbuff, classter_async), there is nothing to compare
it with: only clipping to a given norm has any effect then. It is much the same where few devices begin with
the same model: classter spreads a round over the classes, unless `clients` are many or they are to `gather`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Protocol, Self, TypeVar, runtime_checkable

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import ConfigError
from potluck.core.messages import Command, Lane, Lost, Node, Note, Reply
from potluck.core.rule import Algorithm, FederationFacts, Fits, Got, M, Recalls, Rule, Tiered
from potluck.rules.robust import Robust, floats
from potluck.rules.rounds import Rounds
from potluck.rules.wrap import AroundRule

R = TypeVar("R", bound=Rule)


@runtime_checkable
class TakesJudge(Protocol):
    """A rule that knows where its updates are judged: in its groups, or by a judge of its own."""

    def with_judge(self, robust: Robust) -> Self: ...


@value
class RobustRule(AroundRule[M]):
    """A rule that merges what a judge lets through; whom it refuses is lost to it, as a bad update is."""

    robust: Robust

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, robust=robust)

    def merge(self, m: M, lane: Lane, got: Got, ctx: Context) -> tuple[M, list[Command]]:
        alike: dict[Hashable, list[Reply]] = {}
        for r in got.replies:
            if r.task.to != ctx.here and _is_judgeable(r):
                alike.setdefault(_origin(r), []).append(r)
        if not alike:
            return self.inner.merge(m, lane, got, ctx)
        verdicts = [self.robust.judge(replies) for replies in alike.values()]
        kept = {id(r.task): r for v in verdicts for r in v.kept}
        refused = {id(r.task) for v in verdicts for r in v.odd}
        odd = [r.task for r in got.replies if id(r.task) in refused]
        heard = [kept.get(id(r.task), r) for r in got.replies if id(r.task) not in refused]
        lost = [*got.lost, *(Lost(task, "bad") for task in odd)]
        m, commands = self.inner.merge(m, lane, Got(heard, lost), ctx)
        sides = zip(verdicts, alike.values(), strict=True)
        judged = sorted(r.task.to for v, replies in sides for r in replies if v.judged and r.task.to < ctx.me)
        slot = got.replies[0].task.slot  # below another aggregator: the group whose model it passes on
        group = lane if lane is not None else slot if slot is not None else ctx.me
        counts = {"replies": len(got.replies), "odd": len(odd), "changed": sum(v.changed for v in verdicts)}
        notes: list[Command] = [Note("guarded", {**counts, "judged": judged}, group)]
        return m, [*commands, *notes, *note_odd([t.to for t in odd], ctx.me, group)]


def note_odd(odd: Sequence[Node], me: Node, group: Hashable) -> list[Command]:
    """Whose updates were refused; who stands for several is no attacker: one of these may be."""
    devices, hubs = ([node for node in odd if (node < me) is below] for below in (True, False))
    told = (("anomalous", devices), ("anomalous_members", hubs))
    return [Note(name, nodes, group) for name, nodes in told if nodes]


@value
class RobustTiers:
    """An algorithm of several tiers, guarded in one: the lowest, where devices are heard, unless said."""

    inner: Tiered
    robust: Robust
    tier: str | None = None  # "cloud" is one too

    @property
    def tiers(self) -> tuple[str, ...]:
        return self.inner.tiers

    def at(self, tier: str) -> Rule | Algorithm:
        found = self.inner.at(tier)
        if tier != (self.tiers[-1] if self.tier is None else self.tier):
            return found
        return guard_rule(found, self.robust) if isinstance(found, Rule) else guard_loop(found, self.robust)

    def fits(self, federation: FederationFacts) -> None:
        if isinstance(self.inner, Fits):
            self.inner.fits(federation)

    @property
    def recalls(self) -> tuple[Hashable, ...]:
        return self.inner.recalls if isinstance(self.inner, Recalls) else ()


def guard(algorithm: Rule | Algorithm | Tiered, robust: Robust) -> Rule | Algorithm | Tiered:
    """The same algorithm with its updates judged, in the place where it merges those of devices."""
    if isinstance(algorithm, Tiered):
        return RobustTiers(algorithm, robust)
    return guard_rule(algorithm, robust) if isinstance(algorithm, Rule) else guard_loop(algorithm, robust)


def guard_rule(rule: R, robust: Robust) -> R | RobustRule:
    """The same rule with its updates judged: by a judge around it, unless it knows better."""
    return rule.with_judge(robust) if isinstance(rule, TakesJudge) else RobustRule(rule, robust)


def guard_loop(algorithm: Algorithm, robust: Robust) -> Algorithm:
    """The same loop around a guarded rule."""
    if isinstance(algorithm, Rounds):
        return Rounds(guard_rule(algorithm.rule, robust))
    raise ConfigError(
        f"robust: {type(algorithm).__name__} is an algorithm without a rule, so what it merges can't be "
        "judged for it; leave out [robust], or write it as a rule"
    )


def _is_judgeable(reply: Reply) -> bool:
    """Whether it holds an update; an empty one, or one without rows behind it, tells nothing."""
    return isinstance(reply.body, dict) and bool(floats(reply.body.get("delta"))) and reply.weight > 0


def _origin(reply: Reply) -> Hashable:
    """Equal for updates of the same model: what was sent, for which memory, which of several was chosen."""
    sent, chosen = reply.task.send, reply.body.get("model")
    return id(sent.get("params", sent)), reply.task.slot, None if chosen is None else int(chosen)
