"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from typing import Annotated, Final

from potluck.algorithms.fedrac.assignment import LEAST, Judged, Placing
from potluck.algorithms.fedrac.bounds import Landscape
from potluck.algorithms.fedrac.claims import lateness
from potluck.algorithms.fedrac.clustering.methods import Method
from potluck.algorithms.fedrac.clustering.resources import WEIGHTS
from potluck.algorithms.fedrac.device.by_class import ByClass
from potluck.algorithms.fedrac.device.teach import ADAPTER
from potluck.algorithms.fedrac.distillation import Lessons
from potluck.algorithms.fedrac.forming import By
from potluck.algorithms.fedrac.schedule import leader, turns
from potluck.algorithms.fedrac.state import Tiers, lighter, moved, placed, settled
from potluck.algorithms.fedrac.verification import MEASURE, Trials
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.messages import Command, Lane, Node, Note, Task, Until
from potluck.core.rule import FederationFacts, Got
from potluck.core.trees import add
from potluck.jobs import Train, use_model
from potluck.rules.fold import fold
from potluck.rules.nested import Part, owners_mean

MOST: Final = 5000  # participants: the Dunn index looks at all pairs
MIX: Final = "mix"  # a lane, as is MEASURE, beside those of the tiers, which are numbers


@value
class ByResources:
    """Tiers of participants with like resources, each with a model of its size; the richest teaches."""

    local: Train
    placing: Placing
    lessons: Lessons
    head_start: int | None
    competent: float
    leader_weight: float
    trials: Trials
    by_class: bool

    def __post_init__(self) -> None:
        start = self.head_start
        fix = "must be 0 or more of the leader's rounds, or left out: all of them"
        require(start is None or start >= 0, "head_start", start, fix)
        fix = "tiers of a chain train one after another; leave it out, or set chained = false"
        require(start is None or not self.placing.chained, "head_start", start, fix)
        require(0 < self.competent <= 1, "competent", self.competent, "must be a share above 0, up to 1")
        require(self.leader_weight > 0, "leader_weight", self.leader_weight, "must be above 0, such as 2.0")
        fix = "work is given in epochs here, since tiers reduce them; set train.epochs instead"
        require(self.local.steps is None, "train.steps", self.local.steps, fix)
        require(self.local.epochs >= 1, "train.epochs", self.local.epochs, "must be at least 1")

    def fits(self, federation: FederationFacts) -> None:
        """Refuse a federation that is too small to be clustered, or too large."""
        count, fix = federation.devices, f"give at least {LEAST}: fewer participants can't be clustered"
        require(count >= LEAST, "data.clients", count, fix)
        fix = f"give at most {MOST:,}: everybody is measured and compared with everybody else"
        require(count <= MOST, "data.clients", count, fix)

    def start(self, ctx: Context) -> Tiers:
        spec = self.local.model
        none, first = (0,), ctx.models[spec].init(ctx.key)
        return Tiers((spec,), (first,), none, none, self.placing.chained, self.placing.left_out(ctx))

    def lanes(self, m: Tiers, ctx: Context) -> Iterable[Lane]:
        if not m.places:
            return (MEASURE,) if ctx.working else ()
        going = turns(m.left, m.done, self.head_start, m.chained) if ctx.working else []
        return going or ((MIX,) if self.placing.mix and m.mixed is None else ())

    def plan(self, m: Tiers, lane: Lane, ctx: Context) -> tuple[Tiers, list[Command]]:
        if lane == MIX:
            return self._mixed(m, ctx), []
        if lane == MEASURE or lane in m.due:
            return self.trials.tasks(m, lane, ctx)
        assert isinstance(lane, int)
        nodes = ctx.ready(m.members(lane))
        if lane == leader(m.left, m.done) and self.competent < 1:
            nodes = self.placing.richest(m, nodes, self.competent)
        if not nodes:
            return m, []
        m, tasks, extra = self.lessons.tasks(m, lane, nodes, ctx)
        limit = m.seconds[lane] + extra
        return m, [Until(limit if isfinite(limit) else None), *tasks]

    def merge(self, m: Tiers, lane: Lane, got: Got, ctx: Context) -> tuple[Tiers, list[Command]]:
        if lane == MEASURE or lane in m.due:
            return self._measured(m, lane, got, ctx)
        assert isinstance(lane, int)
        m, notes = self._averaged(m, lane, got)
        m, why, more = self.trials.verified(m, got)
        m = replace(m, late=lateness(m.late, got))
        m, moves = self._slow(m, ctx) if self.trials.verify else (m, [])
        if why:
            m, others = moved(m, self.placing.places(m, ctx), why)
            moves = [*moves, *others]
        return m, [*notes, *more, *moves]

    def serve(self, m: Tiers, node: Node, ctx: Context) -> dict[str, Task]:
        if node != ctx.me:  # who isn't placed yet can hold the smallest at any rate
            tier = m.places[node].tier if node in m.places else len(m.specs) - 1
            return {"tier": Task(node, use_model(m.specs[tier]), {"params": m.params[tier]})}
        how = [use_model(spec, ByClass()) if self.by_class else use_model(spec) for spec in m.specs]
        each = zip(how, m.params, strict=True)
        served = {f"tier {f}": Task(node, job, {"params": params}) for f, (job, params) in enumerate(each)}
        return served if m.mixed is None else {**served, "global": Task(node, how[0], {"params": m.mixed})}

    def _measured(self, m: Tiers, lane: Lane, got: Got, ctx: Context) -> tuple[Tiers, list[Command]]:
        """After trials: the tiers, if there are none yet, or who moves."""
        m, why, notes = self.trials.learnt(m, lane, got, ctx)
        if isinstance(lane, int):
            m, moves = moved(m, self.placing.places(m, ctx), why) if why else (m, [])
            return m, [*notes, *moves]
        if len(m.known) < LEAST:  # a wave that brings too few counts as a round, so that a run ends
            return replace(m, idle=m.idle + 1), notes
        m, founded = self.placing.found(m, ctx)
        return m, [*notes, *founded]

    def _slow(self, m: Tiers, ctx: Context) -> tuple[Tiers, list[Command]]:
        """Those late too often go a tier down; in the last one they are given less to do."""
        slow = [n for n, times in m.late.items() if times >= self.trials.patience and n in m.places]
        if not slow:
            return m, []
        down = {n: m.places[n].tier + 1 for n in slow if m.places[n].tier < len(m.specs) - 1}
        m = replace(m, floor=m.floor | down)
        text = f"late in {self.trials.patience} rounds in a row"
        m, notes = moved(
            m, self.placing.places(m, ctx), dict.fromkeys(down, f"{text}: less memory than said")
        )
        less = {n: lighter(m.places[n]) for n in slow if n not in down}
        notes += [placed(n, place, f"{text}: less to do", m.places[n]) for n, place in less.items()]
        return settled(m, less), [*notes]

    def _averaged(self, m: Tiers, tier: int, got: Got) -> tuple[Tiers, list[Command]]:
        """A tier's own federated averaging, and what was learnt of its members."""
        update = fold(got.replies)
        params, adapters = list(m.params), dict(m.adapters)
        if update is not None:
            if ADAPTER in update:
                adapters[tier] = adapters[tier] + update.pop(ADAPTER)
            params[tier] = add(params[tier], update)
        told = {r.task.to: r.metrics["loss"] for r in got.replies if "loss" in r.metrics}
        weights = {r.task.to: r.weight for r in got.replies}
        means, total = dict(m.means), sum(weights[n] for n in told)
        if total > 0:
            means[tier] = sum(weights[n] * loss for n, loss in told.items()) / total
        lacking = {r.task.to for r in got.replies if r.metrics.get("taught", 1.0) < 1 - 1e-9}
        taught = {n: whose for n, whose in m.taught.items() if n not in lacking}
        learnt = (r for r in got.replies if "teacher" in r.task.send)
        taught |= {r.task.to: r.task.tag for r in learnt if r.task.to not in lacking}
        done = tuple(n + (f == tier) for f, n in enumerate(m.done))
        again = self.trials.due(done[tier]) and done[tier] < m.rounds[tier]
        m = replace(m, params=tuple(params), adapters=adapters, means=means, taught=taught, done=done,
                    losses=m.losses | told, due=(*m.due, tier) if again else m.due)  # fmt: skip
        late = [task.to for task in got.failed("late")]
        fact = {"round": done[tier], "answered": len(got.replies), "lost": len(got.lost), "late": late}
        return m, [Note("tier_round", fact if tier not in means else {**fact, "loss": means[tier]}, tier)]

    def _mixed(self, m: Tiers, ctx: Context) -> Tiers:
        """One model of all tiers' layers: every number is the mean over the tiers that have it, by rows."""
        lead, nets = leader(m.left, m.done), [ctx.models[spec] for spec in m.specs]
        rows = [0.0] * len(nets)
        for node, place in m.places.items():
            rows[place.tier] += m.known[node].rows * (self.leader_weight if place.tier == lead else 1.0)
        each = zip(nets, m.params, rows, strict=True)
        parts = [Part(net, params, weight) for net, params, weight in each if weight > 0]
        return replace(m, mixed=owners_mean(m.params[0], nets[0], parts))


