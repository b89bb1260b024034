"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from math import ceil
from typing import Annotated, Any, Final

import numpy as np

from potluck.algorithms.auxo.calibrated import Calibrated
from potluck.algorithms.auxo.faithful import Heard, Mode, Told
from potluck.algorithms.fedavg import FedAvg
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.messages import Choice, Command, Lost, Node, Note, Reply, Task, Tell
from potluck.core.rule import Cohort, Got
from potluck.core.trees import nbytes
from potluck.jobs.affinity import SLOT, CheckIn, Remember, Settle, unpacked
from potluck.jobs.cohort_tree import ROOT, children, halved, nearest_known, parts

DOOR: Final = "door"  # the lane in which devices check in
FLAGGED: Final = 10_000  # at most so many devices under suspicion are remembered
DESERTED: Final = 10  # rounds of others, after which a cohort without any is said to be deserted

Request = Mapping[str, Any]


@value(name="auxo.Part", eq=False)
class Part:
    """A cohort: the inner rule's state and what was learnt of its members."""

    inner: Any
    learnt: Any
    round: int = 0  # of the crowd, when it last trained
    said: bool = False  # that it is deserted


@value(name="auxo.Crowd", eq=False)
class Crowd:
    """The tree of cohorts and who waits; nothing here grows with the population."""

    parts: dict[str, Part]
    queue: dict[str, dict[Node, Request]]
    flags: dict[Node, int]  # false claims, of those who made any
    running: tuple[str, ...] = ()
    dry: bool = False  # nobody more could be invited
    round: int = 0
    messages: int = 0  # bytes of requests and feedback
    forced: int = 0  # splits at rounds that were given


