"""SCAFFOLD (Karimireddy et al. 2020, Stochastic Controlled Averaging for Federated Learning).

Devices whose data differ drift apart while they train. Each keeps c_i, an estimate of its own gradient; the
server keeps c, that of everybody's. Steps go along g - c_i + c, so that all devices head the same way.

As in the paper, c_i is set by option II (the mean gradient of the last training), hence plain SGD only;
updates are averaged equally, not by samples; c moves by 1/N of the sum of changes, N being all devices.
Deviations: a device without rows is left out of the mean; deadlines and over-commitment can be had.
"""

from dataclasses import replace
from typing import Annotated, Self

import torch

from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import (
    SGD,
    Average,
    Command,
    Context,
    Correct,
    Factor,
    GlobalState,
    Got,
    LearningRate,
    Node,
    Params,
    Seconds,
    Select,
    Task,
    Train,
    Uniform,
    add,
    require,
    value,
    weighted_sum,
    zeros,
)


@value(eq=False)
class ControlState:
    """FedAvg's state and the server's control variate."""

    inner: GlobalState
    control: Params  # c

    @property
    def round(self) -> int:
        return self.inner.round


@value
class ControlVariates:
    """FedAvg that sends, gathers and applies control variates."""

    inner: FedAvg

    def start(self, ctx: Context) -> ControlState:
        inner = self.inner.start(ctx)
        return ControlState(inner, zeros(inner.params))

    def lanes(self, m: ControlState, ctx: Context) -> tuple[None, ...]:
        return self.inner.lanes(m.inner, ctx)

    def plan(self, m: ControlState, lane: None, ctx: Context) -> tuple[ControlState, list[Command]]:
        inner, commands = self.inner.plan(m.inner, lane, ctx)
        send = {"params": inner.params, "control": m.control}
        asked = [replace(c, send=send) if isinstance(c, Task) else c for c in commands]
        return replace(m, inner=inner), asked

    def merge(
        self, m: ControlState, lane: None, got: Got, ctx: Context
    ) -> tuple[ControlState, list[Command]]:
        trained = [replace(r, weight=1.0) for r in got.replies if r.weight > 0]
        inner, commands = self.inner.merge(m.inner, lane, Got(trained, got.lost), ctx)
        control = m.control
        if trained:
            share = torch.full((len(trained),), 1 / len(ctx.children), dtype=torch.float64)
            control = add(control, weighted_sum([r.body["control"] for r in trained], share))
        return ControlState(inner, control), commands

    def resize(self, clients: int, rate: float) -> Self:
        return replace(self, inner=self.inner.resize(clients, rate))

    def serve(self, m: ControlState, node: Node, ctx: Context) -> dict[str, Task]:
        return self.inner.serve(m.inner, node, ctx)


def scaffold(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    server_lr: Annotated[LearningRate, "the server's step"] = 1.0,
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> ControlVariates:
    """FedAvg whose devices correct their gradients towards everybody's."""
    optim, why = local.optim, "SCAFFOLD divides by steps x rate, which suits plain SGD only"
    require(isinstance(optim, SGD), "train.optimizer", type(optim).__name__.lower(), f"{why}; write 'sgd'")
    momentum = optim.momentum if isinstance(optim, SGD) else 0.0
    require(momentum == 0, "train.momentum", momentum, f"{why}; write 0")
    require(optim.lr > 0, "train.lr", optim.lr, f"{why}; write a rate above 0")
    job = replace(local, objective=Correct())
    return ControlVariates(FedAvg(clients, job, select, Average(server_lr), overcommit, deadline))
