"""FedAvg (McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data).

A few devices train the global model on their own rows; the server adds the mean of their changes, weighted by
samples. Deviations: changes travel, not weights (the same mean); deadlines and over-commitment can be had.
"""

from dataclasses import replace
from typing import Annotated

from potluck.authoring import (
    Average,
    Command,
    Context,
    Count,
    Factor,
    GlobalState,
    Got,
    Node,
    Seconds,
    Select,
    ServerOptim,
    Task,
    Train,
    Tree,
    Uniform,
    Until,
    require,
    use_model,
    value,
)


@value
class FedAvg:
    """Weighted averaging of local training, in synchronous rounds."""

    clients: Annotated[int, "devices a round"] = 10
    local: Train = Train()
    select: Annotated[Select, "who takes part"] = Uniform()
    server: Annotated[ServerOptim, "what becomes of a round's updates"] = Average()
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0
    deadline: Annotated[Seconds | None, "seconds"] = None
    inner_rounds: Annotated[Count, "below a parent: rounds before it is answered"] = 1

    def start(self, ctx: Context) -> GlobalState:
        require(self.clients >= 1, "clients", self.clients, "must be at least 1: devices a round")
        params = ctx.models[self.local.model].init(ctx.key)
        return GlobalState(params, self.server.start(params), self.select.start())

    def lanes(self, m: GlobalState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working else ()

    def plan(self, m: GlobalState, lane: None, ctx: Context) -> tuple[GlobalState, list[Command]]:
        nodes, picks = self.select.pick(m.picks, round(self.clients * self.overcommit), ctx)
        send, jobs = {"params": m.params}, self.select.jobs(self.local, nodes, picks)
        tasks = [Task(n, job, send) for n, job in zip(nodes, jobs, strict=True)]
        return replace(m, picks=picks), [Until(self.deadline, self.clients), *tasks]

    def merge(self, m: GlobalState, lane: None, got: Got, ctx: Context) -> tuple[GlobalState, list[Command]]:
        return m.advance(got, self.server, self.select.learn(m.picks, got, ctx)), []

    def adopt(self, m: GlobalState, task: Task, ctx: Context) -> GlobalState:
        return m.adopt(task)

    def report(self, m: GlobalState, task: Task, ctx: Context) -> tuple[Tree, float] | None:
        return m.report(task) if m.since >= self.inner_rounds else None

    def resize(self, clients: int, rate: float) -> "FedAvg":
        return replace(self, clients=clients, local=self.local.scale_rate(rate))

    def serve(self, m: GlobalState, node: Node, ctx: Context) -> dict[str, Task]:
        return {"global": Task(node, use_model(self.local.model), {"params": m.params})}
