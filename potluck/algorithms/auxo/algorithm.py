"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import ceil
from typing import Annotated, Any, ClassVar, Final, Self

from potluck.algorithms.auxo.calibrated import Calibrated
from potluck.algorithms.auxo.claims import watch
from potluck.algorithms.auxo.criterion import Criterion, Evidence, Findings
from potluck.algorithms.auxo.device import SLOT, ChooseCohort, Request, TakeFeedback
from potluck.algorithms.auxo.door import drop_absent, invite, match
from potluck.algorithms.auxo.feedback import (
    find_lies,
    find_odd,
    flag_claims,
    leave_out,
    note_deserted,
    note_guard,
    note_round,
    tell_participants,
)
from potluck.algorithms.auxo.state import CohortState, Crowd, Learnt
from potluck.algorithms.auxo.tree import ROOT, name_children
from potluck.algorithms.auxo.unwrapping import find_model, unwrap_lost, unwrap_reply
from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import (
    Choice,
    Cohort,
    Command,
    Context,
    Few,
    Got,
    Natural,
    Node,
    Note,
    Reply,
    Task,
    nbytes,
    require,
    value,
)
from potluck.rules.guard import guard_rule
from potluck.rules.robust import Robust
from potluck.rules.wrap import find_overcommit, require_cohort, take_comparable

DOOR: Final = "door"  # the lane in which devices check in


