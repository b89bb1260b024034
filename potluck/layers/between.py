"""What may be set of each layer, `[layer.NAME]`: the parameters of what makes it."""

from typing import Annotated, Literal

from potluck.algorithms.fededge.edges import Edges, To, make_going_on, make_passing
from potluck.algorithms.ftfa import make_tuning
from potluck.algorithms.maverick.negatives import Learning
from potluck.algorithms.shufflefl.planner.problem import Planner
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.users import Users, make_users
from potluck.core.errors import require
from potluck.core.ranges import LearningRate, Repeats, Seconds
from potluck.core.rule import Cohort
from potluck.jobs import Train
from potluck.jobs.prior import ServedForm
from potluck.jobs.switch import Chooser, Personal
from potluck.rules.edges import EdgeView, Mix
from potluck.rules.robust import Robust
from potluck.rules.select import Select, Uniform
from potluck.rules.serving import Tuned, Weighed

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
) -> Weighed:
    """Each view also with devices' own priors, as VIEW+prior, and these lead; fitted on validation rows."""
    return Weighed(form)


def tuned(
    local: Train = Train(),
    epochs: Annotated[Repeats, "passes over its own rows, before a device uses a model; 0: as it is"] = 1,
    lr: Annotated[LearningRate | None, "their learning rate, unless it is that of training"] = None,
    part: Annotated[Literal["all", "head"], "what is tuned"] = "all",
) -> Tuned:
    """What devices do to the first view before they use it (FTFA); it is beside, as it was."""
    return Tuned(make_tuning(local, epochs, lr, part), "tuned")


def switch(
    local: Train = Train(),
    epochs: Annotated[Repeats, "passes over its own rows, by a last layer of its own"] = OWN.epochs,
    lr: Annotated[LearningRate, "learning rate of that layer"] = OWN.lr,
    switch: Annotated[
        Chooser, "who answers, own model or the offered one: Entropy, Threshold, Cosine, Familiar or Prior"
    ] = OWN.switch,
) -> Tuned:
    """The first view and a device's own last layer on it answer row by row (ClassTer's switch)."""
    return Tuned(Personal(epochs, lr, switch).job(local), "switch")


def edges(
    local: Train = Train(),
    go_on: Annotated[
        bool, "whether edges train between the cloud's models (FedEdge); else they pass on (HierFL)"
    ] = True,
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None,
    select: Annotated[Select, "who of an edge takes part"] = Uniform(),
    deadline: Annotated[Seconds | None, "seconds that an edge waits for its devices"] = None,
    local_rounds: Annotated[
        int | tuple[int, ...] | None,
        "before the cloud is answered, of all or of each; left out: as many as fit, or 1 if they pass on",
    ] = None,
    own: Annotated[
        bool | None, "views of devices' own models and of edges' lead; left out: if edges go on, as they must"
    ] = None,
    inner: Annotated[
        Cohort | None, "of edges that go on: what they train by; left out: by what the cloud asks for"
    ] = None,
    robust: Annotated[Robust | None, "of edges that go on: which updates each leaves out"] = None,
    contrast: Annotated[Learning | None, "of edges that go on: what devices learn beside (Maverick)"] = None,
    mix: Annotated[Mix, "of edges that go on: how the cloud's model is mixed in, carry or half"] = "carry",
    upload_before_mix: Annotated[bool, "of mix = 'half': the cloud is sent the edge's own model"] = False,
    edge_view: Annotated[EdgeView, "of edges that go on: the view `edge` is before mixing, or after"] = "own",
    anchor: Annotated[
        To, "of edges that go on: the model that fedprox and moon draw devices to, global or edge"
    ] = "edge",
) -> Edges:
    """Edges between devices and cloud, each with one vote if they go on, else by rows."""
    if go_on:
        fix = "devices of edges that go on use models of their own; leave it out, or set go_on = false"
        require(own is not False, "own", own, fix)
        return make_going_on(
            local,
            clients,
            deadline,
            select,
            local_rounds,
            inner,
            robust,
            mix,
            upload_before_mix,
            edge_view,
            anchor,
            contrast,
        )
    fix = "is of edges that go on between the cloud's models; leave it out, or set go_on = true"
    for key, given, usual in (
        ("inner", inner, None),
        ("robust", robust, None),
        ("contrast", contrast, None),
        ("mix", mix, "carry"),
        ("upload_before_mix", upload_before_mix, False),
        ("edge_view", edge_view, "own"),
        ("anchor", anchor, "edge"),
    ):
        require(given == usual, key, given, fix)
    fix = "gives a number to each edge, and these pass on; give one for all, or set go_on = true"
    require(not isinstance(local_rounds, tuple), "local_rounds", local_rounds, fix)
    rounds = local_rounds if isinstance(local_rounds, int) else 1
    return make_passing(local, clients, deadline, select, rounds, bool(own))
