"""What may be set of each layer, `[layer.NAME]`: the parameters of what makes it."""

from typing import Annotated, Literal

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.ftfa import make_tuning
from potluck.algorithms.shufflefl.planner.problem import Planner
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.users import Users, make_users
from potluck.core.errors import require
from potluck.core.ranges import LearningRate, Repeats, Seconds
from potluck.core.rule import Rule
from potluck.jobs import Train
from potluck.jobs.prior import ServedForm
from potluck.jobs.switch import Chooser, Personal
from potluck.rules.edges import EVERYBODY, Edge, EdgeView, Mix, OwnModels
from potluck.rules.relay import Relay

OWN = Personal()


def users(
    local: Train = Train(),
    planner: Annotated[
        Planner, "how moves are found: search, slsqp (ShuffleFL's paper's) or fill"
    ] = Search(),
    gateway: Annotated[str | list[str], "where they are planned: times on the clock are of this machine"] = (
        "pi4"
    ),
    alpha: Annotated[float | None, "seconds that balance is worth; left out: from the first round"] = None,
    adaptive: Annotated[bool, "an alpha for each user, by how long it is expected to take"] = True,
    balance_time: Annotated[bool, "whether devices of a user should take equally long"] = True,
    shuffle: Annotated[bool, "False: no rows move; a user is the mean of its devices"] = True,
    cap: Annotated[
        bool,
        "who is slower than a round's median user trains fewer batches, and weighs less; false where groups "
        "above are told apart by what users send",
    ] = True,
    transfer: Annotated[bool, "plans count the model's ways, which a device without rows is spared"] = True,
) -> Users:
    """A user's devices as one: they exchange rows before they train (ShuffleFL)."""
    return make_users(local, planner, gateway, alpha, 1.0, adaptive, balance_time, shuffle, cap, transfer)


def prior(
    form: Annotated[
        ServedForm,
        "which leads: each row by those before it (causal), by all before any is answered (batch), or by the "
        "labels of the rows that the device trains on (labels)",
    ] = "causal",
) -> ServedForm:
    """Each view also with devices' own priors, as VIEW+prior, and these lead; fitted on validation rows."""
    return form


def tuned(
    local: Train = Train(),
    epochs: Annotated[Repeats, "passes over its own rows, before a device uses a model; 0: as it is"] = 1,
    lr: Annotated[LearningRate | None, "their learning rate, unless it is that of training"] = None,
    part: Annotated[Literal["all", "head"], "what is tuned"] = "all",
) -> Train:
    """What devices do to the first view before they use it (FTFA); it is beside, as it was."""
    return make_tuning(local, epochs, lr, part)


def switch(
    local: Train = Train(),
    epochs: Annotated[Repeats, "passes over its own rows, by a last layer of its own"] = OWN.epochs,
    lr: Annotated[LearningRate, "learning rate of that layer"] = OWN.lr,
    switch: Annotated[
        Chooser, "who answers, own model or the offered one: Entropy, Threshold, Cosine, Familiar or Prior"
    ] = OWN.switch,
) -> Train:
    """The first view and a device's own last layer on it answer row by row (ClassTer's switch)."""
    return Personal(epochs, lr, switch).job(local)


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
