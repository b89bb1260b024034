"""Oort (Lai, Zhu, Madhyastha, Chowdhury 2021, Efficient Federated Learning via Guided Participant Selection).

Not every device is worth a round alike. Oort ranks those it has heard by how large their losses were, with a
bonus for who wasn't heard for long and a penalty for who is slower than the round should be, and draws among
the best; the rest of a round goes to devices never heard, the faster ones first. A pacer lets slower devices
in when the easy gains are used up.

Deviations: the utility is |B| sqrt(mean squared loss) over all rows seen in training (the code takes the last
batch's, or a moving mean of the first epoch's). A server doesn't know how many rows a device has before it is
heard, so new ones are drawn by speed alone, claimed and scaled as the claims of others proved true; the first
round is drawn uniformly. Known devices are drawn above the cut-off only (the code widens that to 10 times as
many as it needs); a round that finds too few new devices is filled with known ones, and how many are new is
rounded at random. Of a crowd beyond 10,000, so many new devices are looked at a round. One that is late is
taken to be as useful as the others of its round, one whose update is bad to be useless. No blacklist: it is
off in the code, too. Deadlines and over-commitment (1.3 in the paper) can be had.
"""

from typing import Final

from potluck import aggregate
from potluck.aggregate import Average, ServerOptim
from potluck.algorithms.fedavg import FedAvg
from potluck.jobs import Train

FIDELITY: Final = "authors' code"


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
    select = aggregate.Oort(*new, cutoff, clip, doubt, penalty, pace, pace_every, pace_step)
    return FedAvg(clients, local, select, server, overcommit, deadline)
