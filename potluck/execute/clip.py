"""Gradients no longer than a job allows (`Training.clip`), of one client or of a stack of clients."""

from collections.abc import Sequence

import torch
from torch import Tensor


def clip_gradients(grads: Sequence[Tensor], most: float, stacked: bool) -> list[Tensor]:
    """The same directions, where all of a client's numbers together are `most` long at most (L2 norm)."""
    rows = [g.reshape(len(g), -1) if stacked else g.reshape(1, -1) for g in grads]
    norm = torch.stack([r.square().sum(1) for r in rows]).sum(0).sqrt()
    shrink = most / norm.clamp_min(most)  # NaN stays NaN: a bad update is found to be one
    return [g * shrink.view(-1, *[1] * (g.dim() - 1)) if stacked else g * shrink[0] for g in grads]
