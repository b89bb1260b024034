"""Edges between devices and a cloud: an edge that goes on training while the cloud is silent.

An edge holds local rounds with its devices by an inner rule with one model. When a global model comes, the
round at hand is finished; the edge's model and the global one are mixed, half and half; the cloud is answered
and the next local round begins, all at the same moment. So the cloud waits for no more than one local round,
and who has fast devices holds more of them. Before the first answer there is nothing to mix.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.job import Job
from potluck.core.messages import Choice, Command, Node, Note, Reply, Task
from potluck.core.rule import Got
from potluck.core.trees import Params, Tree, sub, tmap
from potluck.jobs import Kept, Remember, Train, used
from potluck.rules.vectors import length

EVERYBODY = 1_000_000_000  # as a number of clients: all that are there
PATIENCE = 1_000  # local rounds without a word from the cloud: it may wait for an edge that nobody comes to


@value(eq=False)
class AtEdge:
    """What an edge remembers; nothing that lasts may live elsewhere."""

    inner: Any  # of the inner rule
    world: Params | None = None  # the last global model that was mixed in, or begun with; W_G
    came: Params | None = None  # one that isn't mixed in yet
    first: bool = True  # what has come is what training began with: nothing to mix
    answer: Params | None = None  # what the cloud is told
    held: int = 0  # local rounds since the last answer; E
    told: tuple[int, float | None] | None = None  # of the last answer, to be noted: rounds, and distance

    @property
    def round(self) -> int:
        return int(self.inner.round)


@value
class Edge:
    """A rule with one model that goes on between the cloud's models."""

    inner: Any  # a rule with one model that may sit below a parent, such as FedAvg
    rounds: int | tuple[int, ...] | None = None  # between two answers, of all or of each edge; None: as fit
    upload_before_mix: bool = False
    shows: bool = False  # devices are sent the global model too, as `global`

    def __post_init__(self) -> None:
        each = self.rounds if isinstance(self.rounds, tuple) else (self.rounds,)
        good = all(e is None or e >= 1 for e in each) and len(each) > 0
        require(good, "local_rounds", self.rounds, "must be 1 or more, for all edges or for each in a list")

    def start(self, ctx: Context) -> AtEdge:
        self._least(ctx)  # refuses a list that doesn't name this edge
        return AtEdge(self.inner.start(ctx))

    def lanes(self, m: AtEdge, ctx: Context) -> tuple[None, ...]:
        if m.world is None or ctx.stop:
            return ()
        most = PATIENCE if self.rounds is None else self._least(ctx)
        return (None,) if m.held < most else ()  # whether it owes an answer or not

    def plan(self, m: AtEdge, lane: None, ctx: Context) -> tuple[AtEdge, list[Command]]:
        inner, commands = self.inner.plan(m.inner, lane, ctx)
        if self.shows:
            commands = altered(commands, send=lambda sent: {**sent, "global": m.world})
        notes: list[Command] = []
        if m.told is not None:  # here, since adopting can't say anything
            held, far = m.told
            notes = [Note("local_rounds", held, ctx.me)]
            notes += [] if far is None else [Note("mixed", far, ctx.me)]
        return replace(m, inner=inner, told=None), [*notes, *commands]

    def merge(self, m: AtEdge, lane: None, got: Got, ctx: Context) -> tuple[AtEdge, list[Command]]:
        inner, commands = self.inner.merge(m.inner, lane, got, ctx)
        m = replace(m, inner=inner, held=m.held + 1)
        return self._mixed(m, ctx), [*commands, *learnt(got.replies, ctx.me)]

    def adopt(self, m: AtEdge, task: Task, ctx: Context) -> AtEdge:
        came: Params = task.send["params"]
        if m.world is None:
            return replace(m, inner=self.inner.adopt(m.inner, task, ctx), world=came, came=came)
        return self._mixed(replace(m, came=came, first=False), ctx)

    def report(self, m: AtEdge, task: Task, ctx: Context) -> tuple[Tree, float] | None:
        if m.came is not None:
            return None
        return {"delta": sub(m.answer, task.send["params"])}, 1.0  # one edge, one vote

    def serve(self, m: AtEdge, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        return dict(self.inner.serve(m.inner, node, ctx))

    def _mixed(self, m: AtEdge, ctx: Context) -> AtEdge:
        """With the global model that has come mixed in, if there is one and enough rounds were held."""
        if m.came is None or m.held < self._least(ctx):
            return m
        ours: Params = self.serve(m, ctx.me, ctx)["global"].send["params"]
        if m.first:
            return replace(m, came=None, answer=ours, held=0, told=(m.held, None))
        half: Params = tmap(lambda a, b: (a + b) / 2, ours, m.came)
        inner = self.inner.adopt(m.inner, Task(ctx.me, Train(), {"params": half}), ctx)
        return AtEdge(
            inner=inner,
            world=m.came,
            first=False,
            answer=ours if self.upload_before_mix else half,
            told=(m.held, length(sub(ours, m.came))),
        )

    def _least(self, ctx: Context) -> int:
        """Local rounds before an answer."""
        if not isinstance(self.rounds, tuple):
            return self.rounds or 1
        place = number(ctx)
        fix = f"names {len(self.rounds)} edges: give one number for each edge, or one for all"
        require(place < len(self.rounds), "local_rounds", list(self.rounds), fix)
        return self.rounds[place]


@value
class EvenCloud:
    """A cloud to which every edge counts alike, however many rows are below it."""

    inner: Any  # FedAvg
    rounds: int | tuple[int, ...] | None = None  # of the edges: a list must not name more than there are

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def start(self, ctx: Context) -> Any:
        edges = sum(1 for node in ctx.children if node > ctx.me)  # devices may hang below the cloud as well
        named = len(self.rounds) if isinstance(self.rounds, tuple) else edges
        fix = f"names {named} edges, but there are {edges}: give one number for each, or one for all"
        require(named == edges, "local_rounds", self.rounds, fix)
        return self.inner.start(ctx)

    def merge(self, m: Any, lane: None, got: Got, ctx: Context) -> tuple[Any, list[Command]]:
        even = [replace(r, weight=1.0) for r in got.replies if r.weight > 0]
        after: tuple[Any, list[Command]] = self.inner.merge(m, lane, Got(even, got.lost), ctx)
        return after


@value
class OwnModels:
    """An edge's rule whose devices keep the models that they train, and are served these first.

    Views are the same whatever the rule: `personal`, the device's own model after its last local training, or
    the edge's if it has none; `edge`; then what else the rule serves; and the cloud's word is `global`.
    """

    inner: Any  # a rule that serves its model as `global`

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def plan(self, m: Any, lane: Any, ctx: Context) -> tuple[Any, list[Command]]:
        m, commands = self.inner.plan(m, lane, ctx)
        return m, altered(commands, job=_remembering)

    def serve(self, m: Any, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        views = dict(self.inner.serve(m, node, ctx))
        edge = views.pop("global")
        if node == ctx.me:  # it trains no model of its own
            return {"edge": edge, **views}
        views.pop("personal", None)  # what the rule means by it: here it is the same for all rules
        return {"personal": replace(edge, job=used(edge.job.model, Kept())), "edge": edge, **views}


@value
class Edged:
    """Devices, the edges that they belong to, and a cloud."""

    cloud: Any
    edge: Any

    tiers: ClassVar[tuple[str, ...]] = ("edge",)

    def at(self, tier: str) -> Any:
        return self.cloud if tier == "cloud" else self.edge


def number(ctx: Context) -> int:
    """Of an edge, from 0: edges follow the cloud."""
    assert ctx.parent is not None
    return ctx.me - ctx.parent - 1


def learnt(replies: Sequence[Reply], edge: Node) -> list[Command]:
    """What devices tell of their training, on average over rows."""
    sums: dict[str, tuple[float, float]] = {}
    for r in replies:
        for name, number in r.metrics.items():
            total, rows = sums.get(name, (0.0, 0.0))
            sums[name] = total + r.weight * number, rows + r.weight
    return [Note(f"train_{name}", total / rows, edge) for name, (total, rows) in sums.items() if rows > 0]


def altered(
    commands: Sequence[Command],
    job: Callable[[Any], Job] = lambda job: job,
    send: Callable[[dict[str, Tree]], dict[str, Tree]] = lambda sent: sent,
) -> list[Command]:
    """The same commands with other jobs and inboxes in tasks; what tasks share, they still share."""
    made: dict[int, Any] = {}

    def new(old: Any, change: Callable[[Any], Any]) -> Any:
        if id(old) not in made:
            made[id(old)] = change(old)
        return made[id(old)]

    return [
        replace(c, job=new(c.job, job), send=new(c.send, send)) if isinstance(c, Task) else c
        for c in commands
    ]


def _remembering(job: Any) -> Any:
    """The same job, whose model is kept; some objectives keep it anyway."""
    if not isinstance(job, Train):
        return job
    return job if job.objective.keeps_model else replace(job, objective=Remember(job.objective))
