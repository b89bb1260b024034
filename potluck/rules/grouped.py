"""Several models, each with known members who train it by rounds of their own.

Groups are the leaves of a tree. Where a group parted, a *fork* remembers the model of that moment and which
way each part went; a device that stands at a fork (it was absent, or was never seen) is sorted by training
that model once and following the way that its own update is nearest to. Everybody stands at the root, "",
until told otherwise. Each group's training is an inner rule, given its share of devices and shown its members
only.

The groups share what one model would have: at most `clients` devices at a time over all of them, in
proportion to members and at least one each, and a round is counted whenever as many have been asked. Sorting
counts too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.messages import Choice, Command, Node, Note, Reply, Task, Until
from potluck.core.rule import Got
from potluck.core.trees import Params
from potluck.jobs.least_loss import LeastLoss
from potluck.jobs.train import Train
from potluck.rules.vectors import Metric, Vector, distances, vector
from potluck.rules.wrap import is_cohort, trained_model

ROOT = ""  # where everybody stands at first
DOOR = "door"  # the lane in which devices without a group are sorted


@value(eq=False)
class Fork:
    """Where a group parted: the model that was trained then, and the mean update of each part."""

    params: Params
    ways: dict[str, Vector]


@value(eq=False)
class Groups:
    """The tree and who stands where; nothing that lasts may live elsewhere."""

    leaf: dict[str, Any]  # of each group: the inner rule's state
    fork: dict[str, Fork]
    at: dict[Node, str]  # who isn't listed stands at the root
    sizes: dict[str, int]  # how many are listed where
    busy: dict[str, int]  # devices that a lane at work was given
    asked: int = 0  # devices, by all barriers that have closed
    round: int = 0
    more: Any = None  # of the algorithm that finds the groups


@value
class Grouped:
    """The rounds of all groups, and a door at which devices without a group are sorted."""

    inner: Any  # Cohort: what each group trains by
    sort: Train  # what a device does to be sorted
    clients: int | None = 10  # over all groups; None: everybody
    deadline: float | None = None  # seconds; None: the inner rule's
    metric: Metric = "cosine"
    sketch: int | None = None  # compare so many numbers an update; None: all
    newcomers: float = 0.5  # the most of `clients` that may be at the door

    def __post_init__(self) -> None:
        least, limit, model = self.clients, self.deadline, trained_model(self.inner)
        require(
            least is None or least >= 1,
            "clients",
            least,
            "must be at least 1: devices a round, over all groups",
        )
        require(limit is None or limit > 0, "deadline", limit, "must be above 0 seconds, or left out")
        fix = "can't train a part of the devices; take a rule in rounds with one model, such as 'fedyogi'"
        require(is_cohort(self.inner), "inner", type(self.inner).__name__, fix)
        fix = f"sorting trains {self.sort.model.name!r}: give `local` and the inner rule the same model"
        require(model is None or model == self.sort.model, "inner.local.model", model, fix)

    def start(self, ctx: Context) -> Groups:
        return Groups({ROOT: self.inner.start(ctx)}, {}, {}, {}, {})

    def total(self, ctx: Context) -> int:
        """Devices a round."""
        return len(ctx.children) if self.clients is None else self.clients

    def lanes(self, m: Groups, ctx: Context) -> list[str]:
        if not ctx.working:
            return []
        lanes = self.allotted(m, ctx)  # if there are more than devices, those that trained least go first
        return sorted(lanes, key=lambda lane: -1 if lane == DOOR else m.leaf[lane].round)

    def allotted(self, m: Groups, ctx: Context) -> dict[str, int]:
        """How many devices each group may ask, and the door."""
        total, people = self.total(ctx), len(ctx.children)
        at_root = people - sum(m.sizes.values())
        stands = {name: at_root if name == ROOT else m.sizes.get(name, 0) for name in (*m.leaf, *m.fork)}
        unsorted = sum(stands[name] for name in m.fork)
        out: dict[str, int] = {}
        if unsorted:
            fair = round(total * unsorted / people)
            out[DOOR] = min(unsorted, max(1, min(fair, int(total * self.newcomers))))
        groups = [name for name in m.leaf if stands[name]]
        given = shares([stands[name] for name in groups], max(1, total - out.get(DOOR, 0)))
        return out | dict(zip(groups, given, strict=True))

    def plan(self, m: Groups, lane: str, ctx: Context) -> tuple[Groups, list[Command]]:
        share = self.allotted(m, ctx).get(lane, 0)
        if not 1 <= share <= self.total(ctx) - sum(m.busy.values()):
            return m, []  # until another group's round has ended
        if lane == DOOR:
            unsorted = ctx.only(n for n in ctx.children if m.at.get(n, ROOT) in m.fork)
            picks = [(n, m.at.get(n, ROOT)) for n in unsorted.sample(share)]
            commands: list[Command] = [
                Task(n, self.sort, {"params": m.fork[at].params}, at) for n, at in picks
            ]
            commands.append(Until(self.deadline))
        else:
            inner, planned = self.inner.resize(share, 1.0).plan(
                m.leaf[lane], None, self.members(m, lane, ctx)
            )
            m, commands = replace(m, leaf=m.leaf | {lane: inner}), [self._own(c, lane) for c in planned]
        asks = any(isinstance(c, Task) for c in commands)
        return (replace(m, busy=m.busy | {lane: share}) if asks else m), commands

    def merge(self, m: Groups, lane: str, got: Got, ctx: Context) -> tuple[Groups, list[Command]]:
        if lane != DOOR:
            inner, commands = self.trained(m, lane, got, ctx)
            return self.counted(replace(m, leaf=m.leaf | {lane: inner}), lane, ctx), commands
        moves = {r.task.to: self.nearest(m.fork[r.task.tag], r) for r in got.replies}
        # Whose updates are refused can't be sorted: it goes where most are, instead of being asked for ever.
        moves |= {
            x.what.to: largest(m, x.what.tag) for x in got.lost if x.why == "bad" and isinstance(x.what, Task)
        }
        return self.counted(settled(m, moves), DOOR, ctx), []

    def trained(self, m: Groups, group: str, got: Got, ctx: Context) -> tuple[Any, list[Command]]:
        """A group's state after a round that brought this; nothing else changes."""
        rule = self.inner.resize(m.busy[group], 1.0)
        after: tuple[Any, list[Command]] = rule.merge(m.leaf[group], None, got, self.members(m, group, ctx))
        return after

    def counted(self, m: Groups, lane: str, ctx: Context, share: int = 0) -> Groups:
        """After a barrier has closed: its devices are free and count towards the next round."""
        asked = m.asked + (share or m.busy[lane])
        busy = {name: n for name, n in m.busy.items() if name != lane}
        return replace(m, busy=busy, asked=asked, round=asked // self.total(ctx))

    def members(self, m: Groups, group: str, ctx: Context) -> Context:
        return ctx if group == ROOT else ctx.only(n for n, at in m.at.items() if at == group)

    def nearest(self, fork: Fork, reply: Reply) -> str:
        """The part of a fork whose way is nearest to an update."""
        found = vector(reply.body["delta"], self.sketch)[None]
        far = distances(found, np.stack(list(fork.ways.values())), self.metric)[0]
        return list(fork.ways)[int(far.argmin())]

    def params(self, state: Any, ctx: Context) -> Params:
        """A group's model."""
        params: Params = self._served(state, ctx.me, ctx).send["params"]
        return params

    def serve(self, m: Groups, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        """A member's model is its group's; who has none takes the best for its own rows of those in reach."""
        if node == ctx.me:
            return {f"cohort {g or 'all'}": self._served(state, node, ctx) for g, state in m.leaf.items()}
        tasks = {
            g: replace(self._served(m.leaf[g], node, ctx), slot=g) for g in below(m, m.at.get(node, ROOT))
        }
        if len(tasks) == 1:
            return {"cohort": next(iter(tasks.values()))}
        models = {g: task.send["params"] for g, task in tasks.items()}
        return {"cohort": Choice(LeastLoss(self.sort.model), {"models": models}, tasks)}

    def _served(self, state: Any, node: Node, ctx: Context) -> Task:
        first: Task = next(iter(self.inner.serve(state, node, ctx).values()))
        return first

    def _own(self, c: Command, group: str) -> Command:
        if isinstance(c, Task):
            return replace(c, slot=group)  # memories of one group don't leak into another
        if isinstance(c, Until) and self.deadline is not None:
            return Until(self.deadline, c.enough)
        return c


def shares(sizes: Sequence[int], total: int) -> list[int]:
    """A total in proportion to sizes, by largest remainders, but at least 1 each, whatever the total."""
    if len(sizes) >= total:
        return [1] * len(sizes)
    exact = np.array(sizes) * total / sum(sizes)
    out = np.floor(exact).astype(int)
    out[np.argsort(out - exact, kind="stable")[: total - out.sum()]] += 1
    for poor in np.flatnonzero(out == 0):
        out[out.argmax()] -= 1
        out[poor] = 1
    return [int(n) for n in out]


def settled(m: Groups, moves: Mapping[Node, str]) -> Groups:
    """The same with devices elsewhere in the tree; the root forgets them."""
    at, sizes = dict(m.at), dict(m.sizes)
    for node, to in moves.items():
        before = at.pop(node, ROOT)
        if before != ROOT:
            sizes[before] -= 1
        if to != ROOT:
            at[node], sizes[to] = to, sizes.get(to, 0) + 1
    return replace(m, at=at, sizes=sizes)


def parted(
    m: Groups,
    group: str,
    params: Params,
    states: Sequence[Any],
    nodes: Sequence[Node],
    part: NDArray[np.int64],
    ways: Vector,
) -> tuple[Groups, Note]:
    """The same with parts in the place of a group: `part` says which of them each node belongs to."""
    names = [f"{group}.{i}" if group else str(i) for i in range(len(states))]
    leaf: dict[str, Any] = {}
    for name, state in m.leaf.items():
        leaf |= dict(zip(names, states, strict=True)) if name == group else {name: state}
    fork = Fork(params, dict(zip(names, ways, strict=True)))
    m = replace(m, leaf=leaf, fork=m.fork | {group: fork})
    m = settled(m, {n: names[int(p)] for n, p in zip(nodes, part, strict=True)})
    sizes = {name: m.sizes.get(name, 0) for name in names}
    return m, Note("split", {"round": m.round, "sizes": sizes, "groups": len(leaf)}, group or None)


def below(m: Groups, place: str) -> list[str]:
    """The groups at or below a place in the tree."""
    return [g for g in m.leaf if g == place or place == ROOT or g.startswith(f"{place}.")]


def largest(m: Groups, place: str) -> str:
    """The group with most members at or below a place in the tree."""
    return max(below(m, place), key=lambda g: m.sizes.get(g, 0))