@value
class Auxo:
    """Cohorts that find themselves, around any rule with one model."""

    inner: Annotated[Cohort[Any], "what trains in every cohort"] = FedAvg()
    clients: Annotated[int, "devices a round, shared by all cohorts"] = 10
    cohorts: Annotated[int, "at most"] = 4
    fewest: Annotated[
        int | None, "devices a round that a cohort must have; clients / cohorts unless said"
    ] = None
    mode: Annotated[Mode, "how members are told apart, and when a split pays; or Faithful"] = Calibrated()
    first_split: Annotated[int, "no split before this round"] = 20
    found: Annotated[tuple[str, ...], "cohorts to begin with, known from another task (fleet.memories)"] = (
        ROOT,
    )
    force: Annotated[tuple[int, ...], "rounds at which a cohort splits whatever the criterion says"] = ()
    waiting: Annotated[
        float | None, "check-ins per participant before a round; what inner asks for unless said"
    ] = None
    claim: Annotated[float, "a claimed reward from which on being an outlier is suspect"] = 0.5
    strikes: Annotated[int, "such claims until a device is shut out"] = 3

    def __post_init__(self) -> None:
        fix = "can't share out its clients: take a rule with rounds and one model, such as fedavg or fedyogi"
        require(hasattr(self.inner, "resized"), "inner", type(self.inner).__name__, fix)
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

    def start(self, ctx: Context) -> Crowd:
        inner = self.inner.start(ctx)
        parts = {name: Part(inner, self.mode.start()) for name in self.found}
        return Crowd(parts, {name: {} for name in parts}, {})

    def lanes(self, m: Crowd, ctx: Context) -> tuple[str, ...]:
        if not ctx.working:
            return ()
        return (DOOR, *(name for name in m.parts if m.queue[name] or name in m.running))

    def plan(self, m: Crowd, lane: str, ctx: Context) -> tuple[Crowd, list[Command]]:
        return self._invite(m, ctx) if lane == DOOR else self._train(m, lane, ctx)

    def merge(self, m: Crowd, lane: str, got: Got, ctx: Context) -> tuple[Crowd, list[Command]]:
        return self._match(m, got, ctx) if lane == DOOR else self._learn(m, lane, got, ctx)

    def serve(self, m: Crowd, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        served: dict[str, Any] = {k: self.inner.serve(part.inner, node, ctx) for k, part in m.parts.items()}
        if node == ctx.me:
            return {f"cohort {k}": next(iter(views.values())) for k, views in served.items()}
        out: dict[str, Task | Choice] = {}
        for view, task in served[next(iter(served))].items():
            tasks = {name: views[view] for name, views in served.items()}
            models = {name: t.send["params"] for name, t in tasks.items()}
            settle = Settle(task.job.model, self.mode.bonus)
            out["cohort" if view == "global" else view] = Choice(settle, {"models": models}, tasks, SLOT)
        return out

    # -------------------------------------------------------------------------------------------- the door

    def _invite(self, m: Crowd, ctx: Context) -> tuple[Crowd, list[Command]]:
        """As many devices as the cohorts that could begin a round still lack."""
        want, idle = self._want(m), [name for name in m.parts if name not in m.running]
        m = replace(m, queue=m.queue | {name: _here(m.queue[name], ctx) for name in idle})
        short = sum(max(0, want - len(m.queue[name])) for name in idle)
        if not short:
            return m, []
        waiting = {n for queue in m.queue.values() for n in queue}
        out = {n for n, count in m.flags.items() if count >= self.strikes}
        nodes = ctx.sample(short, waiting | out)
        send = {"leaves": list(m.parts), "epsilon": self.mode.epsilon * self.mode.decay**m.round}
        job = CheckIn(self.mode.bonus, self.mode.explore == "told")
        return replace(m, dry=len(nodes) < short), [Task(n, job, send, slot=SLOT) for n in nodes]

    def _match(self, m: Crowd, got: Got, ctx: Context) -> tuple[Crowd, list[Command]]:
        """Everybody who checked in, to the leaf that is closest to what was asked for."""
        queue = {name: dict(waiting) for name, waiting in m.queue.items()}
        messages = m.messages
        for r in got.replies:
            leaf, request = self._resolved(m, unpacked(r.body, r.task.send["leaves"]), ctx.rng)
            queue[leaf][r.task.to] = request
        if got.replies:
            one = got.replies[0]
            messages += len(got.replies) * (nbytes(one.body) + nbytes(one.task.send))
        return replace(m, queue=queue, messages=messages), []

    def _resolved(self, m: Crowd, said: Request, rng: np.random.Generator) -> tuple[str, Request]:
        """The leaf that a request means by now, and the request as it would be made for that leaf."""
        if said["cohort"] in m.parts:
            return said["cohort"], said
        name, side, reward = nearest_known(said["cohort"], m.parts), said["side"], said["affinity"]
        if name != said["cohort"]:
            side = {}  # of a cohort that the server has forgotten
        while name not in m.parts:
            count = parts(name, m.parts)
            own = side.get(count, int(rng.integers(count)))
            name, reward, side = f"{name}{own}", reward + self.mode.bonus * (count in side), {}
        return name, {**said, "cohort": name, "affinity": reward, "side": {}}

    def _want(self, m: Crowd) -> int:
        waiting = getattr(self.inner, "overcommit", 1.0) if self.waiting is None else self.waiting
        return ceil(self.clients // len(m.parts) * waiting)

    # ------------------------------------------------------------------------------------------ the cohorts

    def _train(self, m: Crowd, lane: str, ctx: Context) -> tuple[Crowd, list[Command]]:
        """A round of a cohort, once enough devices wait for it; fewer, if there are no more to be had."""
        least = self._want(m)
        if m.dry:  # half a share will do, or whoever there is if nothing else goes on
            least = self.clients // len(m.parts) // 2 if m.running else 1
        if len(m.queue[lane]) < max(1, least):
            return m, []
        said = _here(m.queue[lane], ctx)
        if len(said) < max(1, least):
            return replace(m, queue=m.queue | {lane: said}), []
        inner, commands = self._rule(m).plan(m.parts[lane].inner, None, ctx.only(said))
        to = {c.to for c in commands if type(c) is Task}
        if not to:
            return m, []
        out: list[Command] = [
            Task(c.to, c.job, c.send, (c.tag, said[c.to]), (lane, c.slot)) if type(c) is Task else c
            for c in commands
        ]
        queue = m.queue | {lane: {n: q for n, q in said.items() if n not in to}}
        parts = m.parts | {lane: replace(m.parts[lane], inner=inner)}
        return replace(m, parts=parts, queue=queue, running=(*m.running, lane)), out

    def _rule(self, m: Crowd) -> Cohort[Any]:
        share = self.clients // len(m.parts)
        return self.inner.resized(share, (1 / len(m.parts)) ** self.mode.scaling)

    def _learn(self, m: Crowd, lane: str, got: Got, ctx: Context) -> tuple[Crowd, list[Command]]:
        """The end of a round: the inner rule's merge, sides and rewards, perhaps a split; then feedback."""
        part = m.parts[lane]
        bare = Got([_unwrapped(r) for r in got.replies], [_unwrapped(e) for e in got.lost])
        inner, commands = self._rule(m).merge(part.inner, None, bare, ctx)
        round_ = max(m.round, inner.round)
        m = replace(m, running=tuple(name for name in m.running if name != lane), round=round_)
        part = Part(inner, part.learnt, round_)
        m = replace(m, parts=m.parts | {lane: part})
        if not got.replies:
            return m, commands
        requests = [r.task.tag[1] for r in got.replies]
        told = self.mode.learn(self._heard(m, lane, bare.replies, requests, ctx))
        m = replace(m, parts=m.parts | {lane: replace(part, learnt=told.state)})
        m, notes = self._judged(m, lane, got.replies, requests, told)
        m, more = self._split(m, lane, told, ctx)
        leaves, job = list(m.parts), Remember(self.mode.gamma, self.mode.explore, self.mode.bonus)
        tells = []
        for i, r in enumerate(got.replies):
            send = {"cohort": lane, "side": dict(told.side[i]), "leaves": leaves,
                    "gain": None if told.gain is None else told.gain[i],
                    "others": {} if told.others is None else dict(told.others[i])}  # fmt: skip
            tells.append(Tell(r.task.to, job, send, SLOT))
        m = replace(m, messages=m.messages + sum(nbytes(t.send) for t in tells))
        notes.append(Note("affinity_bytes", m.messages))
        return m, [*commands, *notes, *more, *tells]

    def _heard(
        self, m: Crowd, lane: str, replies: list[Reply], requests: list[Request], ctx: Context
    ) -> Heard:
        model = replies[0].task.job.model  # type: ignore[attr-defined]
        learnt = {name: part.learnt for name, part in m.parts.items()}
        updates, head = [r.body["delta"] for r in replies], ctx.models[model].head_names
        return Heard(lane, updates, requests, head, learnt, self._room(m), len(ctx.children), ctx.rng)

    def _room(self, m: Crowd) -> int:
        """How many parts a cohort may split into: as many as can be fed."""
        least = self.clients // self.cohorts if self.fewest is None else self.fewest
        return min(self.cohorts, self.clients // max(1, least)) - len(m.parts) + 1

    def _judged(
        self, m: Crowd, lane: str, replies: list[Reply], requests: list[Request], told: Told
    ) -> tuple[Crowd, list[Command]]:
        """Who claimed to fit but doesn't; what the round showed; which cohorts nobody comes to."""
        flags, notes = dict(m.flags), []
        gains = told.gain if told.gain is not None else [None] * len(replies)
        for r, said, gain in zip(replies, requests, gains, strict=True):
            if gain is not None and said["affinity"] >= self.claim and gain < 0:
                flags[r.task.to] = flags.pop(r.task.to, 0) + 1
                if flags[r.task.to] == self.strikes:
                    notes.append(Note("blacklisted", r.task.to, lane))
        while len(flags) > FLAGGED:
            del flags[next(iter(flags))]
        new = sum(said["times"] == 0 for said in requests)
        facts: dict[str, Any] = {"participants": len(replies), "newcomers": new, **told.facts}
        if heard := [gain for gain in gains if gain is not None]:
            facts["reward"] = float(np.mean(heard))
        parts = dict(m.parts)
        for name, part in m.parts.items():
            if m.round - part.round >= DESERTED and not part.said:
                parts[name] = replace(part, said=True)
                notes.append(Note("deserted", "no members: the cohort keeps its model", name))
        return replace(m, flags=flags, parts=parts), [Note("cohort", facts, lane), *notes]

    def _split(self, m: Crowd, lane: str, told: Told, ctx: Context) -> tuple[Crowd, list[Command]]:
        """Several of one, if it pays and they can be fed: all go on with what the inner rule had."""
        forced = m.forced < len(self.force) and m.round >= self.force[m.forced]
        into = self.mode.parts if forced else 0 if self.force or m.round < self.first_split else told.into
        if not 1 < into <= self._room(m):
            return m, []
        inner, names = m.parts[lane].inner, children(lane, into)
        learnt = self.mode.split({name: part.learnt for name, part in m.parts.items()}, lane, into)
        young = [Part(inner, learnt[name], m.round) for name in names]
        split = halved(m.parts, lane, young)
        split = {name: replace(part, learnt=learnt[name]) for name, part in split.items()}
        empty: list[dict[Node, Request]] = [{} for _ in names]
        queue = halved(m.queue, lane, empty)
        crowd = replace(m, parts=split, queue=queue, forced=m.forced + forced)
        for node, said in m.queue[lane].items():
            leaf, request = self._resolved(crowd, said, ctx.rng)
            queue[leaf][node] = request
        sizes = [sum(side.get(into) == k for side in told.side) for k in range(into)]
        what = {"into": names, "groups": len(split), "round": m.round, "time": ctx.now, "sizes": sizes}
        return crowd, [Note("split", {**what, **told.facts}, lane)]


def _here(queue: dict[Node, Request], ctx: Context) -> dict[Node, Request]:
    """Those of a queue who haven't left by now."""
    return {n: queue[n] for n in ctx.ready(list(queue))} if queue else queue


def _unwrapped(e: Any) -> Any:
    """An event as the inner rule knows it: its own tag and slot."""
    what = "task" if isinstance(e, Reply) else "what"
    task = getattr(e, what)
    if isinstance(e, Lost) and not isinstance(task, Task):
        return e
    return replace(e, **{what: replace(task, tag=task.tag[0], slot=task.slot[1])})
