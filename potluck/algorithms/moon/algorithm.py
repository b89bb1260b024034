"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.moon.device import Moon as Contrast  # the only moon of this module is the algorithm
from potluck.authoring import (
    Average,
    Context,
    Factor,
    GlobalState,
    Kept,
    Node,
    Seconds,
    Select,
    ServerOptim,
    Task,
    Train,
    Uniform,
    use_model,
    value,
)
from potluck.rules.wrap import AroundRule


@value
class KeptModels(AroundRule[GlobalState]):
    """A rule whose devices keep the models that they train; these are served beside its own."""

    inner: FedAvg  # whose objective keeps `personal`

    def serve(self, m: GlobalState, node: Node, ctx: Context) -> dict[str, Task]:
        plain = self.inner.serve(m, node, ctx)
        if node == ctx.me:
            return plain
        job = use_model(self.inner.local.model, Kept())
        return {**plain, "personal": replace(plain["global"], job=job)}


def moon(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    mu: Annotated[float, "how much the contrast counts; 0: not at all"] = 1.0,
    tau: Annotated[float, "temperature: the lower, the more the nearest representations count"] = 0.5,
    select: Annotated[Select, "who takes part"] = Uniform(),
    server: Annotated[ServerOptim, "what becomes of a round's updates"] = Average(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> KeptModels:
    """FedAvg whose devices are drawn to the global model's representations, away from their own last ones."""
    job = replace(local, objective=Contrast(mu, tau))
    return KeptModels(FedAvg(clients, job, select, server, overcommit, deadline))
