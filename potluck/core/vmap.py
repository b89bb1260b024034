"""Out of a `vmap` and back: a whole stack of clients by hand, where vmap's own way is slow.

A loss is written for one client and mapped over a stack. Where a network or another part knows a faster way
to do the same for all clients at once, it steps out of the map, computes on plain tensors whose first axis
counts the clients, and steps in again. Everything around it stays an ordinary vmap.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor
from torch._C._functorch import (
    TransformType,
    _add_batch_dim,
    _remove_batch_dim,
    _vmap_decrement_nesting,
    _vmap_increment_nesting,
    get_unwrapped,
    is_batchedtensor,
    maybe_get_bdim,
    peek_interpreter_stack,
)
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._functorch.vmap import lazy_load_decompositions  # type: ignore[attr-defined]

from potluck.core.trees import Tree, tmap

Out = TypeVar("Out")
Part = tuple[Sequence[Tensor], Sequence[bool]]  # tensors; whether the first axis of each counts clients


def over(fn: Callable[..., Tree], clients: int, *parts: Part) -> tuple[Tree, list[bool]]:
    """`fn` of lists of tensors for each client, by vmap; and which tensors of its tree count clients.

    What doesn't depend on the client comes as it is, for all. This is `torch.vmap` without its walks through
    the trees of arguments, which cost more than a small model does.
    """
    lazy_load_decompositions()
    counted: list[bool] = []
    level = _vmap_increment_nesting(clients, "error")
    try:

        def unwrap(tensor: Tensor) -> Tree:
            counted.append(is_batchedtensor(tensor))
            return _remove_batch_dim(tensor, level, clients, 0) if counted[-1] else tensor

        lists = (
            [_add_batch_dim(t, 0, level) if counts else t for t, counts in zip(*part, strict=True)]
            for part in parts
        )
        return tmap(unwrap, fn(*lists)), counted
    finally:
        _vmap_decrement_nesting()


def mapping() -> bool:
    """Whether this runs inside of one vmap and of no other transform."""
    top = peek_interpreter_stack()
    return top is not None and top.level() == 1 and top.key() == TransformType.Vmap


def open_batch(tensor: Tensor) -> tuple[Tensor, bool]:
    """The tensor as it is outside, and whether its first axis counts clients (if not, all share it)."""
    if not is_batchedtensor(tensor):
        return tensor, False
    axis = maybe_get_bdim(tensor)
    plain = get_unwrapped(tensor)
    return (plain.movedim(axis, 0) if axis else plain), True


def outside(fn: Callable[..., Out], tensors: Sequence[Tensor | None]) -> Out:
    """`fn` of the plain stacks [clients, ...] (those that all share are repeated), back inside the map.

    It gives a tensor, or a tree of them.
    """
    parts = [(None, False) if t is None else open_batch(t) for t in tensors]
    clients = next((len(t) for t, mapped in parts if mapped and t is not None), 0)
    with temporarily_clear_interpreter_stack():
        plain = [t if t is None or mapped else t.expand(clients, *t.shape) for t, mapped in parts]
        out = fn(*plain)
    back: Out = tmap(_back, out)
    return back


def _back(tensor: Tensor) -> Tensor:
    return _add_batch_dim(tensor, 0, 1)


def by_row(fn: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """A function that treats every row by itself: all clients' rows are as good as one's."""
    if not mapping() or not any(is_batchedtensor(t) for t in tensors):
        return fn(*tensors)

    def flat(*stacks: Tensor) -> Tensor:
        rows: Tensor = fn(*(s.flatten(0, 1) for s in stacks)).unflatten(0, stacks[0].shape[:2])
        return rows

    return outside(flat, tensors)
