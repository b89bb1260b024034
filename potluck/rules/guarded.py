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

from collections.abc import Hashable
from dataclasses import is_dataclass, replace
from typing import Any

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import ConfigError
from potluck.core.messages import Command, Lane, Lost, Note, Reply
from potluck.core.rule import Got
from potluck.rules.grouped import Grouped
from potluck.rules.robust import Robust, floats
from potluck.rules.rounds import Rounds


@value
class Guarded:
    """A rule that merges what a judge lets through; whom it refuses is lost to it, as a bad update is."""

    inner: Any  # Rule[M]
    robust: Robust

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.inner, name)  # in all but merging it is the inner rule
        if name == "resized":  # here, so that it is missing where the inner rule has none
            return lambda clients, rate: replace(self, inner=found(clients, rate))
        return found

    def merge(self, m: Any, lane: Lane, got: Got, ctx: Context) -> tuple[Any, list[Command]]:
        alike: dict[Hashable, list[Reply]] = {}
        for r in got.replies:
            if r.task.to != ctx.here and _judgeable(r):
                alike.setdefault(_origin(r), []).append(r)
        if not alike:
            after: tuple[Any, list[Command]] = self.inner.merge(m, lane, got, ctx)
            return after
        verdicts = [self.robust.judge(replies) for replies in alike.values()]
        kept = {id(r.task): r for v in verdicts for r in v.kept}
        refused = {id(r.task) for v in verdicts for r in v.odd}
        odd = [r.task for r in got.replies if id(r.task) in refused]
        heard = [kept.get(id(r.task), r) for r in got.replies if id(r.task) not in refused]
        lost = [*got.lost, *(Lost(task, "bad") for task in odd)]
        m, commands = self.inner.merge(m, lane, Got(heard, lost), ctx)
        sides = zip(verdicts, alike.values(), strict=True)
        judged = sorted(r.task.to for v, replies in sides for r in replies if v.judged)
        slot = got.replies[0].task.slot  # of an inner rule: the group that it trains
        group = lane if lane is not None else slot if slot is not None else ctx.me
        counts = {"replies": len(got.replies), "odd": len(odd), "changed": sum(v.changed for v in verdicts)}
        notes: list[Command] = [Note("guarded", {**counts, "judged": judged}, group)]
        if odd:
            notes.append(Note("anomalous", [task.to for task in odd], group))
        return m, [*commands, *notes]


@value
class GuardedTiers:
    """An algorithm of several tiers, guarded where devices are heard: in the lowest one."""

    inner: Any  # Tiered
    robust: Robust

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def at(self, tier: str) -> Any:
        found = self.inner.at(tier)
        return guarded(found, self.robust) if tier == self.inner.tiers[-1] else found


def guarded(algorithm: Any, robust: Robust) -> Any:
    """The same algorithm with its updates judged, in the place where it merges those of devices."""
    if getattr(algorithm, "tiers", ()):
        return GuardedTiers(algorithm, robust)
    if isinstance(algorithm, Rounds):
        return Rounds(guarded(algorithm.rule, robust))
    if not hasattr(algorithm, "merge"):
        raise ConfigError(
            f"robust: {type(algorithm).__name__} is an algorithm without a rule, so what it merges can't be "
            "judged for it; leave out [robust], or write it as a rule"
        )
    if "robust" in getattr(algorithm, "__dataclass_fields__", ()):
        return replace(algorithm, robust=robust)
    inner = _shared_out(algorithm)
    return Guarded(algorithm, robust) if inner is None else replace(algorithm, inner=guarded(inner, robust))


def _shared_out(rule: Any) -> Any:
    """What each group of a rule's devices trains by; None if it shares them out to nobody."""
    if not is_dataclass(rule) or not hasattr(rule, "inner") or hasattr(rule, "resized"):
        return None
    if rule.inner is None:  # it is told by the groups that the rule makes of itself
        parts = (getattr(rule, name) for name in ("groups", "many") if hasattr(rule, name))
        return next((part.inner for part in parts if isinstance(part, Grouped)), None)
    return rule.inner if hasattr(rule.inner, "merge") else None


def _judgeable(reply: Reply) -> bool:
    """Whether it holds an update; an empty one, or one without rows behind it, tells nothing."""
    return isinstance(reply.body, dict) and bool(floats(reply.body.get("delta"))) and reply.weight > 0


def _origin(reply: Reply) -> Hashable:
    """Equal for updates of the same model: what was sent, for which memory, which of several was chosen."""
    sent, chosen = reply.task.send, reply.body.get("model")
    return id(sent.get("params", sent)), reply.task.slot, None if chosen is None else int(chosen)
