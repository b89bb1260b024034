"""FedProx (Li et al. 2020, Federated Optimization in Heterogeneous Networks).

Devices whose data differ drift apart while they train; a proximal term, mu/2 ||w - w_sent||^2, pulls each
back towards the model that it was sent. And who is slow does less, and it counts: with a `deadline`, each
device is asked for as many batches as it has time for, where FedAvg loses the slow ones.

The authors' are the term, its mu (set it for the data: they tried 0.001 to 1), the uniform draw, weights by
samples however little of the work was done (their code; the paper's text draws by samples and weights
equally) and that part of the work counts. Deviations: in their code who is slow is drawn by lot, half or nine
tenths of a round, and does 1 to E - 1 epochs, drawn too; here the virtual clock says it: by what devices
claim and by what their earlier tasks took (`rules.in_time`), in batches, at least one, so part of an epoch
counts too. Who is late in spite of it is lost, and asked for half as much next time. Inexactness (gamma)
isn't measured, as in their code. Without a deadline all do all of the work.
"""

from dataclasses import replace
from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Factor, Prox, Seconds, Select, Train, Uniform
from potluck.rules.in_time import InTime


def fedprox(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    mu: Annotated[float, "how hard the model that was sent pulls"] = 0.1,
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[
        Seconds | None, "seconds; who has no time for all of the work does part of it"
    ] = None,
) -> FedAvg:
    """FedAvg whose devices are held near the model that they were sent."""
    near = replace(local, objective=Prox(mu))
    chosen = select if deadline is None else InTime(select, near, deadline)
    return FedAvg(clients, near, chosen, overcommit=overcommit, deadline=deadline)
