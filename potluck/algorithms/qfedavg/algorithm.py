"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Annotated

import torch

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.qfedavg.device import Appraise
from potluck.authoring import (
    Factor,
    Params,
    Power,
    Reply,
    Seconds,
    Select,
    Train,
    Uniform,
    add,
    leaves,
    part,
    require,
    value,
    weighted_sum,
)

LEAST = 1e-10  # loss: a power of 0 may be infinite


@part("server")
@value
class Fair:
    """w <- w - sum D_k / sum h_k; D_k = F_k^q Delta_k, h_k = q F_k^(q-1) ||Delta_k||^2 + F_k^q / lr."""

    q: Annotated[Power, "how much devices of high loss count; 0: FedAvg"] = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.q < float("inf"), "q", self.q, "must be 0 or more, such as 1; 0 is the plain mean")

    def start(self, params: Params) -> None:
        return None

    def step(self, params: Params, state: None, replies: Sequence[Reply]) -> tuple[Params, None]:
        heard = [r for r in replies if r.weight > 0 and isfinite(r.metrics["sent_loss"])]
        if not heard:
            return params, None
        deltas = [r.body["delta"] for r in heard]  # delta_k = -lr Delta_k
        lr = torch.tensor([_find_rate(r) for r in heard], dtype=torch.float64)
        losses = torch.tensor([r.metrics["sent_loss"] for r in heard], dtype=torch.float64).clamp_min(LEAST)
        far = torch.tensor([_square(d) for d in deltas], dtype=torch.float64) / lr**2  # ||Delta_k||^2
        weight = (losses / losses.max()) ** self.q  # F_k^q; the greatest cancels out, and nothing overflows
        curvature = weight * (self.q * far / losses + 1 / lr)  # h_k
        return add(params, weighted_sum(deltas, weight / lr / curvature.sum())), None


def qfedavg(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    q: Annotated[Power, "how much fairness counts; 0: not at all"] = 0.05,
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> FedAvg:
    """FedAvg in which badly served devices weigh more."""
    require(local.optim.lr > 0, "train.lr", local.optim.lr, "must be above 0: q-FedAvg divides by it")
    return FedAvg(clients, replace(local, objective=Appraise()), select, Fair(q), overcommit, deadline)


def _find_rate(reply: Reply) -> float:
    assert isinstance(reply.task.job, Train)
    return reply.task.job.optim.lr


def _square(params: Params) -> float:
    return sum(float(p.double().square().sum()) for p in leaves(params))
