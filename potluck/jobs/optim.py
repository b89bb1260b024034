"""Local optimisers, on one client's tensors or on a stack of clients' (first axis).

They change the tensors that they are given, which belong to the executor. `lr` is a number, or one tensor a
parameter that broadcasts over a stack, so that clients with different rates train in one batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.core.codec import value

Rates = float | Sequence[Tensor]


def _descend(params: Sequence[Tensor], steps: Sequence[Tensor], lr: Rates) -> None:
    if isinstance(lr, float | int):
        torch._foreach_add_(list(params), list(steps), alpha=-lr)
    else:
        torch._foreach_addcmul_(list(params), list(steps), list(lr), -1.0)


@value
class SGD:
    """Stochastic gradient descent, with PyTorch's momentum and weight decay."""

    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def plain(self) -> bool:
        """A step is nothing but -lr times the gradient."""
        return not (self.momentum or self.weight_decay)

    def start(self, params: Sequence[Tensor]) -> list[list[Tensor]]:
        return [[torch.zeros_like(p) for p in params]] if self.momentum else []

    def step(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        state: Sequence[Sequence[Tensor]],
        lr: Rates,
        count: int | Tensor,
    ) -> None:
        if self.weight_decay:
            grads = torch._foreach_add(list(grads), list(params), alpha=self.weight_decay)
        if self.momentum:
            velocity = list(state[0])
            torch._foreach_mul_(velocity, self.momentum)
            torch._foreach_add_(velocity, list(grads))
            grads = velocity
        _descend(params, grads, lr)


@value
class Adam:
    """Adam with bias correction; its state lives for one task (devices keep none between rounds)."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def start(self, params: Sequence[Tensor]) -> list[list[Tensor]]:
        return [[torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]]

    def step(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        state: Sequence[Sequence[Tensor]],
        lr: Rates,
        count: int | Tensor,
    ) -> None:
        mean, square, grads = list(state[0]), list(state[1]), list(grads)
        torch._foreach_lerp_(mean, grads, 1 - self.beta1)
        torch._foreach_mul_(square, self.beta2)
        torch._foreach_addcmul_(square, grads, grads, 1 - self.beta2)
        root = torch._foreach_sqrt(square)
        torch._foreach_div_(root, (1 - self.beta2**count) ** 0.5)
        torch._foreach_add_(root, self.eps)
        steps = torch._foreach_div(mean, root)
        torch._foreach_div_(steps, 1 - self.beta1**count)
        _descend(params, steps, lr)
