"""What devices remember between tasks: one tree per device and slot, in a log on disk.

The log only grows; an index says where each memory's last version lies, and what its checksum is. Memories
written since the last snapshot stay in RAM and reach the log when a snapshot needs them or when they grow too
large, so a run of short rounds doesn't write each version of each memory.

When more than half of a log is old versions, the last ones go to another log, and what follows too. Snapshots
that point into the old one can still be resumed from, so it stays as long as they do.
"""

import contextlib
import hashlib
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from potluck.core import codec, safe_files
from potluck.core.codec import value
from potluck.core.errors import SnapshotError, StorageError
from potluck.core.messages import Node
from potluck.core.trees import Tree, copy_tree, nbytes
from potluck.engine import snapshot
from potluck.engine.records import close, cut, flush

Name = tuple[Node, Hashable]
SMALL = 4 << 20  # bytes of a log that isn't worth copying


class Place(NamedTuple):
    """Where the version of a memory lies in its log, and the checksum of its bytes."""

    offset: int
    size: int
    sum: str


@value(frozen=False, eq=False)
class MemoryState:
    """Where memories lie in their log when everything has been written, and how long it is."""

    # Device, slot, and the fields of a Place.
    index: list[tuple[Node, Hashable, int, int, str]] = field(default_factory=list)
    length: int = 0
    log: int = 0  # which one: each time that old versions are left behind another begins
    snapshots: int = 0  # that point into it

    def places(self) -> dict[Name, Place]:
        return {(node, slot): Place(at, size, kept) for node, slot, at, size, kept in self.index}


class Memories:
    """Trees by device and slot; at most `budget` bytes of them in memory."""

    def __init__(self, path: Path | None, budget: int = 1 << 30, device: str = "cpu") -> None:
        self.path, self.budget, self.device = path, budget, device  # path: of the first log
        self.log = self.snapshots = 0
        self._file: BinaryIO | None = None
        self.index: dict[Name, Place] = {}  # where the logged version lies
        self.fresh: dict[Name, Tree] = {}  # newer than the log
        self.read: OrderedDict[Name, Tree] = OrderedDict()  # as in the log; oldest first
        self.slots: dict[Node, dict[Hashable, None]] = {}  # which memories a device has
        self.sizes = 0  # bytes in fresh and read

    @property
    def file(self) -> BinaryIO:
        """The log, opened when it is first needed: a run that is resumed has one of its own choice."""
        if self._file is None:
            self._file = self._open(self.log)
        return self._file

    def get(self, node: Node, slot: Hashable) -> Tree:
        name = (node, slot)
        if name in self.fresh:
            return self.fresh[name]
        if name in self.read:
            self.read.move_to_end(name)
            return self.read[name]
        if name not in self.index:
            return None
        tree = snapshot.read(self._read_bytes(name), self.device, f"what device {node} remembers")
        self._cache(name, tree)
        return tree

    def get_all(self, nodes: Sequence[Node], slots: Sequence[Hashable]) -> list[Tree]:
        """What many remember, each in a slot."""
        if not self.slots:  # as mostly
            return [None] * len(nodes)
        return [self.get(node, slot) for node, slot in zip(nodes, slots, strict=True)]

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

    def make_room(self) -> None:
        """Before a snapshot: delete logs that none points into any more, and leave old versions behind."""
        if self.path is not None and self.snapshots >= snapshot.KEPT:
            if self.log and self.snapshots == snapshot.KEPT:
                for number in _list_logs(self.path):
                    if number != self.log:
                        safe_files.remove_file(self.path.parent, name_log(self.path, number))
            if self._is_mostly_old():
                self._begin_log(self.log + 1)
                safe_files.sync_folder(self.path.parent)
        self.snapshots += 1

    def flush(self) -> MemoryState:
        """Everything to disk, and where it lies."""
        self._log()
        self.file.seek(0, os.SEEK_END)
        length = flush(self.file)
        index = [(node, slot, *where) for (node, slot), where in self.index.items()]
        return MemoryState(index, length, self.log, self.snapshots)

    def restore(self, state: MemoryState) -> None:
        """Go back to what there was; the log is cut to its length, and logs that followed it are deleted."""
        if state.log != self.log:
            self.close()
        self.log, self.snapshots = state.log, state.snapshots
        if self.path is not None:
            for number in _list_logs(self.path):
                if number > self.log:
                    safe_files.remove_file(self.path.parent, name_log(self.path, number))
        cut(self.file, state.length)
        self.fresh, self.sizes = {}, 0
        self.read.clear()
        self.index = state.places()
        self.slots = {}
        for node, slot in self.index:
            self.slots.setdefault(node, {})[slot] = None

    def close(self) -> None:
        """Give back the log, which is opened again if somebody still looks; one without a name stays."""
        if self._file is not None and self.path is not None:
            close(self._file)
            self._file = None

    def _open(self, number: int) -> BinaryIO:
        if self.path is None:
            return tempfile.TemporaryFile()
        return safe_files.open_file(self.path.parent, name_log(self.path, number), "a+b")

    def _read_bytes(self, name: Name) -> bytes:
        place = self.index[name]
        with safe_files.naming(self.file.name, "read", SnapshotError):
            self.file.seek(place.offset)
            data = self.file.read(place.size)
        if (fault := find_fault(name, place, data)) is not None:
            fix = "resume the run, which an earlier snapshot may allow; else run it again"
            raise SnapshotError(f"{self.file.name}: {fault}; {fix}")
        return data

    def _log(self) -> None:
        with safe_files.naming(self.file.name, "written", StorageError):
            end = self.file.seek(0, os.SEEK_END)
            for name, tree in self.fresh.items():
                data = codec.encode(tree)
                self.file.write(data)
                self.index[name] = Place(end, len(data), sum_bytes(data))
                end += len(data)
        self.read.update(self.fresh)
        self.fresh = {}

    def _is_mostly_old(self) -> bool:
        """Whether more than half of a large log is versions that nobody will read."""
        length = self.file.seek(0, os.SEEK_END)
        last = sum(place.size for name, place in self.index.items() if name not in self.fresh)
        return length > SMALL and 2 * last < length

    def _begin_log(self, number: int) -> None:
        """Go on with another log, which begins with the last versions of this one."""
        if self.path is not None:  # of a run that was killed before a snapshot pointed into it
            safe_files.remove_file(self.path.parent, name_log(self.path, number))
        other, index, end = self._open(number), dict[Name, Place](), 0
        try:
            for name, place in self.index.items():
                if name not in self.fresh:
                    data = self._read_bytes(name)
                    with safe_files.naming(other.name, "written", StorageError):
                        other.write(data)
                    index[name] = place._replace(offset=end)
                    end += place.size
        except BaseException:
            with contextlib.suppress(OSError):
                other.close()
            if self.path is not None:
                safe_files.remove_file(self.path.parent, name_log(self.path, number))
            raise
        self.close()
        self._file, self.log, self.index, self.snapshots = other, number, index, 0

    def _spill(self) -> None:
        if self.path is None and self._is_mostly_old():  # no snapshot points anywhere
            self._begin_log(self.log)
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


