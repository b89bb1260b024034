"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge.edges import To, make_going_on
from potluck.authoring import Cohort, Train
from potluck.rules.edges import EVERYBODY, EdgeView, Mix
from potluck.rules.layered import Layered
from potluck.rules.robust import Robust


def fededge(
    local: Train = Train(),
    inner: Annotated[Cohort | None, "what edges train by, its `clients` aside; left out: fedavg"] = None,
    local_rounds: Annotated[
        int | tuple[int, ...] | None, "of all edges, or of each; left out: as many as fit"
    ] = None,
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None,
    robust: Annotated[Robust | None, "which updates an edge leaves out; left out: none"] = None,
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
    anchor: Annotated[To, "the model that fedprox and moon draw devices to"] = "global",
) -> Layered:
    """Edges that go on training between the cloud's models."""
    below = make_going_on(
        local,
        clients,
        local_rounds=local_rounds,
        inner=inner,
        robust=robust,
        mix=mix,
        upload_before_mix=upload_before_mix,
        edge_view=edge_view,
        anchor=anchor,
    )
    return below.put_below(FedAvg(EVERYBODY, local))
