"""Downloads: into `NAME.partial`, gone on with after an interruption, verified, and only then `NAME`."""

import errno
import fcntl
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from potluck.core.errors import ConfigError, DataError, nearest
from potluck.core.folders import find_cache_folder
from potluck.data.sources.catalogue import PUBLIC, File, Public

Watch = Callable[[int, int | None], None]  # bytes that are there, bytes in all if known

_BLOCK = 1 << 16
_TIMEOUT = 30.0  # seconds of silence


class _RefusedError(Exception):
    """Why an address didn't do; the next one may."""


def find_public(name: str) -> Public:
    """A set of the catalogue by name."""
    if name not in PUBLIC:
        raise ConfigError(f"data get {name!r}: no such public set; {nearest(name, list(PUBLIC))}")
    return PUBLIC[name]


def find_folder(name: str, root: Path | None = None) -> Path:
    """Where the files of a set go: below `root`, else below the user's cache."""
    return (find_cache_folder() if root is None else root.expanduser()) / find_public(name).folder


def fetch(file: File, folder: Path, watch: Watch | None = None) -> bool:
    """See to it that a folder has a file; whether it had to be downloaded for that."""
    target, partial = folder / file.name, folder / f"{file.name}.partial"
    try:
        if target.exists():
            _check_own(target, file)
            return False
        folder.mkdir(parents=True, exist_ok=True)
        with open(partial, "ab", buffering=0) as out:  # unbuffered: a full disk shows where it is written to
            _lock(out, partial)
            if target.exists():  # somebody else was quicker, and this file is no longer the partial one
                return False
            _check_space(folder, file, partial, out.tell())
            _download(file, out, partial, watch)
            os.fsync(out.fileno())
            _verify(file, partial)
            os.replace(partial, target)
    except OSError as error:
        raise _of_disk(error, error.filename or partial) from error
    return True


def _download(file: File, out: FileIO, partial: Path, watch: Watch | None) -> None:
    """All that is missing, from the first address that has it."""
    refusals: list[str] = []
    for address in file.addresses:
        try:
            _stream(address, file, out, watch or (lambda have, total: None))
            return
        except _RefusedError as error:
            refusals.append(f"{address} {error}")
    have = out.tell()
    if have:
        hint = f"the {have:,} bytes so far are kept, and the same command goes on from there"
    else:
        partial.unlink()
        hint = "is there a network, and is the address still right?"
    raise DataError(f"{file.name}: {'; '.join(refusals)}; {hint}")


def _stream(address: str, file: File, out: FileIO, watch: Watch) -> None:
    have = out.tell()
    if have and have == file.size:
        return
    headers = {"User-Agent": "potluck", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, headers=headers), timeout=_TIMEOUT
        ) as answer:
            resumed = answer.status == http.client.PARTIAL_CONTENT
            if resumed and not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                raise _RefusedError("sends another part than it was asked for")
            length = answer.headers.get("Content-Length", "")
            total = int(length) + (have if resumed else 0) if length.isdigit() else None
            if file.size is not None and total not in (None, file.size):
                raise _RefusedError(f"sends {total:,} bytes instead of {file.size:,}")
            if not resumed:  # it can't go on from the middle
                have = 0
                out.truncate(0)
                out.seek(0)
            total = total or file.size
            watch(have, total)
            while block := answer.read1(_BLOCK):  # what has come: less is lost if it breaks off
                have += len(block)
                if file.size is not None and have > file.size:
                    out.truncate(0)
                    out.seek(0)
                    raise _RefusedError(f"sends more than {file.size:,} bytes")
                _write(out, block)
                watch(have, total)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the checksum tells whether that is so
        raise _RefusedError(f"answers {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _RefusedError(f"can't be reached ({_why(error.reason)})") from None
    except (OSError, http.client.HTTPException) as error:
        raise _RefusedError(f"broke off after {have:,} bytes ({_why(error)})") from None
    if total is not None and have < total:
        raise _RefusedError(f"broke off after {have:,} of {total:,} bytes")


def _why(error: BaseException | str) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _write(out: FileIO, block: bytes) -> None:
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[out.write(rest) or 0 :]
    except OSError as error:  # told apart from the network's errors here
        raise _of_disk(error, Path(str(out.name))) from error


def _verify(file: File, partial: Path) -> None:
    found = _digest(partial)
    if found != file.sha256:
        partial.unlink()
        raise DataError(
            f"{file.name}: the download has SHA-256 {found}, not {file.sha256}, and was removed; "
            f"try again, and if it stays so, get the file elsewhere ({file.addresses[0]})"
        )


def _check_own(target: Path, file: File) -> None:
    if _digest(target) != file.sha256:  # perhaps packed anew; not ours to delete
        raise DataError(
            f"{target}: is there already, but isn't the published file (SHA-256 {file.sha256}); "
            f"keep it if it's yours, else remove it and try again"
        )


def _check_space(folder: Path, file: File, partial: Path, have: int) -> None:
    if file.size is not None and shutil.disk_usage(folder).free < file.size - have:
        raise _of_disk(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), partial)


def _lock(out: FileIO, partial: Path) -> None:
    try:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(f"{partial}: another process is downloading it; wait for that") from None


def _of_disk(error: OSError, path: Path | str) -> DataError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(f"{path}: the disk is full; make room and try again, which goes on, or use --root")
    return DataError(f"{path}: can't be written ({error.strerror or error})")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
