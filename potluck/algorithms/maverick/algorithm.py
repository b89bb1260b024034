"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from typing import Annotated, Literal

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge.edges import make_going_on
from potluck.algorithms.maverick.negatives import Learning
from potluck.authoring import Repeats, Seconds, Select, Train, Uniform
from potluck.rules.edges import EVERYBODY, EdgeView, Mix
from potluck.rules.layered import Layered
from potluck.rules.robust import Robust


def maverick(
    local: Train = Train(),
    mu_p: Annotated[float, "how much the contrast of edge and global model counts; 0: not at all"] = 0.0,
    mu_a: Annotated[float, "how much the contrast with anomalous models counts; 0: not at all"] = 1.0,
    tau: Annotated[float, "temperature: the lower, the more the nearest representations count"] = 0.5,
    contrast: Annotated[
        Literal["hinge", "log"], "hinge: it pushes only where the edge isn't nearest already; log: always"
    ] = "hinge",
    top: Annotated[Repeats, "anomalous models that devices are sent, at most"] = 3,
    alike: Annotated[bool, "these count the same; else by how far off they are"] = False,
    local_rounds: Annotated[
        int | tuple[int, ...] | None, "of all edges, or of each; left out: as many as fit"
    ] = None,
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None,
    robust: Annotated[Robust | None, "which models are anomalous; left out: none"] = None,
    mix: Annotated[
        Mix,
        "carry: the global model plus all that the edge learnt since its last answer; half: half and half",
    ] = "carry",
    upload_before_mix: Annotated[
        bool, "half: the cloud is sent the edge's own model, not the mixed one"
    ] = False,
    edge_view: Annotated[
        EdgeView, "what the view `edge` is: the edge's model before mixing, or after"
    ] = "own",
    select: Annotated[Select, "who takes part"] = Uniform(),
    deadline: Annotated[Seconds | None, "seconds that an edge waits for its devices"] = None,
) -> Layered:
    """FedEdge whose devices learn models of their own, by contrast with the global and anomalous ones."""
    below = make_going_on(
        local,
        clients,
        deadline,
        select,
        local_rounds,
        robust=robust,
        mix=mix,
        upload_before_mix=upload_before_mix,
        edge_view=edge_view,
        contrast=Learning(mu_p, mu_a, tau, contrast, top, alike),
    )
    return below.put_below(FedAvg(EVERYBODY, local))
