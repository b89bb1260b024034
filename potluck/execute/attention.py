"""Attention on a GPU by one kind of kernel, so that runs repeat."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def pin_attention(device: torch.device) -> Iterator[None]:
    """Leave torch two of its four kinds: the memory-efficient one, whose slopes came out the same every time
    on an H200, and plain products for what that can't do (float64). Else it goes by shapes and by version."""
    if device.type != "cuda":
        yield
        return
    kinds = torch.backends.cuda
    before = kinds.flash_sdp_enabled(), kinds.cudnn_sdp_enabled()
    kinds.enable_flash_sdp(False)
    kinds.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        kinds.enable_flash_sdp(before[0])
        kinds.enable_cudnn_sdp(before[1])
