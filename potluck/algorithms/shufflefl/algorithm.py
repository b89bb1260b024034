"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.shufflefl.planner.problem import Planner
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.users import make_users
from potluck.authoring import Seconds, Select, Train, Uniform, require
from potluck.rules.layered import Layered


def shufflefl(
    local: Train = Train(),
    users: Annotated[int, "a round; devices without a user count as one each"] = 10,
    alpha: Annotated[float | None, "seconds that balance is worth; left out: from the first round"] = None,
    planner: Annotated[Planner, "how moves are found: search, slsqp (the paper's) or fill"] = Search(),
    gateway: Annotated[
        str | list[str], "where they are planned, for times on the clock; a list: user by user"
    ] = "pi4",
    gamma: Annotated[
        float | list[float],
        "below 1, so many groups of classes are planned for, as a share of them; a list: user by user",
    ] = 1.0,
    adaptive: Annotated[bool, "an alpha for each user, by how long it is expected to take"] = True,
    balance_time: Annotated[bool, "whether devices of a user should take equally long"] = True,
    shuffle: Annotated[bool, "False: no rows move; averages of averages alone"] = True,
    cap: Annotated[
        bool, "who is slower than a round's median user trains fewer batches, and weighs less"
    ] = True,
    transfer: Annotated[bool, "plans count the model's ways, which a device without rows is spared"] = True,
    select: Annotated[
        Select, "who takes part, by a way that asks devices for no work of its own"
    ] = Uniform(),
    deadline: Annotated[Seconds | None, "seconds of a round; who is done by then counts"] = None,
) -> Layered:
    """FedAvg of users whose devices exchange rows before they train."""
    require(users >= 1, "users", users, "must be at least 1: users a round")
    kind = type(select).__name__
    fix = "asks devices for work of its own, but users do ShuffleFL's; leave it out, or choose Uniform"
    require(select.jobs(local, [0], select.start()) == [local], "select", kind, fix)
    rounds = FedAvg(users, local, select, deadline=deadline)
    below = make_users(local, planner, gateway, alpha, gamma, adaptive, balance_time, shuffle, cap, transfer)
    return Layered(below.oversee(rounds), (("user", below.hub),))
