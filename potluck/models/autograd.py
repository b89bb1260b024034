"""What torch hands to the methods of an autograd Function, as a type."""

from typing import Protocol

from torch import Tensor


class FunctionContext(Protocol):
    """What a Function remembers from its forward pass to its backward pass."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]  # of every argument of `forward`

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...


Sides = tuple[int, ...]  # one number a side of an image or of a signal
Slopes = tuple[Tensor | None, ...]  # of every argument of `forward`
