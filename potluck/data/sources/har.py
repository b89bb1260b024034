"""UCI HAR: six activities from the inertial signals of a phone at the waist, by thirty people.

Windows overlap by half, so the test set must be other people: the official split.
"""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import DataError
from potluck.data.pool import Pool, assemble, check_people
from potluck.data.sources.members import read_members
from potluck.data.sources.npz_file import read_arrays

Column = NDArray[np.generic]
Windows = tuple[Column, Column, Column, NDArray[np.bool_]]  # x, y, user, test
CHANNELS, SAMPLES, ACTIVITIES = 9, 128, 6
# Whole names first: a folder `UCI HAR Dataset` beside its zip was unpacked from it.
NAMES = (
    "ucihar.npz",
    "UCI HAR Dataset",
    "UCI HAR Dataset.zip",
    "human+activity+recognition+using+smartphones.zip",
)
_SIGNALS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")


def load_har(path: Path) -> Pool:
    """The set from one .npz file, or as published: a folder of text files or its zip."""
    x, y, user, test = _from_npz(path) if path.suffix == ".npz" else _from_text(path)
    if x.shape[1:] != (CHANNELS, SAMPLES):
        found = list(x.shape[1:])
        raise DataError(f"{path}: expected windows of {CHANNELS} x {SAMPLES} values, found {found}")
    check_people(str(path), "person", user, test)
    time = np.arange(len(y))  # a person's windows follow each other
    return assemble("har", x, y, test=test, user=user, time=time, classes=ACTIVITIES)


def _from_npz(path: Path) -> Windows:
    arrays = read_arrays(path, ("x", "y", "user", "test"))
    rows = arrays["y"].size
    for name in ("x", "user", "test"):
        shape = arrays[name].shape[:1] if name == "x" else arrays[name].shape  # the others are columns
        if shape != (rows,):
            raise DataError(f"{path}: {name} has shape {list(arrays[name].shape)}, but y has {rows} entries")
    return arrays["x"], arrays["y"], arrays["user"], arrays["test"].astype(np.bool_)


def _from_text(path: Path) -> Windows:
    parts: list[tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]] = []
    for part in ("train", "test"):
        signals = [f"{part}/Inertial Signals/{signal}_{part}.txt" for signal in _SIGNALS]
        labels, people = f"{part}/y_{part}.txt", f"{part}/subject_{part}.txt"
        content = read_members(path, [*signals, labels, people])
        y = _numbers(content[labels], f"{path}: {labels}", 1)[:, 0]
        user = _numbers(content[people], f"{path}: {people}", 1)[:, 0]
        found = [_numbers(content[name], f"{path}: {name}", SAMPLES) for name in signals]
        for name, values in ((people, user), *zip(signals, found, strict=True)):
            if len(values) != len(y):
                raise DataError(f"{path}: {name} has {len(values)} rows, {labels} has {len(y)}")
        x = np.stack(found, axis=1)
        parts.append((x, y.astype(np.int64) - 1, user.astype(np.int64)))  # activities are numbered from 1
    x, y, user = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return x, y, user, np.arange(len(y)) >= len(parts[0][1])


def _numbers(text: bytes, at: str, columns: int) -> NDArray[np.float32]:
    """[rows, columns] from lines of numbers with blanks between them."""
    try:
        lines = io.BytesIO(text if text.strip() else b"nothing")
        values = np.loadtxt(lines, np.float32, ndmin=2)
    except ValueError as error:
        raise DataError(f"{at}: not a table of numbers ({error})") from None
    if values.shape[1] != columns:
        raise DataError(f"{at}: expected {columns} numbers a line, found {list(values.shape)}")
    return values
