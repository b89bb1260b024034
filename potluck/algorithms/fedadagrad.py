"""FedAdagrad (Reddi et al. 2021, Adaptive Federated Optimization).

The server treats the mean update as a gradient and takes Adagrad's step with it: each parameter's rate falls
with the sum of its squared updates, so rarely moved ones stay quick.

Deviations: updates are weighted by samples (the paper's algorithm weights equally); the square starts at
tau^2, the least that the paper allows. No momentum (beta1) unless asked for. The server's step is 0.03, near
one that the paper's grid chose (10^-1.5): at 0.1 a wide model's first steps were too long.
"""

from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Adaptive, Factor, LearningRate, Seconds, Select, Train, Uniform


def fedadagrad(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    server_lr: Annotated[LearningRate, "the server's step"] = 0.03,
    beta1: Annotated[float, "memory of the update"] = 0.0,
    tau: Annotated[float, "least denominator: smaller adapts more"] = 1e-3,
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> FedAvg:
    """FedAvg with Adagrad on the server."""
    server = Adaptive("adagrad", server_lr, beta1, tau=tau)
    return FedAvg(clients, local, select, server, overcommit, deadline)
