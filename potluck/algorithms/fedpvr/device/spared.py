"""Momentum for a part of a model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.core.codec import value
from potluck.jobs.optim import SGD, Rates


@value
class SparedSGD(SGD):
    """SGD whose momentum spares the parameters at these places: they take plain steps."""

    places: tuple[int, ...] = ()

    def start(self, params: Sequence[Tensor]) -> list[list[Tensor]]:
        return [[torch.zeros_like(params[i]) for i in self._find_moving(params)]] if self.momentum else []

    def step(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        state: Sequence[Sequence[Tensor]],
        lr: Rates,
        count: int | Tensor,
    ) -> None:
        still = SGD(self.lr, 0.0, self.weight_decay)
        for optim, places in ((self, self._find_moving(params)), (still, self.places)):
            if places:
                rates = lr if isinstance(lr, float | int) else [lr[i] for i in places]
                SGD.step(optim, [params[i] for i in places], [grads[i] for i in places], state, rates, count)

    def _find_moving(self, params: Sequence[Tensor]) -> list[int]:
        return [i for i in range(len(params)) if i not in self.places]
