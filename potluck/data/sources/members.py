"""Sets that come as many files: in a folder, a tar or a zip, read where they are.

Nothing is unpacked to disk, so a file in an archive can't be written outside of it.
"""

import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from potluck.core.errors import DataError
from potluck.data.sources.allowance import Allowance, AllowedStream
from potluck.data.sources.files import read_bytes

_BROKEN = (zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError)  # of the modules that these use


def read_members(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The named files, whatever folder of the archive they are in: names are ends of paths."""
    allowance = Allowance(path)
    try:
        if path.is_dir():
            found = {name: read_bytes(path / name, allowance) for name in names if (path / name).is_file()}
        elif path.suffix == ".zip":
            with path.open("rb") as file:
                found = _from_zip(file, names, allowance)
        else:
            found = _from_tar(path, names, allowance)
    except (tarfile.TarError, zipfile.BadZipFile, *_BROKEN) as error:
        raise DataError(f"{path}: not a whole archive ({error}); copy or download it again") from error
    except (RuntimeError, NotImplementedError) as error:  # zipfile's words for passwords and odd methods
        raise DataError(f"{path}: can't be read ({error})") from error
    except OSError as error:  # gzip's own errors are some of these
        raise DataError(f"{path}: can't be read ({error.strerror or error})") from error
    missing = next((name for name in names if name not in found), None)
    if missing is not None:
        raise DataError(f"{path}: has no {missing}; it isn't whole, so copy or download it again")
    return found


def _from_tar(path: Path, names: Sequence[str], allowance: Allowance) -> dict[str, bytes]:
    """What a member's header says is never believed: no more is read than is allowed in all."""
    found: dict[str, bytes] = {}
    with gzip.open(path) as unpacked:
        stream = AllowedStream(unpacked, allowance)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = _match(member.name, names)
                # A sparse file is as large as it says, whatever is there.
                content = archive.extractfile(member) if name and member.isfile() else None
                if name and content and not member.issparse():
                    found[name] = content.read()
        while stream.read(1 << 20):
            pass  # to its end, where gzip has its checksum
    return found


def _from_zip(
    file: IO[bytes], names: Sequence[str], allowance: Allowance, depth: int = 1
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            if name := _match(member, names):
                found[name] = _read_packed(archive, member, allowance)
        inner = [member for member in archive.namelist() if member.endswith(".zip")]
        if not found and inner and depth:  # UCI publishes a zip in a zip
            return _from_zip(
                io.BytesIO(_read_packed(archive, inner[0], allowance)), names, allowance, depth - 1
            )
    return found


def _read_packed(archive: zipfile.ZipFile, member: str, allowance: Allowance) -> bytes:
    with archive.open(member) as stream:
        return allowance.read(stream)


def _match(member: str, names: Iterable[str]) -> str | None:
    return next((name for name in names if f"/{member}".endswith(f"/{name}")), None)
