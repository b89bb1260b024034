"""Your own data from Python: any map-style `torch.utils.data.Dataset`."""

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from potluck.core.errors import DataError
from potluck.data.pool import Pool, assemble, number_users


def from_dataset(
    train: "Dataset[object]",
    test: "Dataset[object] | None" = None,
    user: ArrayLike | None = None,
    time: ArrayLike | None = None,
    classes: int | None = None,
    name: str = "dataset",
    normalise: bool = True,
) -> Pool:
    """A pool of the rows (x, y) of a data set, to be divided by an experiment: `potluck.run(e, pool=pool)`.

    `test` holds the rows of the global test set; without it, a fixed fifth of every class is taken. `user`
    says who wrote each row of `train`, by number or by name, and `time` when, by number or by date (else rows
    count as being in the order of time). `classes`: how many labels there are, else the largest + 1. `name`:
    what errors call the data. Bytes are scaled to [0, 1]; these and other numbers then lose their mean and
    deviation, unless `normalise` is False. Rows of int64 are tokens, and stay. Rows are read once: a
    transform that draws at random does so once for a row.
    """
    x, y = _rows(f"{name}: train", train)
    held_out, rows = None, len(y)
    if test is not None:
        test_x, test_y = _rows(f"{name}: test", test)
        if (test_x.shape[1:], test_x.dtype) != (x.shape[1:], x.dtype):
            raise DataError(
                f"{name}: train rows are {_form(x[0])}, test rows are {_form(test_x[0])}; they must agree"
            )
        held_out = np.arange(len(y) + len(test_y)) >= len(y)
        x, y = torch.cat([x, test_x]), np.concatenate([y, test_y])
    people, names = (None, None) if user is None else _people(name, user, rows, len(y))
    pool = assemble(
        name,
        x.numpy(),
        y,
        test=held_out,
        user=people,
        time=np.arange(len(y)) if time is None else _moments(name, time, rows, len(y)),
        classes=classes,
        normalise=normalise,
        tokens=x.dtype == torch.int64,
    )
    return replace(pool, names=names)


def _rows(name: str, rows: "Dataset[object]") -> tuple[Tensor, NDArray[np.int64]]:
    if isinstance(rows, TensorDataset) and len(rows.tensors) == 2:
        x, y = rows.tensors
        labels = y.numpy()
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or not len(labels):
            raise DataError(f"{name}: labels must be a column of integers, found {_form(y)}")
        return _plain(x), labels.astype(np.int64)
    if isinstance(rows, IterableDataset) or not hasattr(rows, "__getitem__"):
        raise DataError(f"{name}: {type(rows).__name__} must be a map-style data set: one with data[i]")
    count = len(rows) if hasattr(rows, "__len__") else 0
    if not count:
        raise DataError(
            f"{name}: {type(rows).__name__} has no rows, or doesn't say how many: give it __len__"
        )
    pairs = [_pair(f"{name} row {i}", rows[i]) for i in range(count)]
    first = pairs[0][0]
    for i, (value, _) in enumerate(pairs):
        if (value.shape, value.dtype) != (first.shape, first.dtype):
            raise DataError(f"{name} row {i}: is {_form(value)}, row 0 is {_form(first)}; they must agree")
    return torch.stack([value for value, _ in pairs]), np.array([label for _, label in pairs], np.int64)


def _pair(at: str, row: object) -> tuple[Tensor, int]:
    if not isinstance(row, tuple | list) or len(row) != 2:
        raise DataError(f"{at}: must be a pair (x, y), found {type(row).__name__}; wrap the data set")
    value, label = row
    if not isinstance(value, Tensor | np.ndarray):
        raise DataError(
            f"{at}: x must be a tensor or an array, found {type(value).__name__}; "
            f"give the data set a transform, such as torchvision's ToTensor()"
        )
    number = label.item() if isinstance(label, Tensor | np.ndarray) and math.prod(label.shape) == 1 else label
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise DataError(f"{at}: y must be a whole number, found {number!r}")
    return _plain(torch.as_tensor(value)), int(number)


def _plain(x: Tensor) -> Tensor:
    """Types that NumPy knows, on the CPU."""
    x = x.detach().cpu()
    return x.float() if x.dtype == torch.bfloat16 else x


def _people(
    name: str, user: ArrayLike, train: int, rows: int
) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Who wrote each row, and names; nobody (-1) wrote test rows that `user` doesn't speak of."""
    found = _one_each(name, "user", user, train, rows)
    if found.dtype.kind not in "iuU":
        raise DataError(f"{name}: user must hold whole numbers or names, found {found.dtype}")
    numbers, names = number_users(found)
    return np.concatenate([numbers, np.full(rows - len(found), -1)]), names


def _moments(name: str, time: ArrayLike, train: int, rows: int) -> NDArray[np.generic]:
    """When each row was; test rows that `time` doesn't speak of are no earlier than others."""
    found = _one_each(name, "time", time, train, rows)
    return np.concatenate([found, np.repeat(found.max(keepdims=True), rows - len(found))])


def _one_each(name: str, key: str, values: ArrayLike, train: int, rows: int) -> NDArray[np.generic]:
    found = np.asarray(values)
    if found.shape not in ((train,), (rows,)):
        raise DataError(f"{name}: {key} must have one entry a train row, {train}, found {list(found.shape)}")
    return found


def _form(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
