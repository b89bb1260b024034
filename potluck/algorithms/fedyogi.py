"""FedYogi (Reddi et al. 2021, Adaptive Federated Optimization).

The server treats the mean update as a gradient and takes an adaptive step with it: each parameter has its own
rate. Yogi changes its memory of squares by an amount that doesn't depend on the memory itself, so a burst of
large updates doesn't wipe out what was learnt.

Deviations: updates are weighted by samples (the paper's algorithm weights equally); the square starts at
tau^2, the least that the paper allows.
"""

from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Adaptive, Factor, LearningRate, Seconds, Select, Train, Uniform


def fedyogi(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    server_lr: Annotated[LearningRate, "the server's step"] = 0.01,
    beta1: Annotated[float, "memory of the update"] = 0.9,
    beta2: Annotated[float, "memory of its square"] = 0.99,
    tau: Annotated[float, "least denominator: smaller adapts more"] = 1e-3,
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> FedAvg:
    """FedAvg with Yogi on the server."""
    server = Adaptive("yogi", server_lr, beta1, beta2, tau)
    return FedAvg(clients, local, select, server, overcommit, deadline)
