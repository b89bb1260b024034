"""Fed-RAC's rule: what is asked of devices and what is made of their answers, tier by tier."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from typing import Final

from potluck.algorithms.fedrac.claims import count_late
from potluck.algorithms.fedrac.device.by_class import ByClass
from potluck.algorithms.fedrac.device.teach import ADAPTER
from potluck.algorithms.fedrac.distillation import leave_out_help, plan_help, plan_round, split_tiers
from potluck.algorithms.fedrac.forming import LEAST, build_tiers, find_places, find_richest, leave_out
from potluck.algorithms.fedrac.knowledge import count_knowledge, serve_known
from potluck.algorithms.fedrac.mixing import mix_back, mix_tiers
from potluck.algorithms.fedrac.notes import TIER_ROUND
from potluck.algorithms.fedrac.schedule import TOGETHER, find_leader, find_turns
from potluck.algorithms.fedrac.settings import FedRACSettings
from potluck.algorithms.fedrac.sharing import share_work
from potluck.algorithms.fedrac.state import Tiers, lighten, move_devices, note_place, place_devices
from potluck.algorithms.fedrac.verification import MEASURE, is_due, plan_trials, read_trials, verify_replies
from potluck.authoring import (
    Command,
    Context,
    FederationFacts,
    Got,
    Lane,
    Node,
    Note,
    Task,
    Until,
    add,
    fold,
    require,
    use_model,
    value,
)

MOST: Final = 5000  # participants: the Dunn index looks at all pairs
MIX: Final = "mix"  # a lane, as is MEASURE, beside those of the tiers, which are numbers


@value
class FedRAC(FedRACSettings):
    """Tiers of participants with like resources, each with a model of its size; the richest teaches."""

    def fits(self, federation: FederationFacts) -> None:
        """Refuse a federation that is too small to be clustered, or too large."""
        count, fix = federation.devices, f"give at least {LEAST}: fewer participants can't be clustered"
        require(count >= LEAST, "data.clients", count, fix)
        fix = f"give at most {MOST:,}: everybody is measured and compared with everybody else"
        require(count <= MOST, "data.clients", count, fix)

    def start(self, ctx: Context) -> Tiers:
        spec = self.local.model
        fix = "is shared out over rounds, of which there is no number: give rounds, or stop.rounds"
        mar = self.time.mar
        require(mar is None or self.rounds is not None, "algorithms.fedrac.time.mar", mar, fix)
        none, first = (0,), ctx.models[spec].init(ctx.key)
        return Tiers((spec,), (first,), none, none, self.schedule.chained, leave_out(self, ctx))

    def lanes(self, m: Tiers, ctx: Context) -> Iterable[Lane]:
        if not m.places:
            return (MEASURE,) if ctx.working else ()
        if ctx.working and (going := self._find_going(m)):
            return (TOGETHER,) if self.share == "down" else going
        return (MIX,) if self.mixing.enabled and m.mixed is None else ()

    def plan(self, m: Tiers, lane: Lane, ctx: Context) -> tuple[Tiers, list[Command]]:
        if lane == MIX:
            return replace(m, mixed=mix_tiers(self, m, ctx)), []
        if lane == MEASURE or lane in m.due:
            return plan_trials(self, m, lane, ctx)
        going = [lane] if isinstance(lane, int) else self._find_going(m)
        who = m.members(lane) if isinstance(lane, int) else list(m.places)
        ready, tasks, limit = ctx.ready(who), list[Task](), 0.0
        for tier in going:
            nodes = [n for n in ready if m.places[n].tier == tier]
            if tier == find_leader(m.left, m.done) and self.schedule.competent < 1:
                nodes = find_richest(self, m, nodes, self.schedule.competent)
            if nodes:
                m, more, extra = plan_round(self, m, tier, nodes, ctx)
                tasks, limit = [*tasks, *more], max(limit, m.seconds[tier] + extra)
        if not tasks:
            return m, []
        tasks += plan_help(self, m, going, ready)  # after own work, in a device's queue, too
        return m, [Until(limit if isfinite(limit) else None), *tasks]

    def merge(self, m: Tiers, lane: Lane, got: Got, ctx: Context) -> tuple[Tiers, list[Command]]:
        if lane == MEASURE or lane in m.due:
            return self._end_trials(m, lane, got, ctx)
        notes: list[Command] = []
        parts = split_tiers(got)
        for tier, part in parts.items():
            m, noted = self._average(m, tier, part)
            notes += noted
        m = mix_back(self, m, parts, ctx)
        if any(is_due(self, m.done[tier]) and m.done[tier] < m.rounds[tier] for tier in parts):
            m = replace(m, due=(*m.due, lane))
        m, why, more = verify_replies(self, m, got)
        m = replace(m, late=count_late(m.late, leave_out_help(got)))
        m, moves = self._move_slow(m, ctx) if self.verification.enabled else (m, [])
        if why:
            m, others = move_devices(m, find_places(self, m, ctx), why)
            moves = [*moves, *others]
        m, shared = self._settle(m, ctx) if moves else (m, [])
        return m, [*notes, *more, *moves, *shared]

    def serve(self, m: Tiers, node: Node, ctx: Context) -> dict[str, Task]:
        if node != ctx.me:  # who isn't placed yet can hold the smallest at any rate
            tier = m.places[node].tier if node in m.places else len(m.specs) - 1
            alone = {"tier": Task(node, use_model(m.specs[tier]), {"params": m.params[tier]})}
            return alone if self.use == "tier" else {"known": serve_known(m, tier, node), **alone}
        how = [use_model(spec, ByClass()) if self.by_class else use_model(spec) for spec in m.specs]
        each = zip(how, m.params, strict=True)
        served = {f"tier {f}": Task(node, job, {"params": params}) for f, (job, params) in enumerate(each)}
        if self.use == "known":
            served |= {f"known {f}": serve_known(m, f, node) for f in range(len(m.specs))}
        return served if m.mixed is None else {**served, "global": Task(node, how[0], {"params": m.mixed})}

    def _end_trials(self, m: Tiers, lane: Lane, got: Got, ctx: Context) -> tuple[Tiers, list[Command]]:
        """After trials: the tiers, if there are none yet, or who moves."""
        m, why, notes = read_trials(self, m, lane, got, ctx)
        if lane != MEASURE:
            m, moves = move_devices(m, find_places(self, m, ctx), why) if why else (m, [])
            m, shared = self._settle(m, ctx) if moves else (m, [])
            return m, [*notes, *moves, *shared]
        if len(m.known) < LEAST:  # a wave that brings too few counts as a round, so that a run ends
            return replace(m, idle=m.idle + 1), notes
        m, more = build_tiers(self, m, ctx)
        m, shared = self._settle(m, ctx)
        return m, [*notes, *more, *shared]

    def _settle(self, m: Tiers, ctx: Context) -> tuple[Tiers, list[Note]]:
        """What follows from where everybody is now: who helps whom, and what each model learns from."""
        m, notes = share_work(self, m, ctx)
        return count_knowledge(self, m, ctx), notes

    def _find_going(self, m: Tiers) -> list[int]:
        return find_turns(m.left, m.done, self.head_start, m.chained)

    def _move_slow(self, m: Tiers, ctx: Context) -> tuple[Tiers, list[Command]]:
        """Those late too often go a tier down; in the last one they are given less to do."""
        patience = self.verification.patience
        slow = [n for n, times in m.late.items() if times >= patience and n in m.places]
        if not slow:
            return m, []
        down = {n: m.places[n].tier + 1 for n in slow if m.places[n].tier < len(m.specs) - 1}
        m = replace(m, floor=m.floor | down)
        text = f"late in {patience} rounds in a row"
        why = dict.fromkeys(down, f"{text}: less memory than said")
        m, notes = move_devices(m, find_places(self, m, ctx), why)
        less = {n: lighten(m.places[n]) for n in slow if n not in down}
        notes += [note_place(n, place, f"{text}: less to do", m.places[n]) for n, place in less.items()]
        return place_devices(m, less), [*notes]

    def _average(self, m: Tiers, tier: int, got: Got) -> tuple[Tiers, list[Command]]:
        """A tier's own federated averaging, and what was learnt of its members."""
        update = fold(got.replies)
        params, adapters = list(m.params), dict(m.adapters)
        if update is not None:
            if ADAPTER in update:
                adapters[tier] = adapters[tier] + update.pop(ADAPTER)
            params[tier] = add(params[tier], update)
        own = leave_out_help(got)
        losses = {r.task.to: r.metrics["loss"] for r in own.replies if "loss" in r.metrics}
        weights = {r.task.to: r.weight for r in own.replies}
        means, total = dict(m.means), sum(weights[n] for n in losses)
        if total > 0:
            means[tier] = sum(weights[n] * loss for n, loss in losses.items()) / total
        lacking = {r.task.to for r in got.replies if r.metrics.get("taught", 1.0) < 1 - 1e-9}
        taught = {n: whose for n, whose in m.taught.items() if n not in lacking}
        learnt = (r for r in got.replies if "teacher" in r.task.send)
        taught |= {r.task.to: r.task.tag.lesson for r in learnt if r.task.to not in lacking}
        done = tuple(n + (f == tier) for f, n in enumerate(m.done))
        m = replace(m, params=tuple(params), adapters=adapters, means=means, taught=taught, done=done,
                    losses=m.losses | losses)  # fmt: skip
        late = [task.to for task in own.find_lost("late")]
        fact = {"round": done[tier], "answered": len(got.replies), "lost": len(got.lost), "late": late}
        if m.helps:
            fact["helpers"] = len(got.replies) - len(own.replies)
        return m, [Note(TIER_ROUND, fact if tier not in means else {**fact, "loss": means[tier]}, tier)]
