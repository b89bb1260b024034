"""Dropout whose mask is a function of a key: the same wherever and whenever a task is computed."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor, peek_interpreter_stack
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from potluck.core import vmap as stacks
from potluck.core.keys import fold_in, uniform

# AlphaDropout and the like are left alone: the trial run finds that they draw by themselves.
_ORDINARY = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass
class Draws:
    """The key of one forward pass and how often it was drawn from; shared by all dropouts of a network."""

    key: Tensor | None = None
    count: int = 0


class KeyedDropout(nn.Module):
    """Stands in for an `nn.Dropout`; without a key (evaluation) it does nothing."""

    def __init__(self, p: float, channels: bool, draws: Draws) -> None:
        super().__init__()
        self.p = p
        self.channels = channels
        self.draws = draws

    def forward(self, x: Tensor) -> Tensor:
        """For use inside a module, which may call one dropout several times: each call has its own mask."""
        if self.draws.key is None:
            return x
        self.draws.count += 1
        if self.p == 0:  # as in published modules that are told to drop nothing
            return x
        return self.drop(x, fold_in(self.draws.key, self.draws.count))

    def drop(self, x: Tensor, key: Tensor) -> Tensor:
        """Zero single values, or whole channels, with probability p."""
        # Flat positions, and float32 always: a row's mask depends neither on how many rows follow it
        # (padding) nor on the precision of the run.
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if self.channels else tuple(x.shape)
        kept = _draw_kept(key, shape, self.p, x.dtype)
        return x * (kept * (1 / (1 - self.p) if self.p < 1 else 0.0))


def _draw_kept(key: Tensor, shape: tuple[int, ...], p: float, dtype: torch.dtype) -> Tensor:
    """1 where a number drawn by the key is at least p, else 0."""
    keep = _find_kernel(key.device)
    if keep is None or (peek_interpreter_stack() is not None and not stacks.mapping()):
        return (uniform(key, shape) >= p).to(dtype)
    if stacks.mapping() and is_batchedtensor(key):
        return stacks.outside(lambda k: keep(k, math.prod(shape), p, dtype).view(-1, *shape), (key,))
    return keep(key.view(1), math.prod(shape), p, dtype).view(shape)


@cache
def _find_kernel(device: torch.device) -> Callable[..., Tensor] | None:
    """The kernel of `dropout_kernel`, where there is a GPU and Triton can compile for it."""
    if device.type != "cuda":
        return None
    try:
        from potluck.models.dropout_kernel import keep

        with temporarily_clear_interpreter_stack():
            keep(torch.zeros(1, dtype=torch.int64, device=device), 1, 0.5, torch.float32)
    except Exception as error:  # no Triton, or no compiler for it: operations draw the same, only later
        warnings.warn(f"dropout's mask isn't drawn by one kernel ({error})", stacklevel=2)
        return None
    return keep


def key_dropouts(net: nn.Module) -> Draws:
    """Replace every dropout inside a network, which is changed; the key goes into what is returned."""
    draws = Draws()
    for parent in list(net.modules()):
        for name, child in parent._modules.items():  # named_children would skip a second use of one dropout
            if isinstance(child, _ORDINARY):
                setattr(parent, name, KeyedDropout(child.p, not isinstance(child, nn.Dropout), draws))
    return draws
