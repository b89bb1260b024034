"""Where data files are looked for, and what is said when they are damaged or missing."""

import gzip
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import DataError
from potluck.core.folders import find_cache_folder

ROOT_HINT = "say where it is by data.root or $POTLUCK_DATA"


def list_places(root: Path | None, path: str) -> list[Path]:
    """Where `path` may be: under `root` and nowhere else if given, else nearest first.

    That is $POTLUCK_DATA, ./data, the working directory and the user's cache, which `potluck data get` fills.
    """
    if root is not None:  # a wrong root is an error, never a reason to take other data
        return [Path(root).expanduser() / path]
    chosen = [Path(os.environ["POTLUCK_DATA"]).expanduser()] if os.environ.get("POTLUCK_DATA") else []
    looked = [
        place / Path(path).expanduser() for place in (*chosen, Path("data"), Path(), find_cache_folder())
    ]
    return list(dict.fromkeys(looked))  # an absolute path is one place, whatever it is joined to


def find(source: str, root: Path | None, folder: str, entries: Sequence[str], origin: str) -> Path:
    """The first of the entries that is there: of the nearest place, in its folder or beside that."""
    looked = list_places(root, folder)
    for place, above in zip(looked, list_places(root, ""), strict=True):
        for path in (base / entry for base in (place, above) for entry in entries):
            if path.exists():
                return path
    raise describe_absence(source, ", ".join(entries), looked, origin)


def describe_absence(source: str, what: str, looked: Sequence[Path], origin: str) -> DataError:
    """What is said when a set isn't there: what was looked for and where, and how to come by it."""
    return DataError(f"{source}: no {what} in {join_paths(looked)}; {origin}, or {ROOT_HINT}")


def join_paths(paths: Sequence[Path]) -> str:
    """Paths as an error message names them."""
    return " or ".join(str(path.absolute()) for path in paths)


def read_bytes(path: Path) -> bytes:
    """A file's content, unpacked where its name ends in .gz."""
    try:
        packed = path.read_bytes()
        return gzip.decompress(packed) if path.suffix == ".gz" else packed
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: not a whole gzip file ({len(packed)} bytes, {error}); copy or download it again"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror})") from error


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, NDArray[np.generic]]:
    """The named arrays of an .npz file. Pickled objects are refused: they could run code."""
    try:
        content = np.load(path, allow_pickle=False)
        if not isinstance(content, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: holds one bare array; write it with numpy.savez(path, x=..., y=...)")
        with content:
            missing = [name for name in required if name not in content]
            if missing:
                raise DataError(f"{path}: has no array {missing[0]!r}, only {', '.join(content) or 'none'}")
            return {name: content[name] for name in (*required, *optional) if name in content}
    except (ValueError, EOFError, SyntaxError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        fix = "write it anew with numpy.savez(path, x=..., y=...)"
        raise DataError(f"{path}: not a whole .npz file of plain arrays; {fix}") from error
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror or error})") from error
