"""Randomness by counter: a key and a position give a number, so the order of computing never matters.

A key is a 64-bit integer. `derive` mixes integers into a key (a run's seed, a node, a task); the array
functions hash positions under a key, in NumPy for the host and in tensor operations for the inside of a
loss (where they must survive `torch.func.vmap`). All three agree: the mixer is SplitMix64's finaliser, of the
position plus a multiple of the key that sets keys far apart (else seed 1 at 2 could equal seed 2 at 1).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_A = 0xBF58476D1CE4E5B9
_B = 0x94D049BB133111EB
_STEP = 0xD1342543DE82EF95  # odd, so that no two keys become one
# Of Philox: its two factors, and what its two keys grow by in each of ten rounds.
_HALF = (1 << 32) - 1
_M, _N = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_BUMPS = [(i * 0x9E3779B97F4A7C15 & _MASK, i * 0xBB67AE8584CAA73B & _MASK) for i in range(10)]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def derive(key: int, *parts: int) -> int:
    """A new key from a key and any integers; equal inputs give equal keys, in this order only."""
    for part in parts:
        key = key * _STEP + int(part) + _GOLDEN & _MASK
        key = (key ^ key >> 30) * _A & _MASK
        key = (key ^ key >> 27) * _B & _MASK
        key ^= key >> 31
    return key


def hashed(key: int | NDArray[np.uint64], positions: NDArray[np.integer]) -> NDArray[np.uint64]:
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
    return (hashed(key, positions) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def chance(key: int, position: int) -> float:
    """A number in [0, 1), alone."""
    return (derive(key, position) >> 11) * 2.0**-53


def shuffled(key: int, n: int) -> NDArray[np.intp]:
    """A permutation of range(n)."""
    return np.argsort(hashed(key, np.arange(n)), kind="stable")


def all_shuffled(many: Sequence[int], sizes: Sequence[int]) -> NDArray[np.intp]:
    """`shuffled` for many keys at once, a row each: its first entries, as many as its size, are the order."""
    if not many:
        return np.zeros((0, 0), np.intp)
    positions = np.arange(max(sizes))
    table = hashed(np.array(many, np.uint64)[:, None], positions[None])
    table[positions >= np.array(sizes)[:, None]] = _MASK  # after all others; the sort is stable
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


Words = Sequence[int]  # a first block of a generator's numbers


def first_words(key: int) -> Words:
    """Of `generator(key)`, in plain Python: one block of Philox4x64-10."""
    a, b, c, d = 1, 0, 0, 0
    for bump, other in _BUMPS:
        x, y = _M * a, _N * c
        a, b, c, d = (y >> 64) ^ b ^ (key + bump & _MASK), y & _MASK, (x >> 64) ^ d ^ other, x & _MASK
    return a, b, c, d


def all_first_words(many: NDArray[np.uint64]) -> list[Words]:
    """`first_words` of many keys at once, in a fraction of their time."""
    a, b, c, d = np.ones_like(many), *(np.zeros_like(many) for _ in range(3))
    for bump, other in _BUMPS:
        x, y = a * np.uint64(_M), c * np.uint64(_N)
        upper, lower = _high(c, _N) ^ b ^ (many + np.uint64(bump)), _high(a, _M) ^ d ^ np.uint64(other)
        a, b, c, d = upper, y, lower, x
    words: list[Words] = np.stack([a, b, c, d], 1).tolist()
    return words


def _high(many: NDArray[np.uint64], factor: int) -> NDArray[np.uint64]:
    """The upper 64 bits of products of 128."""
    half, shift = np.uint64(_HALF), np.uint64(32)
    low, high = many & half, many >> shift
    one, two = np.uint64(factor & _HALF), np.uint64(factor >> 32)
    left, right = low * two, high * one
    carry = (low * one >> shift) + (left & half) + (right & half)
    upper: NDArray[np.uint64] = high * two + (left >> shift) + (right >> shift) + (carry >> shift)
    return upper


def below(words: Words, n: int) -> Iterator[int]:
    """The first few numbers of `generator(key).integers(n, size=...)`, from its first words.

    Whoever wants one number waits longer for NumPy's calls than for this: halves of words are scaled to n
    and, in rare cases, refused (Lemire), as NumPy does. n below 2^32.
    """
    for word in words:
        for half in (word & _HALF, word >> 32):
            scaled = half * n
            if scaled & _HALF >= n or scaled & _HALF >= (1 << 32) % n:
                yield scaled >> 32


def as_tensor(key: int) -> Tensor:
    """A key for tensor operations: a scalar of 64 bits."""
    return torch.tensor(_signed(key), dtype=torch.int64)


def _shift(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & ((1 << 64 - bits) - 1)  # logical: int64's own shift would copy the sign


def fold_in(key: Tensor, part: int | Tensor) -> Tensor:
    """`derive` for tensor keys: vmappable."""
    z = key * _signed(_STEP) + part + _signed(_GOLDEN)
    z = (z ^ _shift(z, 30)) * _signed(_A)
    z = (z ^ _shift(z, 27)) * _signed(_B)
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