def fedrac(
    local: Train = Train(),
    rounds: Annotated[int | tuple[int, ...], "of each tier; or of the leader, the next one and so on"] = 50,
    goal: Annotated[
        float | None, "precision from which rounds are computed (Eq. 7, by `landscape`) instead"
    ] = None,
    tiers: Annotated[int | None, "how many; left out: as the Dunn index says, less `fewer`"] = None,
    fewer: Annotated[int, "tiers fewer than clusters, but at least two"] = 1,
    smallest_tier: Annotated[int, "clusters with fewer devices are merged"] = 5,
    method: Annotated[Method, "that finds clusters: kmeans, dbscan or optics (with fewer = 0)"] = "kmeans",
    weights: Annotated[tuple[float, float, float], "of speed, rate and memory; 1 together"] = WEIGHTS,
    alpha: Annotated[float, "size of a tier's model, as a share of the next richer one's"] = 0.5,
    by: Annotated[By, "what is smaller: width or depth"] = "width",
    kappa: Annotated[float, "time of a tier, as a share of the next poorer one's"] = 0.5,
    mar: Annotated[float | None, "seconds for all rounds of everybody; left out: as everybody needs"] = None,
    judge: Annotated[
        Judged, "who may join a tier: by measured losses, or by the paper's bounds"
    ] = "surrogate",
    delta: Annotated[
        float, "most mean loss of a tier, in losses of a guess; of `bound`: most precision"
    ] = 1.0,
    theta: Annotated[
        float, "most deviation of a member from it, 1.2 times as much in each poorer tier"
    ] = 1.0,
    landscape: Annotated[Landscape, "what the bounds assume of losses"] = Landscape(
        1.5, 0.7, 1.0, 1.0, 0.0064
    ),
    least_epochs: Annotated[
        int | None, "of the last tier, to which they fall evenly; left out: all alike"
    ] = None,
    least_rows: Annotated[
        float, "share of its rows that a device trains on at least where time is short"
    ] = 0.5,
    teach: Annotated[
        bool, "whether followers learn from a richer tier; the schedule is the same without"
    ] = True,
    a: Annotated[float, "how much labels count beside what the teacher says"] = 0.1,
    temperature: Annotated[float, "softens teacher and student"] = 3.0,
    hint: Annotated[float, "how much the teacher's features count"] = 0.0,
    chained: Annotated[bool, "each tier is taught by the next richer one, one after another"] = False,
    head_start: Annotated[int | None, "rounds of the leader before the others begin; left out: all"] = None,
    competent: Annotated[float, "share of the leader's members that train: the richest"] = 1.0,
    confident_rate: Annotated[bool, "followers' learning rates fall if the leader is weak"] = False,
    mix: Annotated[bool, "at the end, one model of all tiers' layers as well (view `global`)"] = False,
    leader_weight: Annotated[float, "how much more the leader counts there"] = 1.0,
    verify: Annotated[bool, "measure what devices claim, and move those that are late too often"] = True,
    tolerance: Annotated[float, "by which a claim may be off, as a share"] = 0.2,
    patience: Annotated[int, "rounds in a row that a device may be late"] = 3,
    remeasure: Annotated[
        int, "rounds of a tier between two measurements of its members; 0: only at first"
    ] = 10,
    leave_out: Annotated[bool, "go on without devices that can't hold any model"] = False,
    by_class: Annotated[bool, "record what F1 is made of"] = False,
) -> ByResources:
    """Tiers by resources, the richest of which teaches the others."""
    given = (rounds,) if isinstance(rounds, int) else tuple(rounds)
    placing = Placing(
        local, given, goal, tiers, fewer, smallest_tier, method, weights, alpha, by, kappa, mar, judge, delta,
        theta, landscape, least_epochs, least_rows, teach, hint > 0, chained, mix, leave_out,
    )  # fmt: skip
    lessons = Lessons(local, teach, a, temperature, hint, confident_rate)
    trials = Trials(local.model, verify, tolerance, patience, remeasure)
    return ByResources(local, placing, lessons, head_start, competent, leader_weight, trials, by_class)
