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
from typing import Generic

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.messages import Choice, Command, Node, Note, Reply, Task, Until
from potluck.core.rule import Cohort, Compares, Got, M
from potluck.core.trees import Params
from potluck.jobs.least_loss import LeastLoss
from potluck.jobs.train import Train
from potluck.rules.inside import into, out, put_task
from potluck.rules.vectors import Metric, Vector, distances, flatten
from potluck.rules.wrap import find_model, require_cohort, unwrap

ROOT = ""  # where everybody stands at first
DOOR = "door"  # the lane in which devices without a group are sorted
More = TypeVar("More", default=None)  # what the algorithm that finds the groups remembers besides


@value(eq=False)
class Fork:
    """Where a group parted: the model that was trained then, and the mean update of each part."""

    params: Params
    ways: dict[str, Vector]


@value(eq=False)
class Groups(Generic[M, More]):
    """The tree and who stands where; nothing that lasts may live elsewhere."""

    more: More  # of the algorithm that finds the groups
    leaf: dict[str, M]  # of each group: the inner rule's state
    fork: dict[str, Fork]
    at: dict[Node, str]  # who isn't listed stands at the root
    sizes: dict[str, int]  # how many are listed where
    busy: dict[str, int]  # devices that a lane at work was given
    asked: int = 0  # devices, by all barriers that have closed
    round: int = 0


