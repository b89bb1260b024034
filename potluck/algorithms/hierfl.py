"""HierFL, or HierFAVG (Liu, Zhang, Song, Letaief 2020, Client-Edge-Cloud Hierarchical Federated Learning).

Edges stand between devices and a cloud. An edge averages its devices' models; after some such rounds the
cloud averages those of the edges, and everybody begins again with the result. Most messages stay near.

As in the authors' code, both averages go by samples, and an edge holds one round for each of the cloud's,
unless told otherwise (kappa_2; kappa_1, the steps of a device, are the experiment's). Deviations: an edge may
ask some of its devices only, and a deadline can be had. With one edge round it is also what Maverick's paper
calls HybridFL; `hybridfl` is that of its own authors.

Devices keep the models that they train last. These are scored first, as the view `personal` (a device without
one has its edge's), then the edge's as `edge` and the cloud's as `global`. The views of fededge, hybridfl and
maverick are the same in the same order, so that all can be compared under each.
"""

from typing import Annotated, Final

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge.edges import make_passing
from potluck.authoring import Seconds, Select, Train, Uniform, require
from potluck.rules.edges import EVERYBODY
from potluck.rules.layered import Layered

FIDELITY: Final = "authors' code"


def hierfl(
    local: Train = Train(),
    edge_rounds: Annotated[int, "of every edge, for one of the cloud"] = 1,
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None,
    select: Annotated[Select, "who takes part"] = Uniform(),
    deadline: Annotated[Seconds | None, "seconds that an edge waits for its devices"] = None,
) -> Layered:
    """FedAvg of edges that do FedAvg with their devices."""
    require(edge_rounds >= 1, "edge_rounds", edge_rounds, "must be at least 1")
    below = make_passing(local, clients, deadline, select, edge_rounds, own=True)
    return below.put_below(FedAvg(EVERYBODY, local))
