"""FedAsync (Xie, Koyejo, Gupta 2019, Asynchronous Federated Optimization).

Nobody waits for anybody: as soon as a device answers, the server blends its model into the global one, and
another device is sent the result. The staler the model that a device started from, the smaller its share;
devices are held near what they were sent by a proximal term.

Deviations: staleness comes from the devices' speeds on the clock (the paper draws it); alpha doesn't fall by
schedule; nothing bounds staleness but `deadline`. `clients` devices train at any time. A round is one task,
answered or lost; only answers make a new version of the model, and staleness is counted in versions.
"""

from dataclasses import replace
from typing import Annotated, Literal, get_args

import torch

from potluck.authoring import (
    Lanes,
    Params,
    Power,
    Prox,
    Reply,
    Seconds,
    Select,
    Stream,
    Train,
    Uniform,
    hinge,
    nearest,
    polynomial,
    require,
    value,
)

Damping = Literal["constant", "polynomial", "hinge"]


@value
class Blend:
    """w <- (1 - share) w + share w_k, where the share falls with staleness."""

    alpha: float = 0.6
    damping: Damping = "polynomial"
    power: float = 0.5
    slope: float = 10.0
    patience: int = 4

    def __post_init__(self) -> None:
        known = get_args(Damping)
        require(0 < self.alpha <= 1, "alpha", self.alpha, "must be above 0 and at most 1, such as 0.6")
        require(self.damping in known, "damping", self.damping, nearest(str(self.damping), known))
        require(self.power >= 0, "power", self.power, "must be 0 or more, such as 0.5")
        require(self.slope >= 0, "slope", self.slope, "must be 0 or more, such as 10")
        require(self.patience >= 0, "patience", self.patience, "must be 0 or more, such as 4")

    def start(self) -> None:
        return None

    def share(self, staleness: int) -> float:
        if self.damping == "polynomial":
            return self.alpha * polynomial(staleness, self.power)
        return self.alpha * (hinge(staleness, self.slope, self.patience) if self.damping == "hinge" else 1.0)

    def step(
        self, params: Params, state: None, reply: Reply | None, staleness: int
    ) -> tuple[Params, None, bool]:
        if reply is None:
            return params, None, True
        sent, delta, share = reply.task.send["params"], reply.body["delta"], self.share(staleness)
        # Without `tmap`'s walk and a second piece of memory: this is done for every single task.
        theirs = {name: sent[name] + delta[name] for name in params}
        mixed = {n: torch.lerp(ours, theirs[n], share, out=theirs[n]) for n, ours in params.items()}
        return mixed, None, True


def fedasync(
    local: Train = Train(),
    clients: Annotated[Lanes, "devices at work at any time"] = 10,
    alpha: Annotated[float, "share of a fresh answer"] = 0.6,
    damping: Annotated[Damping, "how the share falls with staleness s"] = "polynomial",
    power: Annotated[Power, "polynomial: (s + 1)^-power"] = 0.5,
    slope: Annotated[float, "hinge: 1 / (slope (s - patience) + 1)"] = 10.0,
    patience: Annotated[int, "hinge: staleness that is forgiven"] = 4,
    mu: Annotated[float, "how hard the model that was sent pulls"] = 0.005,
    select: Annotated[Select, "who takes part"] = Uniform(),
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> Stream:
    """Every answer is blended into the model as it comes, the less the staler it is."""
    mix = Blend(alpha, damping, power, slope, patience)
    return Stream(mix, clients, replace(local, objective=Prox(mu)), select, deadline)
