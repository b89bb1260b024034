"""FedBuff (Nguyen et al. 2022, Federated Learning with Buffered Asynchronous Aggregation).

Devices work asynchronously, but the server steps only when it has gathered K updates: it adds their mean,
each scaled by 1/sqrt(1 + staleness). So nobody waits, and yet no single device moves the model.

Deviations: a lost task counts towards K, so that a round ends even if all are lost; the mean is over the
updates that came. Neither server momentum nor scaling of the local rate. A round is one such step.
"""

from typing import Annotated

import torch

from potluck.authoring import (
    Lanes,
    LearningRate,
    Params,
    Reply,
    Seconds,
    Select,
    Stream,
    Train,
    Uniform,
    add,
    polynomial,
    require,
    scale,
    value,
)


@value(eq=False, light=True)
class BufferState:
    """A buffer as its running sum, so that its size costs no memory."""

    total: Params | None = None
    updates: int = 0
    tasks: int = 0  # lost ones too


@value
class Buffer:
    """Gathers updates and adds the mean of every `size` of them."""

    size: int = 10  # K
    lr: float = 1.0

    def __post_init__(self) -> None:
        require(self.size >= 1, "buffer", self.size, "must be at least 1, such as 10")
        require(self.lr > 0, "server_lr", self.lr, "must be above 0; 1 adds the mean update as it is")

    def start(self) -> BufferState:
        return BufferState()

    def step(
        self, params: Params, state: BufferState, reply: Reply | None, staleness: int
    ) -> tuple[Params, BufferState, bool]:
        total, updates, tasks = state.total, state.updates, state.tasks + 1
        if reply is not None:
            update, share, updates = reply.body["delta"], polynomial(staleness, 0.5), updates + 1
            if total is None:
                total = scale(update, share)
            else:  # as `add` would, without its walk: this is done for every single task
                total = {name: torch.add(t, update[name], alpha=share) for name, t in total.items()}
        if tasks < self.size:
            return params, BufferState(total, updates, tasks), False
        if total is not None:
            params = add(params, total, self.lr / updates)
        return params, BufferState(), True


def fedbuff(
    local: Train = Train(),
    clients: Annotated[Lanes, "devices at work at any time"] = 10,
    buffer: Annotated[int, "updates that the server gathers before it steps"] = 10,
    server_lr: Annotated[LearningRate, "the server's step"] = 1.0,
    select: Annotated[Select, "who takes part"] = Uniform(),
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> Stream:
    """Asynchronous devices, and a server that steps with the mean of every few updates."""
    return Stream(Buffer(buffer, server_lr), clients, local, select, deadline)
