"""Steps that go by numbers: captured, they would always go by those of today.

A map over clients refuses them by itself. Who is captured alone isn't mapped, and is looked at here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import torch
from torch import Tensor
from torch._ops import OpOverload

from potluck.core.trees import Tree, leaves
from potluck.execute.captured.watched import Watched

_READS = ("__array__", "__dlpack__", "numpy", "tolist")  # a tensor's memory, without an operation to be seen


def is_steady(op: OpOverload, args: Sequence[Tree], out: Tree) -> bool:
    """Whether an operation makes tensors, of the same shapes next time."""
    if op is torch.ops.aten.index.Tensor:
        return not any(t.dtype in (torch.bool, torch.uint8) for t in leaves(args[1]))
    return torch.Tag.dynamic_output_shape not in op.tags and bool(leaves(out))


@contextmanager
def refuse_numbers() -> Iterator[None]:
    """What goes by a tensor's numbers fails, in backward passes too (where modes for functions aren't on)."""
    own = {name: vars(Tensor)[name] for name in _READS if name in vars(Tensor)}
    for name in _READS:
        setattr(Tensor, name, _refuse(f"Tensor.{name}"))
    try:
        with Watched(_refuse_unsteady):
            yield
    finally:
        for name in _READS:
            if name in own:
                setattr(Tensor, name, own[name])
            else:
                delattr(Tensor, name)


def _refuse(what: object) -> Callable[..., NoReturn]:
    def fail(*_: object, **named: object) -> NoReturn:
        raise RuntimeError(f"it goes by numbers, which {what} gives")

    return fail


def _refuse_unsteady(op: OpOverload, args: Sequence[Tree], named: dict[str, Tree], out: Tree) -> None:
    if not is_steady(op, args, out) and not op._schema.is_mutable:
        _refuse(op)()
