"""FedAdam (Reddi et al. 2021, Adaptive Federated Optimization).

The server treats the mean update as a gradient and takes Adam's step with it: each parameter has its own
rate, from running means of the update and of its square.

Deviations: updates are weighted by samples (the paper's algorithm weights equally); the square starts at
tau^2, the least that the paper allows. As in the paper, there is no bias correction.
"""

from potluck.algorithms.fedavg import FedAvg
from potluck.jobs import Train
from potluck.rules import Adaptive, Select, Uniform


def fedadam(
    local: Train = Train(),
    clients: int = 10,  # devices a round
    server_lr: float = 0.01,  # the server's step
    beta1: float = 0.9,  # memory of the update
    beta2: float = 0.99,  # memory of its square
    tau: float = 1e-3,  # least denominator: smaller adapts more
    select: Select = Uniform(),  # who takes part
    overcommit: float = 1.0,  # ask so many times the clients, go on with the first
    deadline: float | None = None,  # seconds
) -> FedAvg:
    """FedAvg with Adam on the server."""
    server = Adaptive("adam", server_lr, beta1, beta2, tau)
    return FedAvg(clients, local, select, server, overcommit, deadline)
