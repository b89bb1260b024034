"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.oort import selection
from potluck.jobs import Train
from potluck.rules import Average, ServerOptim


def oort(
    local: Train = Train(),
    clients: int = 10,  # devices a round
    explore: float = 0.9,  # share of a round that goes to devices never heard, at first
    explore_decay: float = 0.98,  # factor on it, every round
    explore_least: float = 0.3,  # and where it ends
    window: float = 5.0,  # new devices are drawn among so many times as are wanted: the fastest
    cutoff: float = 0.05,  # known ones are drawn above this share of the lowest score that would do
    clip: float = 0.9,  # utilities above this quantile count as if at it
    doubt: float = 0.1,  # how much it counts that a device wasn't heard for long
    penalty: float = 2.0,  # how much slowness counts; 0: not at all
    pace: float = 30.0,  # percentile of durations that is preferred, at first
    pace_every: int = 20,  # rounds between two looks of the pacer
    pace_step: float = 5.0,  # by how much it raises or lowers the percentile
    server: ServerOptim = Average(),  # what becomes of a round's updates
    overcommit: float = 1.0,  # ask so many times the clients, go on with the first
    deadline: float | None = None,  # seconds
) -> FedAvg:
    """FedAvg among devices that are worth it."""
    new = explore, explore_decay, explore_least, window
    select = selection.Oort(*new, cutoff, clip, doubt, penalty, pace, pace_every, pace_step)
    return FedAvg(clients, local, select, server, overcommit, deadline)
