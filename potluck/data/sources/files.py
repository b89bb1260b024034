"""Where data files are looked for, and what is said when they are damaged or missing."""

import gzip
import math
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from potluck.core.errors import DataError
from potluck.core.folders import find_cache_folder
from potluck.data.sources.allowance import Allowance

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


def read_bytes(path: Path, allowance: Allowance | None = None, most: float = math.inf) -> bytes:
    """A file's content, or its first bytes, unpacked where its name ends in .gz."""
    allowance = allowance or Allowance(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return allowance.read(stream, most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: not a whole gzip file ({path.stat().st_size} bytes, {error}); copy or download it again"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror})") from error
