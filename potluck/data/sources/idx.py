"""MNIST's file format: a folder with train and test images and labels as IDX files, packed by gzip or not."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import DataError
from potluck.data.pool import Pool, assemble, check_people
from potluck.data.sources.allowance import Allowance
from potluck.data.sources.files import describe_absence, read_bytes
from potluck.data.sources.npz_file import read_arrays

Numbers = NDArray[np.int64]

_PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# Type codes: images and labels are unsigned bytes, QMNIST's labels big-endian integers.
_TYPES: dict[int, tuple[str, np.dtype[np.generic]]] = {
    0x08: ("bytes", np.dtype(np.uint8)),
    0x0C: ("integers", np.dtype(">i4")),
}
_QMNIST = ("qmnist-train-labels-idx2-int", "qmnist-test-labels-idx2-int")
_HEAD = 4 + 4 * 4  # bytes, of an array of four sizes
_COLUMNS = (2, 1)  # of QMNIST's labels: the writer and the population that NIST asked; column 0 is the digit


def load_idx(name: str, folders: Sequence[Path], origin: str, classes: int | None = None) -> Pool:
    """The first folder that holds IDX files, as a pool; t10k's rows are the global test set.

    Files beside them may say who wrote each row: `writers.npz` (`train_writer`, `test_writer`) or the labels
    of QMNIST, whose first rows are MNIST's. People of the test rows must not be people of the train rows.
    QMNIST's labels, or `train_hsf` and `test_hsf` of writers.npz, also say of which population a writer is.
    """
    folder = next((folder for folder in folders if any(_find(folder, part) for part in _PARTS)), None)
    if folder is None:
        files = ", ".join(_PARTS)
        raise describe_absence(name, f"{files} (or the same with .gz)", folders, f"get {origin}")
    allowance = Allowance(folder)
    images, labels, test_images, test_labels = (
        _part(name, folder, part, origin, allowance) for part in _PARTS
    )
    if images.shape[1:] != test_images.shape[1:]:
        sizes = f"{list(images.shape[1:])} and {list(test_images.shape[1:])}"
        raise DataError(f"{folder}: train and t10k images differ in size: {sizes}")
    for part, one, other in (("train", images, labels), ("t10k", test_images, test_labels)):
        if len(one) != len(other):
            raise DataError(f"{folder}: {part} has {len(one)} images but {len(other)} labels")
    test = np.arange(len(labels) + len(test_labels)) >= len(labels)
    user, people = _writers(folder / "writers.npz", len(labels), len(test_labels))
    if user is None:
        user, people = _qmnist_writers(folder, labels, test_labels)
    if user is not None:
        check_people(str(folder), "writer", user, test)
    return assemble(
        name,
        np.concatenate([images, test_images])[:, None],  # one channel
        np.concatenate([labels, test_labels]),
        test=test,
        user=user,
        people=people,
        classes=classes,
    )


def read_idx(path: Path, code: int = 0x08, allowance: Allowance | None = None) -> NDArray[np.generic]:
    """One IDX file: two zero bytes, a type, a rank, big-endian sizes, then the values."""
    content = read_bytes(path, most=_HEAD)  # first: what it says is all that is then unpacked
    kind, dtype = _TYPES[code]
    rank = content[3] if len(content) >= 4 else 0
    start = 4 + 4 * rank
    if content[:3] != bytes([0, 0, code]) or not 1 <= rank <= 4 or len(content) < start:
        raise DataError(
            f"{path}: expected an IDX file of {kind} (00 00 {code:02x}, then its rank and sizes), "
            f"found {len(content)} bytes that open with {content[:4].hex(' ') or 'nothing'}"
        )
    shape = [int(size) for size in np.frombuffer(content, ">u4", rank, 4)]
    expected = start + dtype.itemsize * math.prod(shape)
    content = read_bytes(path, allowance, expected + 1)
    if len(content) != expected:
        found = "more" if len(content) > expected else len(content)
        raise DataError(f"{path}: expected {expected} bytes for sizes {shape}, found {found}")
    return np.frombuffer(content, dtype, offset=start).reshape(shape)


def _find(folder: Path, part: str) -> Path | None:
    dotted = part.replace("-idx", ".idx")  # some mirrors unpack to train-images.idx3-ubyte
    names = (part, f"{part}.gz", dotted, f"{dotted}.gz")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _part(name: str, folder: Path, part: str, origin: str, allowance: Allowance) -> NDArray[np.generic]:
    path = _find(folder, part)
    if path is None:
        raise DataError(f"{name}: {folder.absolute()} has no {part} (or {part}.gz); get {origin}")
    array = read_idx(path, allowance=allowance)
    rank = 3 if "images" in part else 1
    if array.ndim != rank:
        raise DataError(f"{path}: expected {rank} sizes, found {list(array.shape)}")
    return array


def _writers(path: Path, train: int, test: int) -> tuple[Numbers | None, Numbers | None]:
    """Who wrote each row, and of which population that writer is."""
    if not path.is_file():
        return None, None
    arrays = read_arrays(path, ("train_writer", "test_writer"), ("train_hsf", "test_hsf"))
    for key in arrays:
        rows = train if key.startswith("train") else test
        if arrays[key].shape != (rows,) or arrays[key].dtype.kind not in "iu":
            found = f"{arrays[key].dtype} {list(arrays[key].shape)}"
            raise DataError(f"{path}: {key} must hold {rows} integers, found {found}")
    numbers = {key: array.astype(np.int64) for key, array in arrays.items()}
    given = [key for key in ("train_hsf", "test_hsf") if key in numbers]
    if len(given) == 1:
        raise DataError(f"{path}: has {given[0]}, only one of the two: give both, or leave it out")
    if not given:
        return np.concatenate([numbers["train_writer"], numbers["test_writer"]]), None
    user, people = ([numbers[f"train_{column}"], numbers[f"test_{column}"]] for column in ("writer", "hsf"))
    return np.concatenate(user), np.concatenate(people)


def _qmnist_writers(
    folder: Path, train: NDArray[np.generic], test: NDArray[np.generic]
) -> tuple[Numbers | None, Numbers | None]:
    """Writers and populations from QMNIST's labels; its test set goes on after MNIST's 10,000 rows."""
    found = [_find(folder, name) for name in _QMNIST]
    if not any(found):
        return None, None
    tables: list[Numbers] = []
    for name, path, digits in zip(_QMNIST, found, (train, test), strict=True):
        if path is None:
            raise DataError(f"{folder.absolute()}: has no {name}.gz, only the other of the two: get both")
        table = read_idx(path, 0x0C)
        if table.ndim != 2 or table.shape[1] != 8 or len(table) < len(digits):
            raise DataError(
                f"{path}: expected 8 columns and at least {len(digits)} rows, found {list(table.shape)}"
            )
        if (table[: len(digits), 0] != digits).any():  # writers of other images would pass unnoticed
            row = int(np.flatnonzero(table[: len(digits), 0] != digits)[0])
            raise DataError(
                f"{path}: row {row} is another digit than in {folder.name}; these aren't its labels"
            )
        tables.append(table[: len(digits)].astype(np.int64))
    user, people = (np.concatenate(tables)[:, column] for column in _COLUMNS)
    return user, people
