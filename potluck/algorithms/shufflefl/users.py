"""Users as a layer: a hub for each, and what stands over them."""

from potluck.algorithms.shufflefl.gateway import Solve
from potluck.algorithms.shufflefl.hub import Hub
from potluck.algorithms.shufflefl.merging import count_groups
from potluck.algorithms.shufflefl.overseer import Overseer
from potluck.algorithms.shufflefl.own import Own
from potluck.algorithms.shufflefl.planner.problem import Planner
from potluck.algorithms.shufflefl.times import step_seconds
from potluck.authoring import Rule, Train, require, value


@value
class Users:
    """What a user's hub does, and what the rule above users knows of them."""

    hub: Hub
    alpha: float | None
    own: Own
    adaptive: bool

    def oversee(self, rule: Rule) -> Overseer:
        """A rule whose members are users."""
        return Overseer(rule, self.alpha, self.own, self.adaptive, self.hub.shuffle, self.hub.cap)


def make_users(
    local: Train,
    planner: Planner,
    gateway: str | list[str],
    alpha: float | None,
    gamma: float | list[float],
    adaptive: bool,
    balance_time: bool,
    shuffle: bool,
    cap: bool,
    transfer: bool,
) -> Users:
    """The parts, once settings are found to make sense."""
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
    hub = Hub(local, Solve(planner, gateways[0]), balance_time, shuffle, cap, transfer)
    return Users(hub, alpha, Own(gateways, gammas), adaptive)
