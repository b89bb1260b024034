"""HybridFL (Wu et al. 2020, Accelerating FL over Reliability-Agnostic Clients in Mobile Edge Computing).

Edges average their devices' models, the cloud averages those of the edges, and each global round is one round
of every edge. It is the plain hierarchy that FedEdge and Maverick are compared with: nobody trains while the
cloud is waited for.

Deviations: as that baseline is described in Maverick's paper, all devices are asked and waited for. The
paper's own part is missing, in which regional slack factors estimate from past rounds how many devices will
drop out, edges ask accordingly more and a quota of answers ends the round; `clients` and `deadline` are what
there is instead. Averages go by samples. Views: as in hierfl.
"""

from typing import Annotated, Final

from potluck.algorithms.hierfl import hierfl
from potluck.authoring import Seconds, Select, Train, Uniform
from potluck.rules.edges import EdgeTiers

FIDELITY: Final = "paper of Maverick"


def hybridfl(
    local: Train = Train(),
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None,
    select: Annotated[Select, "who takes part"] = Uniform(),
    deadline: Annotated[Seconds | None, "seconds that an edge waits for its devices"] = None,
) -> EdgeTiers:
    """FedAvg of edges that hold one round of FedAvg each."""
    return hierfl(local, 1, clients, select, deadline)
