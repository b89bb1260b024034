"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.flame import selection
from potluck.algorithms.oort.selection import Oort
from potluck.jobs import Train
from potluck.rules import Average, ServerOptim


def flame(
    local: Train = Train(),
    clients: int = 10,  # devices a round
    devices: int = 4,  # of one user, at most
    alpha: float = 0.5,  # factor on the utility of a device that is just too slow; the lower the harsher
    seconds: float = 30.0,  # what a task should take
    budget: float | None = None,  # seconds that a device can work; left out: energy doesn't count
    explore: float = 0.9,  # share of the users that a device never heard leads, at first
    explore_decay: float = 0.98,  # factor on it, every round
    explore_least: float = 0.3,  # and where it ends
    server: ServerOptim = Average(),  # what becomes of a round's updates
    overcommit: float = 1.0,  # ask so many times the clients, go on with the first
    deadline: float | None = None,  # seconds
) -> FedAvg:
    """FedAvg among users whose devices are worth it."""
    new = Oort(explore, explore_decay, explore_least)
    select = selection.Flame(alpha, seconds, devices, budget, new)
    return FedAvg(clients, local, select, server, overcommit, deadline)
