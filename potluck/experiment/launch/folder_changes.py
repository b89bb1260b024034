"""What changes in a run's folder while it is computed elsewhere, and how that comes into the folder here.

Logs travel by the bytes that were added, all else whole, when it has changed. The order of reading is that of
writing: logs first, the snapshot that says how long they are after them. So wherever this breaks off, here or
there, what has arrived can be resumed from.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from potluck.core import safe_files
from potluck.core.errors import SnapshotError, StorageError
from potluck.engine import snapshot
from potluck.experiment import folder
from potluck.simulate.run_state import RECORDS

_GROWS = re.compile(rf"{re.escape(RECORDS)}|{re.escape(folder.PULSE)}|keep(\.\d+)?\.log")
_TRIES = 5  # readings of a folder in which files go while it is read


class Changes(NamedTuple):
    """What is new in a folder, and what is no longer there."""

    files: Mapping[str, tuple[int, bytes]]  # by name: from which byte on, and what
    gone: tuple[str, ...] = ()

    @property
    def has_snapshot(self) -> bool:
        return any(map(_is_snapshot, self.files))


class FolderChanges:
    """Tells what has changed in a folder since it was asked last."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.known: dict[str, tuple[int, int]] = {}  # by name: length and time of what was told

    def list_new(self) -> Changes:
        """Files that are new or have changed; of snapshots the newest."""
        for _ in range(_TRIES - 1):
            try:
                return self._list_new()
            except FileNotFoundError:  # a snapshot, or a log, of which newer ones have taken the place
                continue
        return self._list_new()

    def mark_sent(self) -> None:
        """What is there was put there: it has come from who would be told. But a run that goes on cuts its
        logs to what its snapshot knows, so these are told whole."""
        self._list_new()
        self.known = {name: (0, 0) if _GROWS.fullmatch(name) else about for name, about in self.known.items()}

    def _list_new(self) -> Changes:
        files: dict[str, tuple[int, bytes]] = {}
        known: dict[str, tuple[int, int]] = {}
        snapshots = snapshot.list_all(self.place)
        for name in [*_list_files(self.place), *snapshots[-1:]]:
            stat = (self.place / name).stat()
            about, before = (stat.st_size, stat.st_mtime_ns), self.known.get(name, (0, 0))
            known[name] = about
            if about == before:
                continue
            start = before[0] if _GROWS.fullmatch(name) and stat.st_size >= before[0] else 0
            with open(self.place / name, "rb") as file:
                file.seek(start)
                content = file.read(stat.st_size - start) if _GROWS.fullmatch(name) else file.read()
            files[name] = start, content
        gone = (name for name in self.known if name not in known and not _is_snapshot(name))
        self.known, told = known, tuple(gone)
        return Changes(files, told)


def read_all(place: Path) -> Changes:
    """All that a run needs to go on elsewhere."""
    return FolderChanges(place).list_new()


def write_changes(place: Path, changes: Changes) -> None:
    """Bring a folder up to date: logs first, the snapshot that needs them, what tells of its end last."""
    for name in sorted(changes.files, key=_find_turn):
        _check_name(place, name)
        start, content = changes.files[name]
        if start:
            _add(place, name, start, content)
        else:
            safe_files.write_file(place, name, content)
    for old in snapshot.list_all(place)[: -snapshot.KEPT]:
        safe_files.remove_file(place, old)
    for name in changes.gone:
        _check_name(place, name)
        safe_files.remove_file(place, name)


def _add(place: Path, name: str, start: int, content: bytes) -> None:
    """Go on with a log from a byte that it has."""
    with (
        safe_files.open_file(place, name, "a+b") as file,
        safe_files.naming(place / name, "written", StorageError),
    ):
        if file.seek(0, os.SEEK_END) < start:
            raise SnapshotError(f"{place / name}: was cut while its run was computed; run it again")
        file.truncate(start)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _list_files(place: Path) -> list[str]:
    """All files of a folder but snapshots, logs first; what begins with a dot is half-written, or a lock."""
    found = (path.relative_to(place) for path in place.rglob("*") if path.is_file())
    names = (str(path) for path in found if not any(part.startswith(".") for part in path.parts))
    return sorted((name for name in names if Path(name).parts[0] != snapshot.FOLDER), key=_find_turn)


def _find_turn(name: str) -> tuple[int, str]:
    if _GROWS.fullmatch(name):
        return 0, name
    return 3 if name in (folder.SUMMARY, folder.FAILED) else 2 if _is_snapshot(name) else 1, name


def _is_snapshot(name: str) -> bool:
    return name.startswith(f"{snapshot.FOLDER}/")


def _check_name(place: Path, name: str) -> None:
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise SnapshotError(f"{place}: {name!r} is no name of a file in it")
