"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.flame import selection
from potluck.algorithms.oort.selection import Oort
from potluck.authoring import Average, Factor, Seconds, ServerOptim, Train


def flame(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    devices: Annotated[int, "of one user, at most"] = 4,
    alpha: Annotated[
        float, "factor on the utility of a device that is just too slow; the lower the harsher"
    ] = 0.5,
    seconds: Annotated[float | None, "what a task should take; left out: as `quantile` says"] = None,
    quantile: Annotated[float, "of the times that devices took: what a task should, if no seconds say"] = 0.5,
    budget: Annotated[float | None, "seconds that a device can work; left out: energy doesn't count"] = None,
    explore: Annotated[float, "share of the users that a device never heard leads, at first"] = 0.9,
    explore_decay: Annotated[float, "factor on it, every round"] = 0.98,
    explore_least: Annotated[float, "and where it ends"] = 0.3,
    server: Annotated[ServerOptim, "what becomes of a round's updates"] = Average(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> FedAvg:
    """FedAvg among users whose devices are worth it."""
    new = Oort(explore, explore_decay, explore_least)
    select = selection.Flame(alpha, seconds, quantile, devices, budget, new)
    return FedAvg(clients, local, select, server, overcommit, deadline)
