"""MNIST's file format: a folder with train and test images and labels as IDX files, packed by gzip or not."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.data.files import ROOT_HINT, listed, read_arrays, read_bytes
from potluck.data.pool import Pool, assemble
from potluck.errors import DataError

_PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_BYTES = 0x08  # the type code of unsigned bytes, the only one that MNIST's relatives use


def load_idx(name: str, folders: Sequence[Path], origin: str, classes: int | None = None) -> Pool:
    """The first folder that holds IDX files, as a pool; t10k's rows are the global test set.

    `writers.npz` beside them, if there is one, says who wrote each row (`train_writer`, `test_writer`):
    people of the test rows must not be people of the train rows.
    """
    folder = next((folder for folder in folders if any(_find(folder, part) for part in _PARTS)), None)
    if folder is None:
        files = ", ".join(_PARTS)
        raise DataError(
            f"{name}: no {files} (or the same with .gz) in {listed(folders)}; get {origin}, and {ROOT_HINT}"
        )
    images, labels, test_images, test_labels = (_part(name, folder, part, origin) for part in _PARTS)
    if images.shape[1:] != test_images.shape[1:]:
        sizes = f"{list(images.shape[1:])} and {list(test_images.shape[1:])}"
        raise DataError(f"{folder}: train and t10k images differ in size: {sizes}")
    for part, one, other in (("train", images, labels), ("t10k", test_images, test_labels)):
        if len(one) != len(other):
            raise DataError(f"{folder}: {part} has {len(one)} images but {len(other)} labels")
    return assemble(
        name,
        np.concatenate([images, test_images])[:, None],  # one channel
        np.concatenate([labels, test_labels]),
        test=np.arange(len(labels) + len(test_labels)) >= len(labels),
        user=_writers(folder / "writers.npz", len(labels), len(test_labels)),
        classes=classes,
    )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """One IDX file: two zero bytes, a type, a rank, big-endian sizes, then the values."""
    content = read_bytes(path)
    rank = content[3] if len(content) >= 4 else 0
    start = 4 + 4 * rank
    if content[:3] != bytes([0, 0, _BYTES]) or not 1 <= rank <= 4 or len(content) < start:
        raise DataError(
            f"{path}: expected an IDX file of bytes (00 00 08, then its rank and sizes), "
            f"found {len(content)} bytes that open with {content[:4].hex(' ') or 'nothing'}"
        )
    shape = [int(size) for size in np.frombuffer(content, ">u4", rank, 4)]
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise DataError(f"{path}: expected {expected} bytes for sizes {shape}, found {len(content)}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _find(folder: Path, part: str) -> Path | None:
    dotted = part.replace("-idx", ".idx")  # some mirrors unpack to train-images.idx3-ubyte
    names = (part, f"{part}.gz", dotted, f"{dotted}.gz")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _part(name: str, folder: Path, part: str, origin: str) -> NDArray[np.uint8]:
    path = _find(folder, part)
    if path is None:
        raise DataError(f"{name}: {folder.absolute()} has no {part} (or {part}.gz); get {origin}")
    array = read_idx(path)
    rank = 3 if "images" in part else 1
    if array.ndim != rank:
        raise DataError(f"{path}: expected {rank} sizes, found {list(array.shape)}")
    return array


def _writers(path: Path, train: int, test: int) -> NDArray[np.generic] | None:
    if not path.is_file():
        return None
    arrays = read_arrays(path, ("train_writer", "test_writer"))
    for key, rows in (("train_writer", train), ("test_writer", test)):
        if arrays[key].shape != (rows,) or arrays[key].dtype.kind not in "iu":
            found = f"{arrays[key].dtype} {list(arrays[key].shape)}"
            raise DataError(f"{path}: {key} must hold {rows} integers, found {found}")
    both = np.intersect1d(arrays["train_writer"], arrays["test_writer"])
    if len(both):
        raise DataError(f"{path}: writer {both[0]} has train and test rows; the test writers must be others")
    return np.concatenate([arrays["train_writer"].astype(np.int64), arrays["test_writer"].astype(np.int64)])
