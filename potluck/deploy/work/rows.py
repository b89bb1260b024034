"""A device's own rows: from a file, or from a function that the device's own file names."""

import importlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError
from potluck.deploy.work.device import Holding, OwnRows

PARTS: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
Arrays = Mapping[str, NDArray[np.generic]]


class Form:
    """What rows of a federation look like, and how they are scaled."""

    __slots__ = ("classes", "dtype", "mean", "shape", "std")

    def __init__(
        self, shape: tuple[int, ...], classes: int, dtype: torch.dtype, mean: float, std: float
    ) -> None:
        self.shape, self.classes, self.dtype, self.mean, self.std = shape, classes, dtype, mean, std


def load(place: str, form: Form, folder: Path) -> Holding:
    """Rows by the path of an .npz file, or by `module:function`, as a federation uses them."""
    arrays = read_file(folder / place) if place.endswith(".npz") else _call(place)
    return arrange(arrays, form, place)


def arrange(arrays: Arrays, form: Form, place: str) -> Holding:
    """Arrays `x`, `y` and perhaps `split` (0 train, 1 validation, 2 test) as a device holds them."""
    missing = [name for name in ("x", "y") if name not in arrays]
    if missing:
        raise DataError(f"{place}: no array {missing[0]!r}; give x, y and perhaps split")
    x, y = arrays["x"], arrays["y"]
    split = arrays.get("split", np.zeros(len(y), np.int64))
    if x.shape[1:] != form.shape:
        raise DataError(
            f"{place}: rows of shape {list(x.shape[1:])}; the federation's are {list(form.shape)}"
        )
    if y.ndim != 1 or len(y) != len(x) or split.shape != y.shape:
        raise DataError(
            f"{place}: {len(x)} rows, labels {list(y.shape)}, split {list(split.shape)}: give one each"
        )
    if not np.issubdtype(y.dtype, np.integer) or not np.issubdtype(split.dtype, np.integer):
        raise DataError(f"{place}: y and split must be whole numbers")
    if len(y) and not (y.min() >= 0 and y.max() < form.classes):
        raise DataError(
            f"{place}: labels {y.min()} to {y.max()}; the federation's are 0 to {form.classes - 1}"
        )
    if len(y) and not (split.min() >= 0 and split.max() <= 2):
        raise DataError(f"{place}: split {split.min()} to {split.max()}; 0 train, 1 validation, 2 test")
    if form.dtype.is_floating_point:
        values = torch.from_numpy(np.ascontiguousarray(x)).to(form.dtype)
        if not bool(torch.isfinite(values).all()):
            raise DataError(f"{place}: x has NaN or infinite numbers; clean them first")
        values = (values - form.mean) / form.std if (form.mean, form.std) != (0.0, 1.0) else values
    else:
        values = torch.from_numpy(np.ascontiguousarray(x)).to(form.dtype)
    labels = torch.from_numpy(y.astype(np.int64))
    parts: dict[str, NDArray[np.int64]] = {name: np.flatnonzero(split == i) for i, name in enumerate(PARTS)}
    return Holding(OwnRows(values, labels), parts, form.classes)


def read_file(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in ("x", "y", "split") if name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: can't be read ({error}); give an .npz with arrays x and y") from None


def _call(place: str) -> Arrays:
    module, _, name = place.partition(":")
    if not module or not name:
        raise ConfigError(f"data = {place!r}: give a file.npz or module:function")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"data = {place!r}: can't be found ({error})") from None
    arrays = function()
    if not isinstance(arrays, Mapping):
        raise DataError(f"{place}: gave a {type(arrays).__name__}; return a dict of arrays x and y")
    return {name: np.asarray(array) for name, array in arrays.items()}
