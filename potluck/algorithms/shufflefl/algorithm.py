"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from typing import Annotated, ClassVar

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.shufflefl.cloud import Cloud
from potluck.algorithms.shufflefl.gateway import Solve
from potluck.algorithms.shufflefl.hub import Hub
from potluck.algorithms.shufflefl.merging import count_groups
from potluck.algorithms.shufflefl.planner.problem import Planner
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.times import step_seconds
from potluck.authoring import ConfigError, FederationFacts, Train, require, value


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
        if self.cloud.shuffle and self.cloud.gamma < 1 and not federation.server:
            raise ConfigError(
                f"gamma = {self.cloud.gamma}: classes are merged by how rows at the server look, and it has "
                "none; set aside a share, such as data.server = 0.1, or leave gamma out"
            )


def shufflefl(
    local: Train = Train(),
    users: Annotated[int, "a round; devices without a user count as one each"] = 10,
    alpha: Annotated[float | None, "seconds that balance is worth; left out: from the first round"] = None,
    planner: Annotated[Planner, "how moves are found: search, slsqp (the paper's) or fill"] = Search(),
    gateway: Annotated[str, "where they are planned: times on the clock are of this machine"] = "pi4",
    gamma: Annotated[
        float, "below 1, so many groups of classes are planned for, as a share of the classes"
    ] = 1.0,
    adaptive: Annotated[bool, "an alpha for each user, by how long it is expected to take"] = True,
    balance_time: Annotated[bool, "whether devices of a user should take equally long"] = True,
    shuffle: Annotated[bool, "False: no rows move; averages of averages alone"] = True,
    cap: Annotated[
        bool, "who is slower than a round's median user trains fewer batches, and weighs less"
    ] = True,
    transfer: Annotated[bool, "plans count the model's ways, which a device without rows is spared"] = True,
) -> Users:
    """FedAvg of users whose devices exchange rows before they train."""
    require(users >= 1, "users", users, "must be at least 1: users a round")
    good = alpha is None or 0 <= alpha < float("inf")
    require(good, "alpha", alpha, "give 0 or more seconds, or leave it out")
    count_groups(gamma, 2)  # refuses a share that is none
    step_seconds(gateway)  # refuses one that nobody has measured
    if shuffle or cap:
        off = "shuffle = false and cap = false"
        fix = f"rows decide how long devices train; set train.epochs instead, or {off}"
        require(local.steps is None, "train.steps", local.steps, fix)
        fix = f"must be at least 1 where rows or batches are planned; or set {off}"
        require(local.epochs >= 1, "train.epochs", local.epochs, fix)
    if shuffle:
        fix = "covers updates alone, but rows leave devices as they are; leave it out, or set shuffle = false"
        require(local.privacy is None, "train.privacy", local.privacy, fix)
    cloud = Cloud(FedAvg(users, local), alpha, gamma, adaptive, shuffle, cap)
    return Users(cloud, Hub(local, Solve(planner, gateway), balance_time, shuffle, cap, transfer))