@value
class Auxo:
    """Cohorts that find themselves, around any rule with one model."""

    inner: Annotated[Cohort, "what trains in every cohort"] = FedAvg()
    clients: Annotated[int, "devices a round, shared by all cohorts"] = 10
    cohorts: Annotated[Few, "at most"] = 4
    fewest: Annotated[
        int | None, "devices a round that a cohort must have; clients / cohorts unless said"
    ] = None
    criterion: Annotated[Criterion[Any], "how members are told apart, and when a split pays"] = Calibrated()
    first_split: Annotated[Natural, "no split before this round"] = 5
    found: Annotated[tuple[str, ...], "cohorts to begin with, known from another task (fleet.memories)"] = (
        ROOT,
    )
    force: Annotated[tuple[int, ...], "rounds at which a cohort splits whatever the criterion says"] = ()
    waiting: Annotated[
        float | None, "check-ins per participant before a round; what inner asks for unless said"
    ] = None
    claim: Annotated[float, "a claimed reward from which on being an outlier is suspect"] = 0.5
    strikes: Annotated[
        int, "such claims, against what it was told if rounds tell it, until a device is shut out"
    ] = 3

    recalls: ClassVar[tuple[str, ...]] = (SLOT,)

    def __post_init__(self) -> None:
        require_cohort(self.inner)
        require(self.clients >= 1, "clients", self.clients, "must be at least 1: devices a round")
        require(self.cohorts >= 1, "cohorts", self.cohorts, "must be at least 1")
        fix = "must be at least 1: check-ins per participant; more let a selector such as Oort choose"
        require(self.waiting is None or self.waiting >= 1, "waiting", self.waiting, fix)
        require(self.strikes >= 1, "strikes", self.strikes, "must be at least 1")
        apart = all(not b.startswith(a) for a, b in permutations(self.found, 2))
        named = all(name == ROOT or name.isdigit() for name in self.found)
        fix = "must be the leaves of a tree, at most `cohorts`: ['0', '10', '11'], say; [''] is a single one"
        require(apart and named and 1 <= len(self.found) <= self.cohorts, "found", list(self.found), fix)
        least = self.clients // self.cohorts if self.fewest is None else self.fewest
        require(
            self.cohorts == 1 or (least >= 1 and self.cohorts * least <= self.clients),
            "cohorts",
            self.cohorts,
            f"can't all be fed: {self.clients} clients a round leave each {self.clients // self.cohorts}, "
            f"but one needs {max(least, 1)}; raise clients, or lower cohorts or fewest",
        )

    def find_doubt(self, members: int) -> str | None:
        """Whether its criterion hears too few ever to split the one cohort that there is at first."""
        heard, least = min(self.clients, members), self.criterion.members
        if self.force or self.cohorts == 1 or len(self.found) > 1 or heard >= least:
            return None
        fix = "raise clients" if members >= least else "take another criterion, or force splits"
        return f"auxo: no cohort splits: {heard} members a round, and sides are sought among {least}; {fix}"

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, inner=guard_rule(self.inner, robust))

    def start(self, ctx: Context) -> Crowd:
        inner = self.inner.start(ctx)
        cohorts = {name: CohortState(inner, self.criterion.start()) for name in self.found}
        return Crowd(cohorts, {name: {} for name in cohorts}, {})

    def lanes(self, m: Crowd, ctx: Context) -> tuple[str, ...]:
        if not ctx.working:
            return ()
        return (DOOR, *(name for name in m.cohorts if m.queue[name] or name in m.running))

    def plan(self, m: Crowd, lane: str, ctx: Context) -> tuple[Crowd, list[Command]]:
        if lane != DOOR:
            return self._train(m, lane, ctx)
        barred = {n for n, count in m.flags.items() if count >= self.strikes}
        return invite(m, self._count_wanted(m), barred, self.criterion, self.criterion.explore == "told", ctx)

    def merge(self, m: Crowd, lane: str, got: Got, ctx: Context) -> tuple[Crowd, list[Command]]:
        if lane == DOOR:
            return match(m, got, self.criterion.bonus, ctx), []
        return self._learn(m, lane, got, ctx)

    def serve(self, m: Crowd, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        served = {name: self.inner.serve(cohort.inner, node, ctx) for name, cohort in m.cohorts.items()}
        if node == ctx.me:
            first = {name: next(iter(views.values())) for name, views in served.items()}
            return {f"cohort {name}": served[name].get("global", task) for name, task in first.items()}
        out: dict[str, Task | Choice] = {}
        for view in next(iter(served.values())):
            tasks = {name: task for name, views in served.items() if isinstance(task := views[view], Task)}
            models = {name: task.send["params"] for name, task in tasks.items()}
            choose = ChooseCohort(
                find_model(next(iter(tasks.values()))), self.criterion.bonus, self.criterion.sure
            )
            out["cohort" if view == "global" else view] = Choice(choose, {"models": models}, tasks, SLOT)
        return out

    def _count_wanted(self, m: Crowd) -> int:
        """Check-ins before a cohort's round."""
        waiting = find_overcommit(self.inner) if self.waiting is None else self.waiting
        return ceil(self.clients // len(m.cohorts) * waiting)

    def _train(self, m: Crowd, lane: str, ctx: Context) -> tuple[Crowd, list[Command]]:
        """A round of a cohort, once enough devices wait for it; fewer, if there are no more to be had."""
        least = self._count_wanted(m)
        if m.dry:  # half a share will do, or whoever there is if nothing else goes on
            least = self.clients // len(m.cohorts) // 2 if m.running else 1
        if len(m.queue[lane]) < max(1, least):
            return m, []
        there = drop_absent(m.queue[lane], ctx)
        if len(there) < max(1, least):
            return replace(m, queue=m.queue | {lane: there}), []
        cohort = m.cohorts[lane]
        inner, commands = self._share_rule(m).plan(cohort.inner, None, ctx.only(there))
        to = {c.to for c in commands if type(c) is Task}
        if not to:
            return m, []
        out: list[Command] = [
            Task(c.to, c.job, c.send, (c.tag, there[c.to]), (lane, c.slot)) if type(c) is Task else c
            for c in commands
        ]
        queue = m.queue | {lane: {n: request for n, request in there.items() if n not in to}}
        m = replace(m, queue=queue, running=(*m.running, lane))
        return m.update(lane, replace(cohort, inner=inner)), out

    def _share_rule(self, m: Crowd) -> Cohort:
        """The inner rule with a cohort's share of the clients."""
        share = self.clients // len(m.cohorts)
        return self.inner.resize(share, (1 / len(m.cohorts)) ** self.criterion.scaling)

    def _learn(self, m: Crowd, lane: str, got: Got, ctx: Context) -> tuple[Crowd, list[Command]]:
        """The end of a round: the inner rule's merge, sides and rewards, perhaps a split; then feedback."""
        cohort = m.cohorts[lane]
        bare = Got([unwrap_reply(r) for r in got.replies], [unwrap_lost(e) for e in got.lost])
        nodes = [r.task.to for r in got.replies]
        requests: list[Request] = [r.task.tag[1] for r in got.replies]
        findings, lies, odd = None, list[bool](), list[bool]()
        if bare.replies:
            findings = self.criterion.learn(self._gather_evidence(m, lane, bare.replies, requests, ctx))
            lies = find_lies(requests, findings, self.claim)
            odd = find_odd(lies, findings.strays)
            bare = leave_out(bare, odd, findings.visits)
        inner, commands = self._share_rule(m).merge(cohort.inner, None, bare, ctx)
        m = replace(m, running=tuple(n for n in m.running if n != lane), round=max(m.round, inner.round))
        m = m.update(lane, CohortState(inner, cohort.learnt if findings is None else findings.state, m.round))
        if findings is None:
            return m, commands
        if self.criterion.explore == "told":  # what a device knows is known, so that it needn't be guessed
            m, lies = watch(m, nodes, requests, findings, lies, self.criterion.gamma)
        m, flagged = flag_claims(m, lane, nodes, lies, self.strikes)
        m, deserted = note_deserted(m)
        m, split = self._split(m, lane, findings, ctx)
        job = TakeFeedback(self.criterion.gamma, self.criterion.explore, self.criterion.bonus)
        tells = tell_participants(lane, nodes, list(m.cohorts), findings, job)
        m = replace(m, messages=m.messages + sum(nbytes(tell.send) for tell in tells))
        notes = [
            note_round(lane, requests, findings),
            *note_guard(lane, nodes, odd, findings, ctx.me),
            *flagged,
            *deserted,
            Note("affinity_bytes", m.messages),
        ]
        return m, [*commands, *notes, *split, *tells]

    def _gather_evidence(
        self, m: Crowd, lane: str, replies: Sequence[Reply], requests: list[Request], ctx: Context
    ) -> Evidence[Learnt]:
        updates = [take_comparable(self.inner, r, ctx) for r in replies]
        head, people = ctx.models[find_model(replies[0].task)].head_names, len(ctx.children)
        return Evidence(lane, updates, requests, head, m.learnt(), self._count_room(m), people, ctx.rng)

    def _count_room(self, m: Crowd) -> int:
        """How many parts a cohort may split into: as many as can be fed."""
        least = self.clients // self.cohorts if self.fewest is None else self.fewest
        return min(self.cohorts, self.clients // max(1, least)) - len(m.cohorts) + 1

    def _split(
        self, m: Crowd, lane: str, findings: Findings[Learnt], ctx: Context
    ) -> tuple[Crowd, list[Command]]:
        """Several of one, if it pays and they can be fed: all go on with what the inner rule had."""
        forced = m.forced < len(self.force) and m.round >= self.force[m.forced]
        early = bool(self.force) or m.round < self.first_split
        into = self.criterion.parts if forced else 0 if early else findings.into
        if not 1 < into <= self._count_room(m):
            return m, []
        learnt = self.criterion.split(m.learnt(), lane, into)
        m = replace(m, forced=m.forced + forced).split(lane, into, learnt, self.criterion.bonus, ctx.rng)
        facts = {
            "into": name_children(lane, into),
            "groups": len(m.cohorts),
            "round": m.round,
            "time": ctx.now,
            "sizes": [sum(side.get(into) == k for side in findings.side) for k in range(into)],
            **findings.facts,
        }
        return m, [Note("split", facts, lane)]
