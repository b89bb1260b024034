"""What losses are made of: cross-entropy row by row, as fast for a stack as for one; and directions."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from potluck.core.vmap import by_row, mapping


def row_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of every row."""
    if logits.is_cpu and mapping():
        return by_row(_along_rows, logits, labels)
    return by_row(_plain, logits, labels)


def _plain(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, reduction="none")


class _AlongRows(Function):
    """With the rows side by side: a CPU's vector units see hundreds of rows rather than ten classes."""

    @staticmethod
    def forward(ctx: Function, logits: Tensor, labels: Tensor) -> Tensor:
        logs, right = logits.t().contiguous().log_softmax(0), labels.unsqueeze(0)
        ctx.save_for_backward(logs, right)
        return logs.gather(0, right)[0].neg_()

    @staticmethod
    def backward(ctx: Function, slope: Tensor) -> tuple[Tensor, None]:
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        logs, right = saved
        out = logs.exp().mul_(slope)
        return out.scatter_add_(0, right, slope.neg().unsqueeze(0)).t(), None


_along_rows: Callable[..., Tensor] = _AlongRows.apply


def direction(z: Tensor) -> Tensor:
    """Rows of length 1: products of these are cosines."""
    return F.normalize(z, dim=-1, eps=1e-8)  # torch's own bound for cosines


def divergence(teacher: Tensor, logits: Tensor, heat: float) -> Tensor:
    """Per row: KL(teacher || softmax(logits / heat)), with the teacher's distribution first."""
    off = teacher.clamp_min(1e-30).log() - (logits / heat).log_softmax(-1)
    return (teacher * off).sum(-1)
