"""Operations as they are done, below gradients and maps."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from potluck.core.trees import Tree

Look: TypeAlias = Callable[[OpOverload, Sequence[Tree], dict[str, Tree], Tree], object]


class Watched(TorchDispatchMode):
    """Every operation is shown with what it was given, by place and by name, and what came of it."""

    def __init__(self, look: Look) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.look = look

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would be imported for that, which takes a second

    def __torch_dispatch__(
        self,
        op: OpOverload,
        types: Sequence[type],
        args: tuple[Tree, ...] = (),
        kwargs: dict[str, Tree] | None = None,
    ) -> Tree:
        out = op(*args, **(kwargs or {}))
        self.look(op, args, kwargs or {}, out)
        return out
