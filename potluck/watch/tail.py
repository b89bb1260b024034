"""What is new in a log that another process writes: every whole line once.

A last line that is cut off is waited for. A log that becomes shorter, or is another file than before, belongs
to a run that was resumed or begun anew: it is read from its beginning again.
"""

import os
from pathlib import Path
from typing import NamedTuple

from potluck.core import safe_files
from potluck.core.errors import SnapshotError

PIECE = 4 << 20  # bytes that are read at a time, and the longest line


class Piece(NamedTuple):
    """What one look has found."""

    lines: list[bytes]
    again: bool = False  # it begins anew: forget what was read before
    more: bool = False  # there is more already


class Tail:
    """Reads on where it was."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.at = 0  # bytes that were read
        self.file: tuple[int, int] | None = None  # which file that was

    def read(self) -> Piece:
        """Lines that have come since the last look."""
        if not safe_files.has_file(self.folder, self.name):
            return self._begin(None)
        with safe_files.open_file(self.folder, self.name, "rb") as log:
            found = os.fstat(log.fileno())
            file = (found.st_dev, found.st_ino)
            again = False
            if file != self.file or found.st_size < self.at:
                again = self._begin(file).again
            log.seek(self.at)
            read = log.read(PIECE)
        whole = read.rfind(b"\n") + 1
        if whole == 0 and len(read) == PIECE:
            raise SnapshotError(f"{self.folder / self.name}: a line is longer than {PIECE:,} bytes")
        self.at += whole
        return Piece(read[:whole].split(b"\n")[:-1], again, len(read) == PIECE)

    def forget(self) -> None:
        """Read from the beginning the next time."""
        self.at = 0

    def _begin(self, file: tuple[int, int] | None) -> Piece:
        again, self.at, self.file = self.file is not None, 0, file
        return Piece([], again)
