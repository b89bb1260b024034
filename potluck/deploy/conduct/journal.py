"""The journal: what happened, on disk before anything follows from it.

One file since each snapshot. An entry is a small value, perhaps with the bytes that came with it: in the file
itself, or, if they are many, in a file of their own that the entry names. An entry that was cut short at the
file's end was never acted upon; anything else that doesn't fit its checksum is damage.
"""

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from potluck.core import codec, safe_files
from potluck.core.codec import value
from potluck.core.errors import SnapshotError, StorageError
from potluck.deploy.conduct.events import Happening

BODIES = "bodies"  # folder of what is too large to stand in a journal
INLINE = 64 << 10  # bytes
_FRONT = struct.Struct("<II16s")  # length of the entry, of the bytes behind it, checksum of both


@value(name="deploy.Entry", eq=False)
class Entry:
    """One line of a journal."""

    at: float  # one time for the whole event
    what: Happening
    stored: str | None = None  # the file that has its bytes


class Line(NamedTuple):
    """An entry with its bytes."""

    at: float
    what: Happening
    body: bytes


class Journal:
    """Appends to the file since one snapshot."""

    def __init__(self, folder: Path, serial: int) -> None:
        self.folder, self.serial, self.dirty = folder, serial, False
        self.file = safe_files.open_file(folder, name(serial), "ab")

    def append(self, at: float, what: Happening, body: bytes = b"") -> None:
        """Write an entry; it is on disk after `sync`."""
        stored = None
        if len(body) > INLINE:
            stored = hashlib.sha256(body).hexdigest()
            safe_files.write_file(self.folder, f"{_bodies(self.serial)}/{stored}", body)
            body = b""
        front = codec.encode(Entry(at, what, stored))
        with safe_files.naming(self.file.name, "written", StorageError):
            self.file.write(_FRONT.pack(len(front), len(body), _sum(front, body)) + front + body)
        self.dirty = True

    def sync(self) -> None:
        """See to it that what was appended is on disk."""
        if self.dirty:
            with safe_files.naming(self.file.name, "written", StorageError):
                self.file.flush()
                os.fsync(self.file.fileno())
            self.dirty = False

    def close(self) -> None:
        with safe_files.naming(self.file.name, "written", StorageError):
            self.file.close()


def name(serial: int) -> str:
    """Of the journal since a snapshot."""
    return f"journal-{serial:08d}.log"


def read(folder: Path, serial: int, *, cut: bool = True) -> Iterator[Line]:
    """All entries since a snapshot; the file is cut behind the last whole one, unless it is another's."""
    if not safe_files.has_file(folder, name(serial)):
        return
    data, at = safe_files.read_file(folder, name(serial)), 0
    while at + _FRONT.size <= len(data):
        front, behind, digest = _FRONT.unpack_from(data, at)
        begin = at + _FRONT.size
        end = begin + front + behind
        if end > len(data):
            break
        entry_bytes, body = data[begin : begin + front], data[begin + front : end]
        if _sum(entry_bytes, body) != digest:
            raise SnapshotError(f"{folder / name(serial)}: damaged at byte {at}; put the old file back")
        entry = codec.decode(entry_bytes)
        if not isinstance(entry, Entry):
            raise SnapshotError(f"{folder / name(serial)}: no entry at byte {at}; put the old file back")
        if entry.stored is not None:
            body = _read_stored(folder, f"{_bodies(serial)}/{entry.stored}", entry.stored)
        yield Line(entry.at, entry.what, body)
        at = end
    if cut and at < len(data):
        failing = safe_files.naming(folder / name(serial), "written", StorageError)
        with failing, safe_files.open_file(folder, name(serial), "a+b") as file:
            file.truncate(at)


def list_serials(folder: Path) -> list[int]:
    """The snapshots whose journals are there."""
    found = [n for n in safe_files.list_names(folder, "") if n.startswith("journal-") and n.endswith(".log")]
    return [int(n[8:-4]) for n in found if n[8:-4].isdigit()]


def remove_before(folder: Path, serial: int) -> None:
    """Delete journals that no snapshot needs any more."""
    for old in (n for n in list_serials(folder) if n < serial):
        for stored in safe_files.list_names(folder, _bodies(old)):
            safe_files.remove_file(folder, f"{_bodies(old)}/{stored}")
        safe_files.remove_file(folder, name(old))


def _bodies(serial: int) -> str:
    return f"{BODIES}/{serial:08d}"


def _read_stored(folder: Path, path: str, digest: str) -> bytes:
    body = safe_files.read_file(folder, path)
    if hashlib.sha256(body).hexdigest() != digest:
        raise SnapshotError(f"{folder / path}: damaged; put the old file back")
    return body


def _sum(front: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16, key=hashlib.blake2b(front, digest_size=16).digest()).digest()
