"""Large bodies on their way, as files: those that wait for devices, by content, and pieces of reports.

Nothing here has to last: a hub begins with an empty folder.
"""

import hashlib
import os
import threading
from collections.abc import Collection
from pathlib import Path

from potluck.core import safe_files
from potluck.core.errors import StorageError
from potluck.core.messages import Node

SPARE = 4  # bodies that are kept though nobody waits for them: the next may be the same


class Blobs:
    """The folder of a hub."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, threading.Lock()
        self.stored: dict[str, None] = {}
        self.fresh: set[str] = set()  # whose parcels aren't posted yet
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()

    def store(self, body: bytes) -> str:
        """Keep a body; its name."""
        name = hashlib.sha256(body).hexdigest()
        with self.lock:
            self.fresh.add(name)
            known = name in self.stored
        if not known:
            partial = self.folder / f".{name}.partial"
            with safe_files.naming(self.folder / name, "written", StorageError):
                partial.write_bytes(body)
                os.replace(partial, self.folder / name)
            with self.lock:
                self.stored[name] = None
        return name

    def forget(self, posted: Collection[str], wanted: Collection[str]) -> None:
        """Parcels of these are posted now; what nobody waits for may go, but for the newest."""
        with self.lock:
            self.fresh.difference_update(posted)
            spare = [name for name in self.stored if name not in wanted and name not in self.fresh]
            for name in spare[:-SPARE]:
                del self.stored[name]
                (self.folder / name).unlink(missing_ok=True)

    def find(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.is_file() else None


class Pieces:
    """What has come of one device's report: on disk, since it may be large and its device slow."""

    def __init__(self, folder: Path, node: Node, most: int) -> None:
        self.folder, self.node, self.most = folder, node, most
        self.sizes: dict[str, int] = {}
        self.spilled = False  # there was more than there may be

    def add(self, name: str, data: bytes) -> bool:
        """Keep a piece; False if that is too much."""
        if sum(self.sizes.values()) - self.sizes.get(name, 0) + len(data) > self.most:
            self.clear()
            self.spilled = True
            return False
        self._find(name).write_bytes(data)
        self.sizes[name] = len(data)
        return True

    def read(self, names: list[str]) -> list[bytes]:
        return [self._find(name).read_bytes() for name in names]

    def clear(self) -> None:
        for name in self.sizes:
            self._find(name).unlink(missing_ok=True)
        self.sizes.clear()
        self.spilled = False

    def _find(self, name: str) -> Path:
        return self.folder / f"{self.node}-{name}"
