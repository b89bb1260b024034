"""Files in a folder that somebody else may have made: nothing in it is read or written through a link.

The folder of a run is data. A link in it would let whoever made it choose which file of the reader's is
overwritten, so every folder below it, and the file itself, is opened by descriptor, and a link is refused by
name. The folder's own path is the user's choice and may be a link, or lead through some.

Files are named by a folder and by a name below it, such as "models/all.safetensors".
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal

from potluck.core.errors import SnapshotError, StorageError
from potluck.core.room import free_memory
from potluck.core.units import size

LARGE = 64 << 20  # bytes of a file for which it is asked whether there is room
_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # or a pipe would be waited for, before it is refused
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def has_file(root: Path, name: str) -> bool:
    """Whether there is such a file; a link, or what is no plain file, is refused."""
    *above, last = PurePosixPath(name).parts
    try:
        with _open_folder(root, above) as folder:
            _refuse_unless(stat.S_ISREG, folder, last, root / name, "file")
            return _find_mode(folder, last) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def list_names(root: Path, name: str) -> list[str]:
    """What a folder holds, sorted; nothing if there is no such folder."""
    try:
        with _open_folder(root, PurePosixPath(name).parts) as folder:
            return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def read_file(root: Path, name: str) -> bytes:
    """The content of a file; one for which there is no room is refused before anything is read."""
    with naming(root / name, "read", SnapshotError), open_file(root, name, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        if length > LARGE and length > (free := free_memory()):
            why = f"{size(length)}, and {size(free)} of memory can be had here"
            raise SnapshotError(f"{root / name}: {why}; put the old file back, or run it again")
        return file.read()


def write_file(root: Path, name: str, *parts: bytes) -> None:
    """Another content for a file: whole or not at all, also if the power goes; folders are made for it.

    Order of writing: the content goes to a temporary file beside it, that reaches the disk, it is renamed,
    the folder reaches the disk. A temporary file that can't be finished is removed.
    """
    *above, last = PurePosixPath(name).parts
    temporary = f".{last}.partial"
    with naming(root / name, "written", StorageError), _open_folder(root, above, make=True) as folder:
        _refuse_unless(stat.S_ISREG, folder, last, root / name, "file")
        beside = (root / name).with_name(temporary)
        _refuse_unless(stat.S_ISREG, folder, temporary, beside, "file")
        with contextlib.suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(temporary, dir_fd=folder)
        try:
            with open(beside, "xb", opener=_open_at(folder, temporary, beside)) as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)


def copy_anew(root: Path, name: str) -> None:
    """The same content in another file of this name: whoever has the old one open writes into nothing."""
    partial = f".{name}.partial"
    remove_file(root, partial)
    with (
        naming(root / name, "written", StorageError),
        open_file(root, name, "rb") as old,
        open_file(root, partial, "ab") as new,
    ):
        shutil.copyfileobj(old, new, LARGE)
        new.flush()
        os.fsync(new.fileno())
        os.replace(root / partial, root / name)


def open_file(root: Path, name: str, mode: Literal["rb", "ab", "a+b"]) -> BinaryIO:
    """An open file of a folder; whoever reads or writes it names it if that fails (`naming`)."""
    *above, last = PurePosixPath(name).parts
    failing = naming(root / name, *(("read", SnapshotError) if mode == "rb" else ("written", StorageError)))
    with failing, _open_folder(root, above) as folder:
        return open(root / name, mode, opener=_open_at(folder, last, root / name))


def remove_file(root: Path, name: str) -> None:
    """Delete a file, if it is there."""
    *above, last = PurePosixPath(name).parts
    missing, failing = contextlib.suppress(FileNotFoundError), naming(root / name, "deleted", StorageError)
    with failing, missing, _open_folder(root, above) as folder:
        os.unlink(last, dir_fd=folder)


def sync_folder(folder: Path) -> None:
    """See to it that what a folder has been given or has lost is on disk."""
    with naming(folder, "written", StorageError), _open_folder(folder, ()) as descriptor:
        os.fsync(descriptor)


def check_entries(root: Path, name: str, entries: Sequence[str]) -> None:
    """Refuse links among these entries of a folder, before anything is computed in it."""
    missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
    with missing, _open_folder(root, PurePosixPath(name).parts) as folder:
        for entry in entries:
            mode = _find_mode(folder, entry)
            if mode is not None and stat.S_ISLNK(mode):
                raise _refuse_link(root / name / entry)


@contextmanager
def naming(path: Path | str, what: str, kind: type[SnapshotError | StorageError]) -> Iterator[None]:
    """Say in one line which file it was that couldn't be read or written, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise explain_failure(error, path, what, kind) from None


def explain_failure(
    error: OSError, path: Path | str, what: str, kind: type[SnapshotError | StorageError]
) -> SnapshotError | StorageError:
    """The error to raise when the system refuses to read or write a file."""
    if isinstance(error, FileNotFoundError) and what == "read":
        return kind(f"{path}: missing; put it back, or run it again")
    fix = "make room" if error.errno in _FULL else "see to it that it can be"
    return kind(f"{path}: can't be {what} ({error.strerror}); {fix}")


@contextmanager
def _open_folder(root: Path, below: Sequence[str], make: bool = False) -> Iterator[int]:
    """The descriptor of a folder: the root as the user names it, those below it without following links."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        at = root
        for part in below:
            at = at / part
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            _refuse_unless(stat.S_ISDIR, folder, part, at, "folder")
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _open_at(folder: int, name: str, path: Path) -> Callable[[str, int], int]:
    """How `open` is to open a file: in a folder that is open already, and only if it is a plain one."""

    def opener(_: str, flags: int) -> int:
        _refuse_unless(stat.S_ISREG, folder, name, path, "file")
        return os.open(name, flags | _PLAIN, 0o666, dir_fd=folder)

    return opener


def _refuse_unless(fits: Callable[[int], bool], folder: int, name: str, path: Path, wanted: str) -> None:
    """Refuse a link, and what is something else than wanted; what isn't there may be made."""
    mode = _find_mode(folder, name)
    if mode is None or fits(mode):
        return
    if stat.S_ISLNK(mode):
        raise _refuse_link(path)
    raise SnapshotError(f"{path}: not a plain {wanted}; delete it, or put the {wanted} there")


def _refuse_link(path: Path) -> SnapshotError:
    return SnapshotError(
        f"{path}: a symbolic link, and none is followed in a run's folder; put what it names in its place, "
        "or delete it"
    )


def _find_mode(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