def name_log(path: Path, number: int) -> str:
    """The name of a log of memories: keep.log, keep.1.log and so on."""
    return f"{path.stem}.{number}{path.suffix}" if number else path.name


def sum_bytes(data: bytes) -> str:
    """A checksum."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def find_fault(name: Name, place: Place, data: bytes) -> str | None:
    """What is wrong with the bytes of a memory; None: nothing is."""
    if sum_bytes(data) == place.sum:
        return None
    return f"damaged (what device {name[0]} remembers: {place.size} bytes at {place.offset})"


def find_log_fault(path: Path, state: MemoryState) -> str | None:
    """What is wrong with the log that a snapshot points into; None: nothing is."""
    name = name_log(path, state.log)
    at = path.with_name(name)
    if not safe_files.has_file(path.parent, name):
        return f"{at}: 0 bytes, but {state.length} when the snapshot was taken" if state.length else None
    with safe_files.open_file(path.parent, name, "rb") as file, safe_files.naming(at, "read", SnapshotError):
        size = file.seek(0, os.SEEK_END)
        if size < state.length:
            return f"{at}: {size} bytes, but {state.length} when the snapshot was taken"
        for memory, place in state.places().items():
            file.seek(place.offset)
            if (fault := find_fault(memory, place, file.read(place.size))) is not None:
                return f"{at}: {fault}"
    return None


def read_log(path: Path, state: MemoryState) -> dict[Name, Tree]:
    """What devices remembered, from the log of a run that may be over, and which was found good."""
    log = safe_files.read_file(path.parent, name_log(path, state.log))
    places = state.places().items()
    return {name: snapshot.read(log[at : at + size], "cpu", path) for name, (at, size, _) in places}


def _list_logs(path: Path) -> list[int]:
    """The numbers of logs that are there."""
    form = re.compile(rf"{re.escape(path.stem)}(?:\.([1-9]\d*))?{re.escape(path.suffix)}")
    found = (form.fullmatch(name) for name in safe_files.list_names(path.parent, ""))
    return [int(match[1] or 0) for match in found if match]
