"""Where runs and comparisons lie below a folder; no link is followed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from potluck.experiment import folder

DEPTH = 8  # folders within folders
MOST = 2000  # runs


class Found(NamedTuple):
    """Folders by what they are; each with the age of its experiment's file, which tells a new one."""

    runs: dict[Path, int]
    comparisons: dict[Path, int]
    left_out: bool  # there are more runs than are shown


def find_below(root: Path) -> Found:
    """All runs and comparisons, the folder itself among them; nothing if it isn't there."""
    found = Found({}, {}, False)
    for path, age, is_run in _walk(root, 0):
        if is_run and len(found.runs) >= MOST:
            return found._replace(left_out=True)
        (found.runs if is_run else found.comparisons)[path] = age
    return found


def _walk(at: Path, depth: int) -> Iterator[tuple[Path, int, bool]]:
    try:
        with os.scandir(at) as listed:
            entries = {entry.name: entry for entry in listed}
        age = _find_age(entries.get(folder.EXPERIMENT))
    except OSError:  # gone, or not to be read
        return
    if age is not None and folder.PLAN in entries:
        yield at, age, True
        return
    if age is not None:
        yield at, age, False
    for name in sorted(entries):
        inner = not name.startswith(".") and depth < DEPTH
        if inner and entries[name].is_dir(follow_symlinks=False):
            yield from _walk(at / name, depth + 1)


def _find_age(entry: "os.DirEntry[str] | None") -> int | None:
    if entry is None or not entry.is_file(follow_symlinks=False):
        return None
    return entry.stat(follow_symlinks=False).st_mtime_ns
