"""Snapshots that survive `kill -9`: written whole or not at all, and checked before they are believed.

A snapshot is taken between two events and only looks. Order of writing: both logs reach the disk, the
snapshot goes to a temporary file, that reaches the disk, it is renamed, the folder reaches the disk.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from potluck.core import codec, safe_files
from potluck.core.errors import DecodeError, SnapshotError
from potluck.core.trees import Tree

FOLDER = "snapshots"  # in a run's folder
DIGEST = 32
S = TypeVar("S")
KEPT = 3  # newest snapshots that stay: a damaged one must leave another


def write(run: Path, serial: int, state: S) -> Path:
    """Store a state as snapshot number `serial` of a run's folder."""
    body = codec.encode(state)
    name = f"{FOLDER}/{serial:08d}.snapshot"
    safe_files.write_file(run, name, hashlib.blake2b(body, digest_size=DIGEST).digest(), body)
    for old in list_all(run)[:-KEPT]:
        safe_files.remove_file(run, old)
    return run / name


def read_newest(
    run: Path, kind: type[S], device: str = "cpu", find_fault: Callable[[S], str | None] = lambda _: None
) -> tuple[int, S, list[str]]:
    """The newest good snapshot: its number, its state, and what was wrong with newer ones.

    `find_fault` says what is wrong with the logs that a snapshot needs: an earlier one may need less of them.
    """
    notices: list[str] = []
    for name in reversed(list_all(run)):
        data, path = safe_files.read_file(run, name), run / name
        if hashlib.blake2b(data[DIGEST:], digest_size=DIGEST).digest() == data[:DIGEST]:
            state = read(data[DIGEST:], device, path)
            if not isinstance(state, kind):
                raise SnapshotError(f"{path}: holds no {kind.__name__}: put the old file back")
            if (fault := find_fault(state)) is None:
                return int(path.stem), state, [f"{notice}: an earlier one is used" for notice in notices]
            notices.append(f"snapshot {path.name} can't be used, since {fault}")
        else:
            notices.append(f"snapshot {path.name} is damaged or half-written")
    fix = "put the old files back, or run it again"
    raise SnapshotError("; ".join([f"{run}: no good snapshot to resume from", *notices, fix]))


def list_all(run: Path) -> list[str]:
    """The snapshots of a run's folder, oldest first, by their names below it."""
    found = safe_files.list_names(run, FOLDER)
    return [f"{FOLDER}/{name}" for name in found if re.fullmatch(r"\d{8}\.snapshot", name)]


def read(data: bytes, device: str, where: Path | str) -> Tree:
    """What a run stored; bytes that are as they were written, but can't be read, end the run."""
    try:
        return codec.decode(data, device)
    except DecodeError as error:
        fix = "use the version of Potluck and the code that wrote it, or run it again"
        raise SnapshotError(f"{where}: can't be read ({error}); {fix}") from error
