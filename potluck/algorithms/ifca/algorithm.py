"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated, Generic

import torch

from potluck.algorithms.ifca.device import Pick, Prefer
from potluck.algorithms.ifca.draws import Draw, Tryout, find_default_share, is_even, share_out_choices
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
    Repeats,
    Seconds,
    Select,
    ServerOptim,
    Share,
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
    tryout: Tryout | None = None  # for first models, until training begins
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
    restarts: int = 20
    least: float = 0.35
    overcommit: float = 1.0
    deadline: float | None = None

    def start(self, ctx: Context) -> ModelsState:
        m = ModelsState([], [], self.select.start(), Tryout(Draw(ctx.key)) if self.restarts else None)
        return self._take_draw(m, ctx.key, ctx)

    def lanes(self, m: ModelsState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working else ()

    def plan(self, m: ModelsState, lane: None, ctx: Context) -> tuple[ModelsState, list[Command]]:
        send = {"models": stack_models(m.params)}
        if m.tryout is not None:
            enough = max(self.clients, self.models)  # fewer devices couldn't choose all of the models
            asked = ctx.sample(round(enough * self.overcommit))
            questions = [Task(n, Prefer(self.local.model, self.models), send) for n in asked]
            return m, [Until(self.deadline, enough), *questions]
        nodes, picks = self.select.pick(m.picks, round(self.clients * self.overcommit), ctx)
        jobs = self.select.jobs(self.local, nodes, picks)
        tasks = [Task(n, job, send) for n, job in zip(nodes, jobs, strict=True)]
        return replace(m, picks=picks), [Until(self.deadline, self.clients), *tasks]

    def merge(self, m: ModelsState, lane: None, got: Got, ctx: Context) -> tuple[ModelsState, list[Command]]:
        if m.tryout is not None:
            return self._judge_draw(m, m.tryout, got, ctx)
        chosen = [int(r.body["model"]) for r in got.replies]
        params, opt, notes = list(m.params), list(m.opt), list[Command]()
        for k in range(self.models):
            mine = [r for r, c in zip(got.replies, chosen, strict=True) if c == k]
            params[k], opt[k] = self.server.step(params[k], opt[k], mine)  # nobody: as it was
            notes.append(Note("chose", [r.task.to for r in mine], group=k))
        picks = self.select.learn(m.picks, got, ctx)
        return ModelsState(params, opt, picks, round=m.round + 1), notes

    def serve(self, m: ModelsState, node: Node, ctx: Context) -> dict[str, Task | Choice]:
        job = use_model(self.local.model)
        tasks = {f"model {k}": Task(node, job, {"params": p}) for k, p in enumerate(m.params)}
        if node == ctx.me:
            return {**tasks}
        models = {name: task.send["params"] for name, task in tasks.items()}
        return {"chosen": Choice(LeastLoss(self.local.model), {"models": models}, tasks)}

    # ------------------------------------------------------------------------------------------- first models

    def _take_draw(self, m: ModelsState, key: int, ctx: Context) -> ModelsState:
        net = ctx.models[self.local.model]
        first, *others = (net.init(keys.derive(key, k) if k else key) for k in range(self.models))
        params = [first, *(add(first, sub(other, first), self.separation) for other in others)]
        return replace(m, params=params, opt=[self.server.start(p) for p in params])

    def _judge_draw(
        self, m: ModelsState, tryout: Tryout, got: Got, ctx: Context
    ) -> tuple[ModelsState, list[Command]]:
        """Training begins if devices spread out over these models, or if they were the last try."""
        chosen = [int(r.body["model"]) for r in got.replies if r.weight > 0]
        now = replace(tryout.now, shares=share_out_choices(chosen, self.models))
        best = now if tryout.best is None or now.shares > tryout.best.shares else tryout.best
        told: list[Command] = [Note("draw", {"number": now.number, "least": now.shares[0]})]
        if is_even(chosen, self.models, self.least):
            return replace(m, tryout=None), told
        if now.number <= self.restarts:
            again = Tryout(Draw(ctx.key, now.number + 1), best)
            return self._take_draw(replace(m, tryout=again), again.now.key, ctx), told
        told.append(Note("uneven", {"number": best.number, "least": best.shares[0], "wanted": self.least}))
        return self._take_draw(replace(m, tryout=None), best.key, ctx), told


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
    restarts: Annotated[
        Repeats, "how often first models may be drawn anew; 0: the first draw is used unseen"
    ] = 20,
    least: Annotated[
        Share | None,
        "share of devices that each first model must suit best; left out: 0.35 of 2, else 0.4 / models",
    ] = None,
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> BestOfSeveral:
    """Several models, of which each device trains the one that suits it best."""
    require(models >= 2, "models", models, "must be at least 2; one model is fedavg")
    require(clients >= 1, "clients", clients, "must be at least 1: devices a round")
    fix = "must be above 0; models that start alike stay alike"
    require(0 < separation < float("inf"), "separation", separation, fix)
    least = find_default_share(models) if least is None else least
    require(
        0 < least <= 1 / models,
        "least",
        least,
        f"must be above 0 and at most 1/{models}, one model's even share",
    )
    job = replace(local, objective=Pick(models))
    return BestOfSeveral(
        models, clients, job, select, server, separation, restarts, least, overcommit, deadline
    )
