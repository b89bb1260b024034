"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated, Generic, Self

import torch

from potluck.algorithms.ifca.device import Pick
from potluck.authoring import (
    Average,
    Choice,
    Command,
    Context,
    Factor,
    Few,
    Got,
    Node,
    Note,
    Params,
    Seconds,
    Select,
    ServerOptim,
    Task,
    Train,
    Uniform,
    Until,
    add,
    require,
    sub,
    use_model,
    value,
)
from potluck.core import keys
from potluck.jobs.least_loss import LeastLoss
from potluck.rules.select import Picks
from potluck.rules.server_optim import Opt


@value(eq=False)
class ModelsState(Generic[Picks, Opt]):
    """Several models, and what their parts remember."""

    params: list[Params]
    opt: list[Opt]  # of the server optimiser, one a model
    picks: Picks  # of the selector
    round: int = 0


@value
class BestOfSeveral:
    """Averaging of several models, of which each device trains the one that suits it best."""

    models: int = 2
    clients: int = 10
    local: Train = Train()
    select: Select = Uniform()
    server: ServerOptim = Average()
    separation: float = 1.0
    overcommit: float = 1.0
    deadline: float | None = None

    def start(self, ctx: Context) -> ModelsState:
        net = ctx.models[self.local.model]
        first, *others = (net.init(keys.derive(ctx.key, k) if k else ctx.key) for k in range(self.models))
        apart = [add(first, sub(other, first), self.separation) for other in others]
        params = [first, *apart]
        return ModelsState(params, [self.server.start(p) for p in params], self.select.start())

    def lanes(self, m: ModelsState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working else ()

    def plan(self, m: ModelsState, lane: None, ctx: Context) -> tuple[ModelsState, list[Command]]:
        nodes, picks = self.select.pick(m.picks, round(self.clients * self.overcommit), ctx)
        send, jobs = {"models": stack_models(m.params)}, self.select.jobs(self.local, nodes, picks)
        tasks = [Task(n, job, send) for n, job in zip(nodes, jobs, strict=True)]
        return replace(m, picks=picks), [Until(self.deadline, self.clients), *tasks]

    def merge(self, m: ModelsState, lane: None, got: Got, ctx: Context) -> tuple[ModelsState, list[Command]]:
        chosen = [int(r.body["model"]) for r in got.replies]
        params, opt, notes = list(m.params), list(m.opt), list[Command]()
        for k in range(self.models):
            mine = [r for r, c in zip(got.replies, chosen, strict=True) if c == k]
            params[k], opt[k] = self.server.step(params[k], opt[k], mine)  # nobody: as it was
            notes.append(Note("chose", [r.task.to for r in mine], group=k))
        return ModelsState(params, opt, self.select.learn(m.picks, got, ctx), m.round + 1), notes

    def resize(self, clients: int, rate: float) -> Self:
        return replace(self, clients=clients, local=self.local.scale_rate(rate))

    def serve(self, m: ModelsState, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        job = use_model(self.local.model)
        tasks = {f"model {k}": Task(node, job, {"params": p}) for k, p in enumerate(m.params)}
        if node == ctx.me:
            return {**tasks}
        models = {name: task.send["params"] for name, task in tasks.items()}
        return {"chosen": Choice(LeastLoss(self.local.model), {"models": models}, tasks)}


def stack_models(params: list[Params]) -> Params:
    """Several models as one tree: each tensor counts models along its first axis."""
    return {name: torch.stack([p[name] for p in params]) for name in params[0]}


def ifca(
    local: Train = Train(),
    models: Annotated[Few, "models that are trained; as many as there are groups"] = 2,
    clients: Annotated[int, "devices a round"] = 10,
    select: Annotated[Select, "who takes part"] = Uniform(),
    server: Annotated[ServerOptim, "what becomes of each model's changes"] = Average(),
    separation: Annotated[float, "how far models start from the first one; 1: as their seeds have it"] = 1.0,
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> BestOfSeveral:
    """Several models, of which each device trains the one that suits it best."""
    require(models >= 2, "models", models, "must be at least 2; one model is fedavg")
    require(clients >= 1, "clients", clients, "must be at least 1: devices a round")
    fix = "must be above 0; models that start alike stay alike"
    require(0 < separation < float("inf"), "separation", separation, fix)
    job = replace(local, objective=Pick(models))
    return BestOfSeveral(models, clients, job, select, server, separation, overcommit, deadline)
