"""What devices remember between tasks: one tree per device and slot, in a log on disk.

The log only grows; an index says where each memory's last version lies. Memories written since the last
snapshot stay in RAM and reach the log when a snapshot needs them or when they grow too large, so a run of
short rounds doesn't write each version of each memory.
"""

import os
import tempfile
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import field
from pathlib import Path
from typing import BinaryIO

from potluck.core import codec, safe_files
from potluck.core.codec import value
from potluck.core.errors import StorageError
from potluck.core.messages import Node
from potluck.core.trees import Tree, copy_tree, nbytes
from potluck.engine import snapshot
from potluck.engine.records import close, cut, flush

Name = tuple[Node, Hashable]


@value(frozen=False, eq=False)
class MemoryState:
    """Where memories lie in their log when everything has been written, and how long it is."""

    index: list[tuple[Node, Hashable, int, int]] = field(default_factory=list)  # device, slot, offset, bytes
    length: int = 0


class Memories:
    """Trees by device and slot; at most `budget` bytes of them in memory."""

    def __init__(self, path: Path | None, budget: int = 1 << 30, device: str = "cpu") -> None:
        self.budget, self.device = budget, device
        self.file: BinaryIO
        if path is None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
        else:
            self.file = safe_files.open_file(path.parent, path.name, "a+b")
        self.index: dict[Name, tuple[int, int]] = {}  # where the logged version lies: offset, length
        self.fresh: dict[Name, Tree] = {}  # newer than the log
        self.read: OrderedDict[Name, Tree] = OrderedDict()  # as in the log; oldest first
        self.slots: dict[Node, dict[Hashable, None]] = {}  # which memories a device has
        self.sizes = 0  # bytes in fresh and read

    def get(self, node: Node, slot: Hashable) -> Tree:
        name = (node, slot)
        if name in self.fresh:
            return self.fresh[name]
        if name in self.read:
            self.read.move_to_end(name)
            return self.read[name]
        if name not in self.index:
            return None
        offset, length = self.index[name]
        self.file.seek(offset)
        tree = snapshot.read(self.file.read(length), self.device, f"what device {node} remembers")
        self._cache(name, tree)
        return tree

    def put(self, node: Node, slot: Hashable, tree: Tree) -> None:
        name = (node, slot)
        for place in (self.fresh, self.read):
            if name in place:
                self.sizes -= nbytes(place.pop(name))
        self.fresh[name] = copy_tree(tree)
        self.slots.setdefault(node, {})[slot] = None
        self.sizes += nbytes(tree)
        if self.sizes > self.budget:
            self._spill()

    def forget(self, node: Node) -> bool:
        """Drop all that a device has kept; whether there was anything. The log still has it, unfindable."""
        slots = self.slots.pop(node, {})
        for slot in slots:
            name = (node, slot)
            for place in (self.fresh, self.read):
                if name in place:
                    self.sizes -= nbytes(place.pop(name))
            self.index.pop(name, None)
        return bool(slots)

    def recall(self, memories: Mapping[Name, Tree]) -> None:
        """Begin with what devices remember from elsewhere."""
        for (node, slot), tree in memories.items():
            self.put(node, slot, tree)

    def flush(self) -> MemoryState:
        """Everything to disk, and where it lies."""
        self._log()
        self.file.seek(0, os.SEEK_END)
        length = flush(self.file)
        return MemoryState([(node, slot, *where) for (node, slot), where in self.index.items()], length)

    def restore(self, state: MemoryState) -> None:
        """Go back to what there was; the log is cut to its length."""
        cut(self.file, state.length)
        self.fresh, self.sizes = {}, 0
        self.read.clear()
        self.index = {(node, slot): (offset, size) for node, slot, offset, size in state.index}
        self.slots = {}
        for node, slot in self.index:
            self.slots.setdefault(node, {})[slot] = None

    def close(self) -> None:
        close(self.file)

    def _log(self) -> None:
        with safe_files.naming(self.file.name, "written", StorageError):
            end = self.file.seek(0, os.SEEK_END)
            for name, tree in self.fresh.items():
                data = codec.encode(tree)
                self.file.write(data)
                self.index[name] = (end, len(data))
                end += len(data)
        self.read.update(self.fresh)
        self.fresh = {}

    def _spill(self) -> None:
        self._log()
        self._shrink()

    def _cache(self, name: Name, tree: Tree) -> None:
        self.read[name] = tree
        self.sizes += nbytes(tree)
        self._shrink()

    def _shrink(self) -> None:
        while self.sizes > self.budget and self.read:
            _, tree = self.read.popitem(last=False)
            self.sizes -= nbytes(tree)


def read_log(path: Path, state: MemoryState) -> dict[Name, Tree]:
    """What devices remembered, from the log of a run that may be over."""
    log = safe_files.read_file(path.parent, path.name)
    return {(n, slot): snapshot.read(log[at : at + size], "cpu", path) for n, slot, at, size in state.index}
