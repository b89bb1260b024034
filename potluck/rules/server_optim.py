"""Server optimisers: what becomes of a round's updates (Reddi et al., Adaptive Federated Optimization)."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol, get_args

import torch
from torch import Tensor
from typing_extensions import TypeVar

from potluck.core.codec import value
from potluck.core.errors import nearest, require
from potluck.core.messages import Reply
from potluck.core.parts import part, role
from potluck.core.ranges import LearningRate
from potluck.core.trees import Params, add, tmap, zeros
from potluck.rules.fold import fold

Memory = Literal["yogi", "adam", "adagrad"]
Opt = TypeVar("Opt", default=Any)  # what a server optimiser remembers


@role("server")
class ServerOptim(Protocol[Opt]):
    """Turns what came back (it may be nothing) into the next model; its state is the algorithm's."""

    def start(self, params: Params) -> Opt: ...
    def step(self, params: Params, state: Opt, replies: Sequence[Reply]) -> tuple[Params, Opt]: ...


@part("server")
@value
class Average:
    """Add the mean update: FedAvg at lr 1."""

    lr: Annotated[LearningRate, "learning rate of the server"] = 1.0

    def __post_init__(self) -> None:
        require(self.lr > 0, "server_lr", self.lr, "must be above 0; 1 adds the mean update as it is")

    def start(self, params: Params) -> None:
        return None

    def step(self, params: Params, state: None, replies: Sequence[Reply]) -> tuple[Params, None]:
        update = fold(replies)
        return (params if update is None else add(params, update, self.lr)), None


@value(eq=False)
class Moments:
    """Running means of the update and of its square."""

    mean: Params
    square: Params


@part("server")
@value
class Adaptive:
    """FedAdagrad, FedAdam and FedYogi: they differ in how the square is remembered. No bias correction."""

    rule: Annotated[Memory, "how the square is remembered"] = "yogi"
    lr: Annotated[LearningRate, "learning rate of the server"] = 0.01
    beta1: Annotated[float, "share of the mean that stays, every round"] = 0.9
    beta2: Annotated[float, "share of the square that stays"] = 0.99
    tau: Annotated[
        float, "adaptivity: the least denominator; the square starts at tau^2, as in the paper"
    ] = 1e-3

    def __post_init__(self) -> None:
        known = get_args(Memory)
        require(self.rule in known, "rule", self.rule, nearest(str(self.rule), known))
        require(self.lr > 0, "server_lr", self.lr, "must be above 0, such as 0.01")
        require(0 <= self.beta1 < 1, "beta1", self.beta1, "must be at least 0 and below 1, such as 0.9")
        require(0 <= self.beta2 < 1, "beta2", self.beta2, "must be at least 0 and below 1, such as 0.99")
        require(self.tau > 0, "tau", self.tau, "must be above 0, such as 0.001")

    def start(self, params: Params) -> Moments:
        return Moments(zeros(params), tmap(lambda p: torch.full_like(p, self.tau**2), params))

    def step(self, params: Params, state: Moments, replies: Sequence[Reply]) -> tuple[Params, Moments]:
        update = fold(replies)
        if update is None:
            return params, state
        mean = tmap(lambda m, d: self.beta1 * m + (1 - self.beta1) * d, state.mean, update)
        square = tmap(self._square, state.square, update)
        new = tmap(lambda p, m, v: p + self.lr * m / (v.sqrt() + self.tau), params, mean, square)
        return new, Moments(mean, square)

    def _square(self, v: Tensor, d: Tensor) -> Tensor:
        d2 = d * d
        if self.rule == "adagrad":
            return v + d2
        if self.rule == "adam":
            return self.beta2 * v + (1 - self.beta2) * d2
        return v - (1 - self.beta2) * d2 * torch.sign(v - d2)
