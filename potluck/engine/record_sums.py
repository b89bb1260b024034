"""Checksums of a run's records, in a file beside them: damage and edits are found before they are believed.

Each line says how long the records were at a snapshot, and the sha256 of all that was written by then:
`head -c BYTES records.jsonl | sha256sum` gives the same. Order of writing: the records reach the disk, then
their checksum, then the snapshot. So every snapshot has its line, and a line may have no snapshot.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from potluck.core import safe_files
from potluck.core.errors import SnapshotError
from potluck.engine import snapshot

_LINE = re.compile(rb"(\d{1,18}) ([0-9a-f]{64})")
_PIECE = 1 << 20  # bytes that are read at a time


class RecordSums:
    """The checksum of all that is written, and what it was at the last snapshots."""

    def __init__(self, path: Path) -> None:
        self.path = path  # of the records
        self.running = hashlib.sha256()
        self.at: dict[int, str] = {}  # by length of the records

    def add(self, line: bytes) -> None:
        self.running.update(line)

    def write(self, length: int) -> None:
        """Remember the checksum of records that are on disk."""
        digest = self.running.hexdigest()
        if self.at.get(length) != digest:
            kept = [*self.at.items(), (length, digest)][-snapshot.KEPT - 1 :]  # one may get no snapshot
            self._store(dict(kept))

    def cut(self, length: int) -> None:
        """Go back to records of a length."""
        known = _read(self.path)
        self.at = {size: digest for size, digest in known.items() if size <= length}
        if self.at != known:
            self._store(self.at)
        self.running = hashlib.sha256()
        for piece in _read_pieces(self.path, length):
            self.running.update(piece)

    def _store(self, at: dict[int, str]) -> None:
        text = "".join(f"{length} {digest}\n" for length, digest in at.items())
        safe_files.write_file(self.path.parent, name_sums(self.path), text.encode())
        self.at = at


def name_sums(path: Path) -> str:
    """The name of the file beside records."""
    return path.with_suffix(".sums").name


def find_fault(path: Path, length: int | None = None) -> str | None:
    """What is wrong with records up to a length, or to that of the last checksum; None: nothing is."""
    known = _read(path)
    length = max(known, default=0) if length is None else length
    if length == 0 and not known:
        return None  # it was killed before the first snapshot, or has none yet
    if length not in known:
        return f"{path.with_suffix('.sums')}: has no checksum of {length} bytes"
    size = _find_size(path)
    if size < length:
        return f"{path}: {size} bytes, but {length} when the snapshot was taken"
    digest = hashlib.sha256()
    for piece in _read_pieces(path, length):
        digest.update(piece)
    if digest.hexdigest() != known[length]:
        return f"{path}: damaged or edited (its checksum isn't that of {name_sums(path)})"
    return None


def find_lengths(path: Path) -> tuple[int, int]:
    """Bytes that the last checksum is of, and bytes that there are; of a run that has ended, as many."""
    return max(_read(path), default=0), _find_size(path)


def _read(path: Path) -> dict[int, str]:
    """Checksums by length; none if there are none."""
    name = name_sums(path)
    if not safe_files.has_file(path.parent, name):
        return {}
    found = {}
    for line in safe_files.read_file(path.parent, name).splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise SnapshotError(f"{path.with_name(name)}: damaged; put the old file back, or run it again")
        found[int(match[1])] = match[2].decode()
    return found


def _find_size(path: Path) -> int:
    if not safe_files.has_file(path.parent, path.name):
        return 0
    with safe_files.open_file(path.parent, path.name, "rb") as file:
        return file.seek(0, 2)


def _read_pieces(path: Path, length: int) -> Iterator[bytes]:
    """The first bytes of a file."""
    with (
        safe_files.naming(path, "read", SnapshotError),
        safe_files.open_file(path.parent, path.name, "rb") as file,
    ):
        while length and (piece := file.read(min(length, _PIECE))):
            yield piece
            length -= len(piece)
