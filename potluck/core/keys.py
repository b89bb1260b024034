"""Randomness by counter: a key and a position give a number, so the order of computing never matters.

A key is a 64-bit integer. `derive` mixes integers into a key (a run's seed, a node, a task); the array
functions hash positions under a key, in NumPy for the host and in tensor operations for the inside of a
loss (where they must survive `torch.func.vmap`). All three agree: the mixer is SplitMix64's finaliser, of the
position plus a multiple of the key that sets keys far apart (else seed 1 at 2 could equal seed 2 at 1).
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_A = 0xBF58476D1CE4E5B9
_B = 0x94D049BB133111EB
_STEP = 0xD1342543DE82EF95  # odd, so that no two keys become one


def _as_signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def derive(key: int, *parts: int) -> int:
    """A new key from a key and any integers; equal inputs give equal keys, in this order only."""
    for part in parts:
        key = key * _STEP + int(part) + _GOLDEN & _MASK
        key = (key ^ key >> 30) * _A & _MASK
        key = (key ^ key >> 27) * _B & _MASK
        key ^= key >> 31
    return key


def hash_all(key: int | NDArray[np.uint64], positions: NDArray[np.integer]) -> NDArray[np.uint64]:
    """A 64-bit hash of every position under a key (or under several: the two are broadcast)."""
    z = positions.astype(np.uint64)
    if isinstance(key, np.ndarray):
        z = z + (key * np.uint64(_STEP) + np.uint64(_GOLDEN))
    else:
        z += np.uint64(key * _STEP + _GOLDEN & _MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_A)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_B)
    return z ^ (z >> np.uint64(31))


def uniforms(key: int, positions: NDArray[np.integer]) -> NDArray[np.float64]:
    """Numbers in [0, 1), one a position."""
    return (hash_all(key, positions) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def chance(key: int, position: int) -> float:
    """A number in [0, 1), alone."""
    return (derive(key, position) >> 11) * 2.0**-53


def permute(key: int, n: int) -> NDArray[np.intp]:
    """A permutation of range(n)."""
    return np.argsort(hash_all(key, np.arange(n)), kind="stable")


def permute_all(many: NDArray[np.uint64], sizes: NDArray[np.int64]) -> NDArray[np.intp]:
    """`permute` for many keys at once, a row each: its first entries, as many as its size, are the order."""
    positions = np.arange(sizes.max(initial=0))
    table = hash_all(many[:, None], positions[None])
    table[positions >= sizes[:, None]] = _MASK  # after all others; the sort is stable
    return np.argsort(table, axis=1, kind="stable")


def generator(key: int) -> np.random.Generator:
    """A NumPy generator; slow to make (10 us), so for plans rather than for tasks."""
    return np.random.Generator(np.random.Philox(key=key))


class Rewound:
    """One NumPy generator set to key after key, ten times as fast as making one; whoever had it is done."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)
        self._start = self._bits.state

    def at(self, key: int) -> np.random.Generator:
        """What `generator(key)` would give."""
        self._start["state"]["key"][0] = key
        self._bits.state = self._start
        return self._generator


def as_tensor(key: int) -> Tensor:
    """A key for tensor operations: a scalar of 64 bits."""
    return torch.tensor(_as_signed(key), dtype=torch.int64)


def _shift(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & ((1 << 64 - bits) - 1)  # logical: int64's own shift would copy the sign


def fold_in(key: Tensor, part: int | Tensor) -> Tensor:
    """`derive` for tensor keys: vmappable."""
    z = key * _as_signed(_STEP) + part + _as_signed(_GOLDEN)
    z = (z ^ _shift(z, 30)) * _as_signed(_A)
    z = (z ^ _shift(z, 27)) * _as_signed(_B)
    return z ^ _shift(z, 31)


def uniform(key: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers in [0, 1) of a shape, in tensor operations only: vmappable."""
    positions = torch.arange(math.prod(shape), dtype=torch.int64, device=key.device)
    bits = 1 - round(math.log2(torch.finfo(dtype).eps))  # as many as the type holds, else 1 could come out
    return (_shift(fold_in(key, positions), 64 - bits).to(dtype) * 2.0**-bits).reshape(shape)


def normal(key: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers of a shape (Box-Muller): vmappable."""
    radius = torch.sqrt(-2 * torch.log1p(-uniform(fold_in(key, 1), shape, dtype)))
    return radius * torch.cos(2 * math.pi * uniform(fold_in(key, 2), shape, dtype))
