"""Aggregation without rounds: some lanes, each with one device at work; every reply is mixed in as it comes.

The model has a version, which grows when it changes; a reply's staleness is how many versions lie between the
model that its device was sent and the one that it is mixed into.
"""

from dataclasses import replace
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.messages import Command, Node, Note, Reply, Task, Until
from potluck.core.rule import Got
from potluck.core.trees import Params
from potluck.jobs.train import Train, use_model
from potluck.rules.select import Picks, Select, Uniform

MixState = TypeVar("MixState", default=Any)  # what a mix remembers


class Mix(Protocol[MixState]):
    """What becomes of one reply (None: its task was lost); its state is the algorithm's."""

    def start(self) -> MixState: ...
    def step(
        self, params: Params, state: MixState, reply: Reply | None, staleness: int
    ) -> tuple[Params, MixState, bool]: ...  # True: this was the end of a round


@value(eq=False, light=True)
class StreamState(Generic[MixState, Picks]):
    """The model and the states of its parts; nothing that lasts may live elsewhere."""

    send: dict[str, Params]  # the model as devices are sent it: one tree a version, so that it is seen as one
    mixed: MixState  # of the mix
    picks: Picks  # of the selector
    version: int = 0  # how often the model changed
    round: int = 0  # counts lost tasks too, so that a run in which all are lost still ends

    @property
    def params(self) -> Params:
        return self.send["params"]


@value
class Stream:
    """A rule out of a mix: replaces each device by another as soon as it has answered or is lost."""

    mix: Mix
    clients: int = 10
    local: Train = Train()
    select: Select = Uniform()
    deadline: float | None = None  # seconds

    def __post_init__(self) -> None:
        require(self.clients >= 1, "clients", self.clients, "must be at least 1: devices at work at a time")
        limit = self.deadline
        require(limit is None or limit > 0, "deadline", limit, "must be above 0 seconds, or left out")

    def start(self, ctx: Context) -> StreamState:
        params = ctx.models[self.local.model].init(ctx.key)
        return StreamState({"params": params}, self.mix.start(), self.select.start())

    def lanes(self, m: StreamState, ctx: Context) -> range:
        return range(self.clients) if ctx.working else range(0)

    def plan(self, m: StreamState, lane: int, ctx: Context) -> tuple[StreamState, list[Command]]:
        nodes, picks = self.select.pick(m.picks, 1, ctx)
        jobs = self.select.jobs(self.local, nodes, picks)
        out: list[Command] = [] if self.deadline is None else [Until(self.deadline)]
        out += [Task(n, job, m.send, m.version) for n, job in zip(nodes, jobs, strict=True)]
        return m if picks is m.picks else replace(m, picks=picks), out

    def merge(self, m: StreamState, lane: int, got: Got, ctx: Context) -> tuple[StreamState, list[Command]]:
        reply = next((r for r in got.replies if r.weight > 0), None)  # one without rows has learnt nothing
        staleness = 0 if reply is None else m.version - reply.task.tag
        params, mixed, ended = self.mix.step(m.params, m.mixed, reply, staleness)
        changed = params is not m.params
        send = {"params": params} if changed else m.send
        picks = self.select.learn(m.picks, got, ctx)
        notes: list[Command] = [] if reply is None else [Note("staleness", staleness)]
        return StreamState(send, mixed, picks, m.version + changed, m.round + ended), notes

    def serve(self, m: StreamState, node: Node, ctx: Context) -> dict[str, Task]:
        return {"global": Task(node, use_model(self.local.model), {"params": m.params})}


def polynomial(staleness: int, power: float) -> float:
    """The weight of an update: (`staleness` + 1)^-`power`."""
    return float((staleness + 1) ** -power)


def hinge(staleness: int, slope: float, patience: int) -> float:
    """The weight of an update: 1 to a `staleness` of `patience`, then 1 / (`slope` (s - patience) + 1)."""
    return 1.0 if staleness <= patience else 1 / (slope * (staleness - patience) + 1)
