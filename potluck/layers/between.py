"""What may be set of each layer, `[layer.NAME]`: the parameters of what makes it."""

from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.shufflefl.gateway import Solve
from potluck.algorithms.shufflefl.hub import Hub
from potluck.algorithms.shufflefl.planner.problem import Planner
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.times import step_seconds
from potluck.core.errors import require
from potluck.core.ranges import Seconds
from potluck.core.rule import Rule
from potluck.jobs import Train
from potluck.rules.edges import EVERYBODY, Edge, EdgeView, Mix, OwnModels
from potluck.rules.relay import Relay


def users(
    local: Train = Train(),
    planner: Annotated[
        Planner, "how moves are found: search, slsqp (ShuffleFL's paper's) or fill"
    ] = Search(),
    gateway: Annotated[str, "where they are planned: times on the clock are of this machine"] = "pi4",
    alpha: Annotated[
        float | None, "seconds that balance is worth; left out: as each user's own rows say"
    ] = None,
    balance_time: Annotated[bool, "whether devices of a user should take equally long"] = True,
    shuffle: Annotated[bool, "False: no rows move; a user is the mean of its devices"] = True,
) -> Rule:
    """A user's devices as one: they exchange rows before they train (ShuffleFL)."""
    good = alpha is None or 0 <= alpha < float("inf")
    require(good, "alpha", alpha, "give 0 or more seconds, or leave it out")
    step_seconds(gateway)  # refuses one that nobody has measured
    return Hub(local, Solve(planner, gateway), balance_time, shuffle, alpha=alpha, scaled=False)


def edges(
    local: Train = Train(),
    go_on: Annotated[
        bool, "whether edges train between the cloud's models (FedEdge); else they pass on"
    ] = True,
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None,
    deadline: Annotated[Seconds | None, "seconds that an edge waits for its devices"] = None,
    local_rounds: Annotated[
        int | tuple[int, ...] | None, "of edges that go on: of all or of each; left out: as many as fit"
    ] = None,
    mix: Annotated[Mix, "of edges that go on: how the cloud's model is mixed in, carry or half"] = "carry",
    edge_view: Annotated[EdgeView, "of edges that go on: the view `edge` is before mixing, or after"] = "own",
) -> Rule:
    """Edges between devices and cloud, each with one vote if they go on, else by rows."""
    if not go_on:
        fix = "is of edges that go on between the cloud's models; leave it out, or set go_on = true"
        require(local_rounds is None, "local_rounds", local_rounds, fix)
        return Relay(clients, deadline)
    inner = FedAvg(EVERYBODY if clients is None else clients, local, deadline=deadline)
    return OwnModels(Edge(inner, local_rounds, mix, edge_view=edge_view, passes=True))
