"""FLAME (Cho, Mathur, Kawsar 2022, FLAME: Federated Learning Across Multi-device Environments).

A person has several devices: a phone, a watch, earbuds. Devices are ranked by how large their losses were,
how far they are beyond the time that a round should take, and how much energy they have spent. And whoever is
chosen takes others of the same user along, so that those who sense the same moments train together.

Formulas and defaults are those of a public implementation. Deviations: energy is left out unless there is a
`budget`, as where FLAME is compared with ShuffleFL; it is a device's seconds of work so far, and who has used
them up comes last rather than never. The paper aligns the rows of a user's devices in time; here each device
trains on the rows that it has. Devices never heard have no utility: as in Oort, a share is theirs, here of
the users' first places, the faster ones sooner; a user's other devices follow by utility, those never heard
last. Losses are learnt as by Oort, and what is said there of late and bad updates holds here. A round has
`clients` devices, so the last user's may be fewer. Deadlines and over-commitment can be had.
"""

from potluck import aggregate
from potluck.aggregate import Average, Oort, ServerOptim
from potluck.algorithms.fedavg import FedAvg
from potluck.jobs import Train


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
    select = aggregate.Flame(alpha, seconds, devices, budget, new)
    return FedAvg(clients, local, select, server, overcommit, deadline)
