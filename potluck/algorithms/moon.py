"""MOON (Li, He, Song 2021, Model-Contrastive Federated Learning).

A device's data are one-sided, and so become the representations that it learns. The global model's are
better: while a device trains, a contrastive term pulls what it sees in each row towards what the global model
sees there, and away from what its own last model saw. The server averages as in FedAvg.

Deviations: no projection head; representations are the inputs of the model's last layer (the authors' code
can be told so too), and dropout inside of that layer, where a model has any, is off in training. The frozen
models look at every row once (the code: at every batch, augmented anew). One previous model is kept, the
default of the code, and a device that never trained takes the model that it is sent for it, so that the term
has no gradient; the code leaves the term out of its first round and later takes weights of chance. A training
that is lost or late leaves the previous model as it was. Momentum and weight decay are those of the
experiment (the code: 0.9 and 1e-5). Any server optimiser, deadlines and over-commitment can be had. What
devices last trained is scored beside the global model, as the view `personal`; at an aggregator, which trains
none of its own, there is only `global`.
"""

from dataclasses import replace
from typing import Any, Final, Self

from potluck.aggregate import Average, Select, ServerOptim, Uniform
from potluck.algorithms.fedavg import FedAvg
from potluck.codec import value
from potluck.contracts import Context
from potluck.jobs import Kept, Train, used
from potluck.jobs import Moon as Contrast  # the only moon of this module is the algorithm
from potluck.messages import Node, Task

FIDELITY: Final = "authors' code"


@value
class Keeping:
    """A rule whose devices keep the models that they train; these are served beside its own."""

    inner: Any  # a rule with one model, such as FedAvg, whose objective keeps `personal`

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)  # it trains as the inner rule does

    def resized(self, clients: int, rate: float) -> Self:
        return replace(self, inner=self.inner.resized(clients, rate))

    def serve(self, m: Any, node: Node, ctx: Context) -> dict[str, Task]:
        plain: dict[str, Task] = self.inner.serve(m, node, ctx)
        if node == ctx.me:
            return plain
        job = used(self.inner.local.model, Kept())
        return {**plain, "personal": replace(plain["global"], job=job)}


def moon(
    local: Train = Train(),
    clients: int = 10,  # devices a round
    mu: float = 1.0,  # how much the contrast counts; 0: not at all
    tau: float = 0.5,  # temperature: the lower, the more the nearest representations count
    select: Select = Uniform(),  # who takes part
    server: ServerOptim = Average(),  # what becomes of a round's updates
    overcommit: float = 1.0,  # ask so many times the clients, go on with the first
    deadline: float | None = None,  # seconds
) -> Keeping:
    """FedAvg whose devices are drawn to the global model's representations, away from their own last ones."""
    job = replace(local, objective=Contrast(mu, tau))
    return Keeping(FedAvg(clients, job, select, server, overcommit, deadline))
