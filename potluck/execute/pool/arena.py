"""Memory that forked processes share, and messages whose tensors lie in it instead of crossing a pipe."""

import io
import math
import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from potluck.core.trees import Tree

Where = tuple[int, torch.dtype, tuple[int, ...]]  # a tensor's offset in an arena, its type and its shape

Name = int | Where  # of a tensor in a message: its place among others, or where it lies
N = TypeVar("N")  # the same, of those who use some names only

_LARGE = 16384  # bytes of an array that is kept out of a message


class Arena:
    """Shared memory that grows. It has no name, so nothing is left of it however its processes end."""

    def __init__(self) -> None:
        try:
            self.file = os.memfd_create("potluck")  # not in /dev/shm, which containers keep small
        except (AttributeError, OSError):  # unknown to this system: a file without a name
            with tempfile.TemporaryFile() as file:
                self.file = os.dup(file.fileno())
        self.used = 0
        self.memory = memoryview(b"")  # of this process; tensors hold on to an earlier, shorter one

    def clear(self) -> None:
        """Forget what was put here; its memory will be used again."""
        self.used = 0

    def put(self, tensor: Tensor) -> Where:
        """Copy a tensor to where all processes see it."""
        start = align(self.used)
        where = start, tensor.dtype, tuple(tensor.shape)
        self.used = start + tensor.numel() * tensor.itemsize
        self.at(where).copy_(tensor.detach())
        return where

    def at(self, where: Where) -> Tensor:
        """The tensor that lies there, not a copy."""
        start, dtype, shape = where
        return view(self.reach(start + math.prod(shape) * dtype.itemsize), where)

    def reach(self, end: int) -> memoryview:
        """The memory, at least up to here."""
        if end > len(self.memory):
            if end > os.fstat(self.file).st_size:
                os.ftruncate(self.file, 2 * end)  # takes no memory before it is written to
            self.memory = memoryview(mmap.mmap(self.file, 0))  # all of it: another process may have grown it
        return self.memory

    def empty(self) -> None:
        """Give the memory back to the system; no tensor may be left in it."""
        os.ftruncate(self.file, 0)
        self.used, self.memory = 0, memoryview(b"")

    def close(self) -> None:
        os.close(self.file)
        self.memory = memoryview(b"")


class Lender:
    """Pieces of an arena that come back when there is no tensor in them any more."""

    def __init__(self) -> None:
        self.arena = Arena()
        self.pieces: list[tuple[int, int, weakref.ref[memoryview]]] = []  # offset, bytes, the last one lent
        self.end = 0

    def lend(self, size: int) -> tuple[int, memoryview]:
        """At least so many bytes: their offset in the arena, and the memory that tensors must hold on to."""
        free = [piece for piece in self.pieces if piece[2]() is None]
        if len(free) == len(self.pieces) and self.end > 4 * size:  # what was large is over
            self.arena.empty()
            self.end, self.pieces, free = 0, [], []
        free = [piece for piece in free if piece[1] >= size]
        if free:
            piece = min(free, key=lambda piece: piece[1])
            self.pieces.remove(piece)
            start, room, _ = piece
        else:
            start, room = self.end, align(size)
            self.end += room
        memory = self.arena.reach(start + room)[start : start + room]
        self.pieces.append((start, room, weakref.ref(memory)))
        return start, memory


def align(offset: int) -> int:
    """Where a tensor may begin: as torch's own do, for the last bit of a sum may depend on it."""
    return -(-offset // 64) * 64


def view(memory: memoryview, where: Where) -> Tensor:
    """A tensor in a piece of memory."""
    start, dtype, shape = where
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=start)
    return flat.view(shape).detach()  # detached, it isn't a view of the flat one: its rows are views of it


def pack(content: Tree, put: Callable[[Tensor], N]) -> bytes:
    """A message; tensors (and large arrays) in it are put elsewhere and only named."""
    file = io.BytesIO()
    _Packer(file, put).dump(content)
    return file.getvalue()


def unpack(message: bytes, get: Callable[[N], Tensor]) -> Tree:
    """What was packed; `get` finds a tensor by the name that `put` gave it."""
    return _Unpacker(io.BytesIO(message), get).load()


class _Packer(pickle.Pickler, Generic[N]):
    def __init__(self, file: io.BytesIO, put: Callable[[Tensor], N]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.put = put

    def persistent_id(self, content: Tree) -> tuple[bool, N] | None:
        if isinstance(content, Tensor):
            return False, self.put(content)
        if type(content) is np.ndarray and content.nbytes > _LARGE and content.dtype.kind in "iuf":
            return True, self.put(torch.tensor(content))
        return None


class _Unpacker(pickle.Unpickler, Generic[N]):
    def __init__(self, file: io.BytesIO, get: Callable[[N], Tensor]) -> None:
        super().__init__(file)
        self.get = get

    def persistent_load(self, name: tuple[bool, N]) -> Tree:
        array, where = name
        return self.get(where).numpy() if array else self.get(where)
