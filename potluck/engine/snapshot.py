"""Snapshots that survive `kill -9`: written whole or not at all, and checked before they are believed.

A snapshot is taken between two events and only looks. Order of writing: both logs reach the disk, the
snapshot goes to a temporary file, that reaches the disk, it is renamed, the folder reaches the disk.
"""

import hashlib
import os
from pathlib import Path
from typing import TypeVar

from potluck.core import codec
from potluck.core.errors import DecodeError, SnapshotError
from potluck.core.trees import Tree

DIGEST = 32
S = TypeVar("S")
KEPT = 3  # newest snapshots that stay: a damaged one must leave another


def write(folder: Path, serial: int, state: S) -> Path:
    """Store a state as the folder's snapshot number `serial`."""
    folder.mkdir(parents=True, exist_ok=True)
    body = codec.encode(state)
    path = folder / f"{serial:08d}.snapshot"
    temporary = path.with_suffix(".partial")
    with open(temporary, "wb") as file:
        file.write(hashlib.blake2b(body, digest_size=DIGEST).digest())
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    for old in _all(folder)[:-KEPT]:
        old.unlink()
    return path


def read_newest(folder: Path, kind: type[S], device: str = "cpu") -> tuple[int, S, list[str]]:
    """The newest good snapshot: its number, its state, and what was wrong with newer ones."""
    remarks: list[str] = []
    for path in reversed(_all(folder)):
        data = path.read_bytes()
        if hashlib.blake2b(data[DIGEST:], digest_size=DIGEST).digest() == data[:DIGEST]:
            state = read(data[DIGEST:], device, path)
            if not isinstance(state, kind):
                raise SnapshotError(f"{path}: holds no {kind.__name__}: put the old file back")
            return int(path.stem), state, remarks
        remarks.append(f"snapshot {path.name} is damaged or half-written: an earlier one is used")
    raise SnapshotError(f"{folder}: no good snapshot to resume from" + "".join(f"; {s}" for s in remarks))


def read(data: bytes, device: str, where: Path | str) -> Tree:
    """What a run stored; bytes that are as they were written, but can't be read, end the run."""
    try:
        return codec.decode(data, device)
    except DecodeError as error:
        fix = "use the version of Potluck and the code that wrote it, or run it again"
        raise SnapshotError(f"{where}: can't be read ({error}); {fix}") from error


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.snapshot"))
