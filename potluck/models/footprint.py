"""Bytes of memory that a device needs for a model: really counted, since half a width isn't half of them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from potluck.core.job import Net
from potluck.core.trees import nbytes
from potluck.models.functional import Model


class Remembers(Protocol):
    """Of an optimiser: what it keeps beside the parameters, a number or more for each."""

    def start(self, params: Sequence[Tensor]) -> list[list[Tensor]]: ...


def training_bytes(net: Net, optim: Remembers, batch: int) -> int:
    """To train it: weights as received and as they become, gradients, the optimiser's state, constants, a
    batch's rows and all that its forward pass stores for the backward one."""
    return (3 + len(optim.start(()))) * net.nbytes + _constants(net) + batch * _row(net)


def inference_bytes(net: Net) -> int:
    """To use it row by row: weights and, at most, all that a row becomes on its way."""
    return net.nbytes + _constants(net) + _row(net)


def _constants(net: Net) -> int:
    return _fixed(net) if isinstance(net, Model) else 0


@lru_cache(maxsize=256)  # every task asks
def _fixed(net: Model) -> int:
    return nbytes(net.constants)


def _row(net: Net) -> int:
    return _passing(net) if isinstance(net, Model) else 0  # others tell what their weights take, no more


@lru_cache(maxsize=256)
def _passing(net: Model) -> int:
    """Bytes of a row and of what a forward pass over it stores beside weights."""
    params = {name: p.requires_grad_() for name, p in net.init(0).items()}
    x = torch.zeros(1, *net.shape, dtype=net.inputs, device=net.device)
    there = {t.untyped_storage().data_ptr() for t in (*params.values(), *net.constants, x)}
    stored: dict[int, int] = {}

    def note(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in there:
            stored[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        # As long as the loss lives, no two storages share an address.
        loss = torch.logsumexp(net(params, x), -1).sum()
    del loss
    return nbytes(x) + sum(stored.values())
