"""Which values dropout keeps, by one Triton kernel in place of thirty operations: the same bits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from potluck.core import keys

BLOCK = 1024  # values of a program


@triton.jit
def _keep(  # pragma: no cover - compiled, not run
    key, out, count, p,
    STEP: tl.constexpr, GOLDEN: tl.constexpr, A: tl.constexpr, B: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """`keys.uniform` of a client's key at each place, and whether it is at least p."""
    client = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * M + tl.arange(0, M)
    z = tl.load(key + client).to(tl.uint64, bitcast=True) * STEP + place.to(tl.uint64) + GOLDEN
    z = (z ^ (z >> 30)) * A
    z = (z ^ (z >> 27)) * B
    z = z ^ (z >> 31)
    drawn = (z >> 40).to(tl.float32) * 5.9604644775390625e-08  # 2 ** -24
    tl.store(out + client * count + place, tl.where(drawn >= p, 1.0, 0.0), mask=place < count)


def keep(key: Tensor, count: int, p: float, dtype: torch.dtype) -> Tensor:
    """Of keys [clients] what is kept [clients, count]: 1, or 0."""
    out = torch.empty(len(key), count, dtype=dtype, device=key.device)
    _keep[(triton.cdiv(count, BLOCK), len(key))](
        key.contiguous(), out, count, p, *(keys._STEP, keys._GOLDEN, keys._A, keys._B), BLOCK
    )
    return out
