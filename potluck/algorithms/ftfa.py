"""FTFA (Cheng, Chadha, Duchi 2021, Federated Asymptotics: a model to compare federated learning algorithms).

Fine-tuned federated averaging: FedAvg trains one model, and each device adapts it to its own rows by some
epochs of plain training before it uses it. A strong baseline of personalisation, and it costs the server
nothing.

Deviations: the paper fine-tunes once, when training has ended; here a device is scored, at every evaluation,
as if training ended then, and what it tuned is forgotten. So fine-tuning takes no time on the virtual clock.
The global model is scored beside it, as the view `global`; at the cloud, which is no device, both are one.
"""

from dataclasses import replace
from typing import Annotated, Literal, Self

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import (
    Context,
    Factor,
    GlobalState,
    LearningRate,
    Node,
    Repeats,
    Seconds,
    Select,
    Task,
    Train,
    Uniform,
    fine_tune,
    require,
    value,
)
from potluck.core.notes import Notes
from potluck.rules.wrap import AroundRule

NOTES = Notes(
    views={
        "tuned": "the shared model after some training on the device's own rows",
        "global": "the shared model as it is",
    }
)


@value
class FineTuning(AroundRule[GlobalState]):
    """A rule whose model is adapted by each device before use."""

    inner: FedAvg
    tuning: Train  # what a device does with the model that it is given

    def resize(self, clients: int, rate: float) -> Self:
        return replace(self, inner=self.inner.resize(clients, rate), tuning=self.tuning.scale_rate(rate))

    def serve(self, m: GlobalState, node: Node, ctx: Context) -> dict[str, Task]:
        plain = self.inner.serve(m, node, ctx)
        # An aggregator may have rows (data.server), but they are nobody's own.
        job = plain["global"].job if node == ctx.me else self.tuning
        return {"tuned": Task(node, job, {"params": m.params}), **plain}


def ftfa(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    tune_epochs: Annotated[Repeats, "passes over its own rows, before a device uses the model"] = 1,
    tune_lr: Annotated[LearningRate | None, "their learning rate, unless it is that of training"] = None,
    part: Annotated[Literal["all", "head"], "what is tuned"] = "all",
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> FineTuning:
    """FedAvg whose devices fine-tune the model before they use it."""
    require(tune_epochs >= 1, "tune_epochs", tune_epochs, "must be at least 1; without tuning it is fedavg")
    require(tune_lr is None or tune_lr > 0, "tune_lr", tune_lr, "must be above 0, or left out")
    require(part in ("all", "head"), "part", part, "must be 'all' or 'head'")
    rate = local.optim.lr if tune_lr is None else tune_lr
    tuning = fine_tune(replace(local, optim=replace(local.optim, lr=rate)), tune_epochs, part)
    return FineTuning(FedAvg(clients, local, select, overcommit=overcommit, deadline=deadline), tuning)
