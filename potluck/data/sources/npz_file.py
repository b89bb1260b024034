"""Arrays from an .npz file, whose headers are compared with what is there before any memory is taken."""

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from potluck.core.errors import DataError
from potluck.data.sources.allowance import Allowance

_FIX = "write it anew with numpy.savez(path, x=..., y=...)"
_DEFLATED = 1032  # times as much as it takes packed, at the very most
# What zipfile, its unpackers and NumPy's parser raise for bytes that they don't understand.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    EOFError,
    ValueError,
    SyntaxError,
    RuntimeError,
)


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, NDArray[np.generic]]:
    """The named arrays of an .npz file. Pickled objects are refused: they could run code."""
    try:
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise DataError(
                    f"{path}: holds one bare array; write it with numpy.savez(path, x=..., y=...)"
                )
            with _open_zip(path, file) as archive:
                return _read_all(path, archive, required, optional)
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror or error})") from error


def _open_zip(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _DAMAGED as error:
        raise _refuse(path, error) from error


def _read_all(
    path: Path, archive: zipfile.ZipFile, required: Sequence[str], optional: Sequence[str]
) -> dict[str, NDArray[np.generic]]:
    names = {name.removesuffix(".npy"): name for name in archive.namelist()}
    missing = [name for name in required if name not in names]
    if missing:
        raise DataError(f"{path}: has no array {missing[0]!r}, only {', '.join(names) or 'none'}")
    wanted = {name: archive.getinfo(names[name]) for name in (*required, *optional) if name in names}
    allowance = Allowance(path)
    for name, member in wanted.items():
        _check_packing(f"{path}: {name}", member)
        allowance.take(member.file_size)
    found: dict[str, NDArray[np.generic]] = {}
    for name, member in wanted.items():
        try:
            _check_header(f"{path}: {name}", archive, member)
            with archive.open(member) as content:
                found[name] = npy.read_array(content, allow_pickle=False)
        except _DAMAGED as error:
            raise _refuse(f"{path}: {name}", error) from error
    return found


def _check_packing(at: str, member: zipfile.ZipInfo) -> None:
    """Refuse sizes that can't be: nothing unpacks to so much."""
    most = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _DEFLATED}.get(member.compress_type, math.inf)
    if member.file_size > most * member.compress_size:
        raise DataError(
            f"{at}: {member.compress_size} bytes are said to unpack to {member.file_size}, which can't be; "
            f"{_FIX}"
        )


def _check_header(at: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array that isn't as large as its header says, before memory is taken for it."""
    with archive.open(member) as content:
        version = npy.read_magic(content)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise DataError(f"{at}: an array of format {version[0]}.{version[1]}, of named columns; {_FIX}")
        try:
            shape, _, kind = read(content)
        except TypeError as error:  # of keys that can't be sorted
            raise ValueError(str(error)) from error
        if kind.hasobject:
            raise DataError(f"{at}: holds Python objects, which could run code; {_FIX} of plain arrays")
        said, there = math.prod(shape) * kind.itemsize, member.file_size - content.tell()
        if min(shape, default=0) < 0 or said != there:
            raise DataError(
                f"{at}: its header says {kind} {list(shape)}, {said} bytes, but there are {there}; {_FIX}"
            )


def _refuse(at: Path | str, error: Exception) -> DataError:
    why = f"{type(error).__name__}: {' '.join(str(error).split()):.120}"
    return DataError(f"{at}: not a whole .npz file of plain arrays ({why}); {_FIX}")
