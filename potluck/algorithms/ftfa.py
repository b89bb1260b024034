"""FTFA (Cheng, Chadha, Duchi 2021, Federated Asymptotics: a model to compare federated learning algorithms).

Fine-tuned federated averaging: FedAvg trains one model, and each device adapts it to its own rows by some
epochs of plain training before it uses it. A strong baseline of personalisation, and it costs the server
nothing.

Deviations: the paper fine-tunes once, when training has ended; here a device is scored, at every evaluation,
as if training ended then, and what it tuned is forgotten. So fine-tuning takes no time on the virtual clock.
The global model is scored beside it, as the view `global`; at the cloud, which is no device, both are one.
"""

from dataclasses import replace
from typing import Annotated, Literal

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import (
    Factor,
    GlobalState,
    LearningRate,
    Repeats,
    Seconds,
    Select,
    Train,
    Uniform,
    fine_tune,
    require,
)
from potluck.core.notes import Notes
from potluck.rules.serving import Served, Tuned

NOTES = Notes(
    views={
        "tuned": "the shared model after some training on the device's own rows",
        "global": "the shared model as it is",
    }
)


def ftfa(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    tune_epochs: Annotated[Repeats, "passes over its own rows, before a device uses the model"] = 1,
    tune_lr: Annotated[LearningRate | None, "their learning rate, unless it is that of training"] = None,
    part: Annotated[Literal["all", "head"], "what is tuned"] = "all",
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> Served[GlobalState]:
    """FedAvg whose devices fine-tune the model before they use it."""
    require(tune_epochs >= 1, "tune_epochs", tune_epochs, "must be at least 1; without tuning it is fedavg")
    require(tune_lr is None or tune_lr > 0, "tune_lr", tune_lr, "must be above 0, or left out")
    require(part in ("all", "head"), "part", part, "must be 'all' or 'head'")
    tuning = make_tuning(local, tune_epochs, tune_lr, part)
    return Served(FedAvg(clients, local, select, overcommit=overcommit, deadline=deadline), Tuned(tuning))


def make_tuning(local: Train, epochs: int, lr: float | None, part: Literal["all", "head"]) -> Train:
    """What devices do before they use a model: plain training at a rate of its own, if it has one."""
    rate = local.optim.lr if lr is None else lr
    return fine_tune(replace(local, optim=replace(local.optim, lr=rate)), epochs, part)