@value
class GroupRounds(Generic[M]):
    """The rounds of all groups, and a door at which devices without a group are sorted."""

    inner: Cohort[M]  # what each group trains by
    sort: Train  # what a device does to be sorted
    clients: int | None = 10  # over all groups; None: everybody
    deadline: float | None = None  # seconds; None: the inner rule's
    metric: Metric = "cosine"
    sketch: int | None = None  # compare so many numbers an update; None: all
    newcomers: float = 0.5  # the most of `clients` that may be at the door

    def __post_init__(self) -> None:
        least, limit, model = self.clients, self.deadline, find_model(self.inner)
        require(
            least is None or least >= 1,
            "clients",
            least,
            "must be at least 1: devices a round, over all groups",
        )
        require(limit is None or limit > 0, "deadline", limit, "must be above 0 seconds, or left out")
        require_cohort(self.inner)
        whole = not isinstance(unwrap(self.inner), Compares)
        fix = (
            "trains parts of a model, and members are sorted by changes of all of it; take such as 'fedyogi'"
        )
        require(whole, "inner", type(unwrap(self.inner)).__name__, fix)
        fix = f"sorting trains {self.sort.model.name!r}: give `local` and the inner rule the same model"
        require(model is None or model == self.sort.model, "inner.local.model", model, fix)

    def start(self, more: More, ctx: Context) -> Groups[M, More]:
        return Groups(more, {ROOT: self.inner.start(ctx)}, {}, {}, {}, {})

    def total(self, ctx: Context) -> int:
        """Devices a round."""
        return len(ctx.children) if self.clients is None else self.clients

    def lanes(self, m: Groups[M, More], ctx: Context) -> list[str]:
        if not ctx.working:
            return []
        lanes = self.allot(m, ctx)  # if there are more than devices, those that trained least go first
        return sorted(lanes, key=lambda lane: -1 if lane == DOOR else m.leaf[lane].round)

    def allot(self, m: Groups[M, More], ctx: Context) -> dict[str, int]:
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
        given = share_out([stands[name] for name in groups], max(1, total - out.get(DOOR, 0)))
        return out | dict(zip(groups, given, strict=True))

    def plan(self, m: Groups[M, More], lane: str, ctx: Context) -> tuple[Groups[M, More], list[Command]]:
        share = self.allot(m, ctx).get(lane, 0)
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
            m = replace(m, leaf=m.leaf | {lane: inner})
            commands = into(lane, [self._limit(c) for c in planned], ctx.me)
        asks = any(isinstance(c, Task) for c in commands)
        return (replace(m, busy=m.busy | {lane: share}) if asks else m), commands

    def merge(
        self, m: Groups[M, More], lane: str, got: Got, ctx: Context
    ) -> tuple[Groups[M, More], list[Command]]:
        if lane != DOOR:
            inner, commands = self.merge_group(m, lane, got, ctx)
            return self.close_lane(replace(m, leaf=m.leaf | {lane: inner}), lane, ctx), commands
        moves = {r.task.to: self.find_nearest(m.fork[r.task.tag], r) for r in got.replies}
        # Whose updates are refused can't be sorted: it goes where most are, instead of being asked for ever.
        moves |= {
            x.what.to: find_largest(m, x.what.tag)
            for x in got.lost
            if x.why == "bad" and isinstance(x.what, Task)
        }
        return self.close_lane(move_devices(m, moves), DOOR, ctx), []

    def merge_group(self, m: Groups[M, More], group: str, got: Got, ctx: Context) -> tuple[M, list[Command]]:
        """A group's state after a round that brought this; nothing else changes."""
        rule = self.inner.resize(m.busy[group], 1.0)
        inner, commands = rule.merge(m.leaf[group], None, out(got), self.members(m, group, ctx))
        return inner, into(group, commands, ctx.me)

    def close_lane(self, m: Groups[M, More], lane: str, ctx: Context, share: int = 0) -> Groups[M, More]:
        """After a barrier has closed: its devices are free and count towards the next round."""
        asked = m.asked + (share or m.busy[lane])
        busy = {name: n for name, n in m.busy.items() if name != lane}
        return replace(m, busy=busy, asked=asked, round=asked // self.total(ctx))

    def members(self, m: Groups[M, More], group: str, ctx: Context) -> Context:
        return ctx if group == ROOT else ctx.only(n for n, at in m.at.items() if at == group)

    def find_nearest(self, fork: Fork, reply: Reply) -> str:
        """The part of a fork whose way is nearest to an update."""
        found = flatten(reply.body["delta"], self.sketch)[None]
        far = distances(found, np.stack(list(fork.ways.values())), self.metric)[0]
        return list(fork.ways)[int(far.argmin())]

    def params(self, state: M, ctx: Context) -> Params:
        """A group's model."""
        params: Params = self._serve_one(state, ctx.me, ctx).send["params"]
        return params

    def serve(self, m: Groups[M, More], node: Node, ctx: Context) -> dict[str, Task | Choice]:
        """A member's model is its group's; who has none takes the best for its own rows of those in reach."""
        if node == ctx.me:
            return {f"cohort {g or 'all'}": self._serve_one(state, node, ctx) for g, state in m.leaf.items()}
        tasks = {
            g: put_task(g, self._serve_one(m.leaf[g], node, ctx)) for g in find_below(m, m.at.get(node, ROOT))
        }
        if len(tasks) == 1:
            return {"cohort": next(iter(tasks.values()))}
        models = {g: task.send["params"] for g, task in tasks.items()}
        return {"cohort": Choice(LeastLoss(self.sort.model), {"models": models}, tasks)}

    def _serve_one(self, state: M, node: Node, ctx: Context) -> Task:
        first = next(iter(self.inner.serve(state, node, ctx).values()))
        assert isinstance(first, Task), "a group has one model"
        return first

    def _limit(self, c: Command) -> Command:
        return Until(self.deadline, c.enough) if isinstance(c, Until) and self.deadline is not None else c


def share_out(sizes: Sequence[int], total: int) -> list[int]:
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


def move_devices(m: Groups[M, More], moves: Mapping[Node, str]) -> Groups[M, More]:
    """The same with devices elsewhere in the tree; the root forgets them."""
    at, sizes = dict(m.at), dict(m.sizes)
    for node, to in moves.items():
        before = at.pop(node, ROOT)
        if before != ROOT:
            sizes[before] -= 1
        if to != ROOT:
            at[node], sizes[to] = to, sizes.get(to, 0) + 1
    return replace(m, at=at, sizes=sizes)


def split_group(
    m: Groups[M, More],
    group: str,
    params: Params,
    states: Sequence[M],
    nodes: Sequence[Node],
    part: NDArray[np.int64],
    ways: Vector,
) -> tuple[Groups[M, More], Note]:
    """The same with parts in the place of a group: `part` says which of them each node belongs to."""
    names = [f"{group}.{i}" if group else str(i) for i in range(len(states))]
    leaf: dict[str, M] = {}
    for name, state in m.leaf.items():
        leaf |= dict(zip(names, states, strict=True)) if name == group else {name: state}
    fork = Fork(params, dict(zip(names, ways, strict=True)))
    m = replace(m, leaf=leaf, fork=m.fork | {group: fork})
    m = move_devices(m, {n: names[int(p)] for n, p in zip(nodes, part, strict=True)})
    sizes = {name: m.sizes.get(name, 0) for name in names}
    return m, Note("split", {"round": m.round, "sizes": sizes, "groups": len(leaf)}, group or None)


def find_below(m: Groups[M, More], place: str) -> list[str]:
    """The groups at or below a place in the tree."""
    return [g for g in m.leaf if g == place or place == ROOT or g.startswith(f"{place}.")]


def find_largest(m: Groups[M, More], place: str) -> str:
    """The group with most members at or below a place in the tree."""
    return max(find_below(m, place), key=lambda g: m.sizes.get(g, 0))
