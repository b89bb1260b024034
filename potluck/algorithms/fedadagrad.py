"""FedAdagrad (Reddi et al. 2021, Adaptive Federated Optimization).

The server treats the mean update as a gradient and takes Adagrad's step with it: each parameter's rate falls
with the sum of its squared updates, so rarely moved ones stay quick.

Deviations: updates are weighted by samples (the paper's algorithm weights equally); the square starts at
tau^2, the least that the paper allows. No momentum (beta1) unless asked for.
"""

from potluck.algorithms.fedavg import FedAvg
from potluck.jobs import Train
from potluck.rules import Adaptive, Select, Uniform


def fedadagrad(
    local: Train = Train(),
    clients: int = 10,  # devices a round
    server_lr: float = 0.1,  # the server's step
    beta1: float = 0.0,  # memory of the update
    tau: float = 1e-3,  # least denominator: smaller adapts more
    select: Select = Uniform(),  # who takes part
    overcommit: float = 1.0,  # ask so many times the clients, go on with the first
    deadline: float | None = None,  # seconds
) -> FedAvg:
    """FedAvg with Adagrad on the server."""
    server = Adaptive("adagrad", server_lr, beta1, tau=tau)
    return FedAvg(clients, local, select, server, overcommit, deadline)
