"""Who computes a run: a file in its folder, `.computing`, for machines that share the folder.

The lock of the system, beside it, ends with its process, but not every file system tells other machines of a
lock. The claim is made by whoever is first, and touched with every snapshot. Who finds another's may take it
over if that process is dead, which only its own machine knows (by the lock, or by the process's number), or
if it gave no sign of life for as long as the claim says. How long that is, the file system's clock tells:
those of machines differ.

A process that slept meanwhile finds at its next snapshot that the claim isn't its own, and writes no more.
What it wrote before it looked went into files that are no longer there: see `_part_from_former`.
"""

import contextlib
import json
import os
import platform
import re
import secrets
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, TypedDict

from potluck.core import safe_files
from potluck.core.errors import ClaimError, ConfigError, SnapshotError, StorageError
from potluck.core.units import duration
from potluck.experiment import json_files
from potluck.experiment.launch.hardware import identify_machine

NAME = ".computing"
PATIENCE = 120.0  # seconds without a sign of life until a claim is stale, at least
_TRIES = 3  # others may come and go between two calls
_LOGS = re.compile(r"records\.jsonl|keep(\.\d+)?\.log")


class Owner(TypedDict):
    """What a claim says."""

    host: str  # its name
    machine: str  # that, and when it was started
    space: str  # the same for processes that see each other: containers of one machine don't
    process: int
    began: str  # when that process did: their numbers come again
    patience: float | None  # seconds without a sign of life after which others may take over; None: never


class _Found(NamedTuple):
    content: bytes
    owner: Owner | None  # None: half-written, or no claim at all
    age: float  # seconds since the last sign of life


class Claim:
    """This process's claim on a run."""

    def __init__(self, folder: Path, content: bytes, patience: float | None, former: str) -> None:
        self.folder, self.content, self.patience = folder, content, patience
        self.former = former  # whose it was, in words, if it was taken over from another machine
        self.renewed = time.monotonic()

    def look(self) -> None:
        """Between any two events: after a long sleep nothing is written before the claim was looked at."""
        if self.patience is not None and time.monotonic() - self.renewed >= self.patience / 2:
            self.renew()

    def renew(self) -> None:
        """Give a sign of life, or end: it is somebody else's now."""
        there = _read(self.folder)
        if there != self.content:
            owner = None if there is None else _parse(there)
            who = "another process" if owner is None else tell_owner(owner)
            raise ClaimError(
                f"{self.folder}: taken over by {who}, since this process gave no sign of life for a while; "
                "it writes nothing more there"
            )
        with safe_files.naming(self.folder / NAME, "written", StorageError):
            os.utime(self.folder / NAME)
        self.renewed = time.monotonic()

    def release(self) -> None:
        """Remove it, if it is still this process's."""
        with contextlib.suppress(OSError, SnapshotError, StorageError):
            if _read(self.folder) == self.content:
                safe_files.remove_file(self.folder, NAME)


def take(folder: Path, patience: float | None, locked: bool) -> Claim:
    """Claim a run for this process; refused if another one has it. `locked`: it has the system's lock."""
    process = os.getpid()
    own: Owner = {
        "host": platform.node(),
        "machine": identify_machine(),
        "space": _find_space(),
        "process": process,
        "began": _find_beginning(process),
        "patience": patience,
    }
    content, former = json.dumps(own).encode(), ""
    for _ in range(_TRIES):
        if _make(folder, content):
            if former:
                _part_from_former(folder)
            return Claim(folder, content, patience, former)
        found = _find(folder)
        if found is None:
            continue  # it has just been released
        if _is_kept(found, locked):
            raise refuse(folder, found.owner)
        if _remove(folder, found) and not _is_of_here(found.owner):
            former = f"{tell_owner(found.owner)}, which gave no sign of life for {duration(found.age)}"
    raise refuse(folder, None)


