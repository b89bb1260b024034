"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from typing import Annotated, ClassVar

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.shufflefl.cloud import Cloud
from potluck.algorithms.shufflefl.gateway import Solve
from potluck.algorithms.shufflefl.hub import Hub
from potluck.algorithms.shufflefl.merging import count_groups
from potluck.algorithms.shufflefl.own import Own
from potluck.algorithms.shufflefl.planner.problem import Planner
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.times import step_seconds
from potluck.authoring import ConfigError, FederationFacts, Seconds, Select, Train, Uniform, require, value


@value
class Users:
    """Devices, the users that they belong to, and a cloud."""

    cloud: Cloud
    hub: Hub

    tiers: ClassVar[tuple[str, ...]] = ("user",)

    def at(self, tier: str) -> Cloud | Hub:
        return self.cloud if tier == "cloud" else self.hub

    def fits(self, federation: FederationFacts) -> None:
        """Refuse a server without rows where classes are to be merged by them."""
        shares = self.cloud.own.shares
        if self.cloud.shuffle and shares and not federation.server:
            raise ConfigError(
                f"gamma = {min(shares)}: classes are merged by how rows at the server look, and it has "
                "none; set aside a share, such as data.server = 0.1, or leave gamma out"
            )


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
) -> Users:
    """FedAvg of users whose devices exchange rows before they train."""
    require(users >= 1, "users", users, "must be at least 1: users a round")
    good = alpha is None or 0 <= alpha < float("inf")
    require(good, "alpha", alpha, "give 0 or more seconds, or leave it out")
    gateways = (gateway,) if isinstance(gateway, str) else tuple(gateway)
    gammas = tuple(gamma) if isinstance(gamma, list) else (gamma,)
    require(len(gateways) > 0, "gateway", gateway, "name one, such as pi4, or a list of some")
    require(len(gammas) > 0, "gamma", gamma, "give one, such as 0.25, or a list of some")
    for share in gammas:
        count_groups(share, 2)  # refuses a share that is none
    for name in gateways:
        step_seconds(name)  # refuses one that nobody has measured
    kind = type(select).__name__
    fix = "asks devices for work of its own, but users do ShuffleFL's; leave it out, or choose Uniform"
    require(select.jobs(local, [0], select.start()) == [local], "select", kind, fix)
    rounds = FedAvg(users, local, select, deadline=deadline)
    cloud = Cloud(rounds, alpha, Own(gateways, gammas), adaptive, shuffle, cap)
    return Users(cloud, Hub(local, Solve(planner, gateways[0]), balance_time, shuffle, cap, transfer))
