"""FedProx (Li et al. 2020, Federated Optimization in Heterogeneous Networks).

Devices whose data differ drift apart while they train; a proximal term, mu/2 ||w - w_sent||^2, pulls each
back towards the model that it was sent.

Deviations: devices are drawn uniformly and weighted by samples, as in FedAvg (the paper draws by samples and
weights equally); no measure of inexactness (gamma): all train for the same epochs, and those that come too
late for a deadline are left out rather than folded in with part of their work.
"""

from dataclasses import replace
from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Factor, Prox, Seconds, Select, Train, Uniform


def fedprox(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    mu: Annotated[float, "how hard the model that was sent pulls"] = 0.1,
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> FedAvg:
    """FedAvg whose devices are held near the model that they were sent."""
    near = replace(local, objective=Prox(mu))
    return FedAvg(clients, near, select, overcommit=overcommit, deadline=deadline)