def refuse(folder: Path, owner: Owner | None) -> ConfigError:
    """What to tell whoever wants to compute a run that another process has."""
    who = "" if owner is None else f" ({tell_owner(owner)})"
    fix = "wait until it has ended, or end it first"
    if owner is not None and not _is_of_here(owner):
        limit = owner["patience"]
        later = "" if limit is None else f", and {duration(limit)} later this can go on here"
        fix = f"wait until it has ended, or end it there{later}"
        if limit is None:
            fix = f"{fix}; if there is no such process any more, delete {folder / NAME}"
    return ConfigError(f"{folder}: another process is computing this run{who}; {fix}")


def find_owner(folder: Path) -> Owner | None:
    """Who claims a run, if that can be told."""
    content = _read(folder)
    return None if content is None else _parse(content)


def tell_owner(owner: Owner | None) -> str:
    return "a process" if owner is None else f"process {owner['process']} on {owner['host']}"


def _part_from_former(folder: Path) -> None:
    """Give a run logs of its own: its former owner may sleep, and still have the old ones open."""
    for name in safe_files.list_names(folder, ""):
        if _LOGS.fullmatch(name):
            safe_files.copy_anew(folder, name)


def _is_kept(found: _Found, locked: bool) -> bool:
    """Whether the process that has a claim must be believed to live."""
    owner = found.owner
    if owner is not None and _is_of_here(owner):
        if locked:
            return False  # else it would have the lock
        if owner["space"] == _find_space():
            return _is_alive(owner["process"], owner["began"])
    limit = PATIENCE if owner is None else owner["patience"]
    return limit is None or found.age < limit


def _is_of_here(owner: Owner | None) -> bool:
    return owner is not None and owner["machine"] == identify_machine()


def _is_alive(process: int, began: str) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return _find_beginning(process) == began


def _find_space() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _find_beginning(process: int) -> str:
    """When a process began, in its machine's own ticks; nothing where that can't be asked."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _make(folder: Path, content: bytes) -> bool:
    """Make the claim, unless there is one."""
    path = folder / NAME
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return False
    except OSError as error:
        raise safe_files.explain_failure(error, path, "written", StorageError) from None
    try:
        with safe_files.naming(path, "written", StorageError):
            os.write(file, content)
    except BaseException:
        safe_files.remove_file(folder, NAME)
        raise
    finally:
        os.close(file)
    return True


def _read(folder: Path) -> bytes | None:
    if not safe_files.has_file(folder, NAME):
        return None
    try:
        return safe_files.read_file(folder, NAME)
    except SnapshotError:
        return None  # gone since


def _find(folder: Path) -> _Found | None:
    """The claim that there is, and how old it is by the file system's clock."""
    content = _read(folder)
    if content is None:
        return None
    with (
        safe_files.naming(folder / NAME, "written", StorageError),
        tempfile.NamedTemporaryFile(dir=folder, prefix=f"{NAME}.", suffix=".partial") as beside,
    ):
        now = os.fstat(beside.fileno()).st_mtime
        try:
            age = now - (folder / NAME).lstat().st_mtime
        except FileNotFoundError:
            return None  # released meanwhile
    return _Found(content, _parse(content), max(0.0, age))


def _parse(content: bytes) -> Owner | None:
    try:
        read = json_files.parse(content, Path(NAME), "")
        return json_files.make(read, Owner, Path(NAME), "") if isinstance(read, dict) else None
    except SnapshotError:
        return None


def _remove(folder: Path, found: _Found) -> bool:
    """Remove this very claim; if somebody else was faster, that one's is put back."""
    aside = folder / f"{NAME}.{identify_machine()}-{os.getpid()}-{secrets.token_hex(4)}.partial"
    try:
        os.rename(folder / NAME, aside)
    except FileNotFoundError:
        return False
    same = aside.read_bytes() == found.content
    if not same:
        with contextlib.suppress(OSError):
            os.link(aside, folder / NAME)
    aside.unlink(missing_ok=True)
    return same
