"""CIFAR-10 and CIFAR-100: the binary or the Python version, as a folder or as the archive it came in."""

import io
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import DataError
from potluck.data.pool import Pool, assemble
from potluck.data.sources.members import read_members

Rows = tuple[NDArray[np.uint8], NDArray[np.int64]]
_SHAPE = (3, 32, 32)
_VALUES = 3 * 32 * 32


@dataclass(frozen=True)
class Version:
    """Where one version of a set keeps which labels."""

    names: tuple[str, ...]  # its folder and its archive
    train: tuple[str, ...]
    test: str
    labels: int  # bytes before the pixels of a row; 0: a pickle
    fine: int | str  # which of them, or their key in the pickle
    coarse: int | str | None = None


_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
# Binary versions first: they are plain bytes.
CIFAR_10 = (
    Version(
        ("cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
        tuple(f"{name}.bin" for name in _BATCHES),
        "test_batch.bin",
        labels=1,
        fine=0,
    ),
    Version(
        ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
        _BATCHES,
        "test_batch",
        labels=0,
        fine="labels",
    ),
)
CIFAR_100 = (
    Version(
        ("cifar-100-binary", "cifar-100-binary.tar.gz"),
        ("train.bin",),
        "test.bin",
        labels=2,
        fine=1,
        coarse=0,
    ),
    Version(
        ("cifar-100-python", "cifar-100-python.tar.gz"),
        ("train",),
        "test",
        labels=0,
        fine="fine_labels",
        coarse="coarse_labels",
    ),
)


def load_cifar(
    name: str,
    path: Path,
    versions: tuple[Version, ...],
    classes: int,
    coarse: bool = False,
    first: tuple[int, int] | None = None,
) -> Pool:
    """A set from its folder or archive, whose name says which version it is.

    `first`: so many of the rows to train on, and of the global test set, instead of all.
    """
    version = next(version for version in versions if path.name in version.names)
    key = version.coarse if coarse else version.fine
    assert key is not None, f"{name} has no coarse labels"
    content = read_members(path, (*version.train, version.test))
    parts = [
        _unpickle(data, f"{path}: {member}", str(key))
        if isinstance(key, str)
        else _rows(data, f"{path}: {member}", version.labels, key)
        for member, data in ((member, content[member]) for member in (*version.train, version.test))
    ]
    (*_, last), x, y = parts, np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    train = len(y) - len(last[1])
    if first is not None:
        kept = np.r_[: min(first[0], train), train : min(train + first[1], len(y))]
        x, y, train = x[kept], y[kept], min(first[0], train)
    return assemble(name, x, y, test=np.arange(len(y)) >= train, classes=classes)


def _rows(content: bytes, at: str, labels: int, column: int) -> Rows:
    width = labels + _VALUES
    if not content or len(content) % width:
        raise DataError(f"{at}: expected rows of {width} bytes, found {len(content)} bytes")
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    return rows[:, labels:].reshape(-1, *_SHAPE), rows[:, column].astype(np.int64)


def _unpickle(content: bytes, at: str, key: str) -> Rows:
    try:
        _check_opcodes(content)
        batch = _Plain(io.BytesIO(content), encoding="latin1").load()
    except DataError as error:
        raise DataError(f"{at}: {error}") from None
    except Exception as error:  # a damaged pickle raises nearly anything
        why = " ".join(str(error).split())
        raise DataError(f"{at}: not a whole pickle ({type(error).__name__}: {why})") from error
    data = batch.get("data") if isinstance(batch, dict) else None
    labels = batch.get(key) if isinstance(batch, dict) else None
    if not isinstance(data, _Array) or not isinstance(labels, list):
        raise DataError(f"{at}: expected an array 'data' and a list {key!r}")
    if not all(type(label) is int for label in labels):
        raise DataError(f"{at}: {key} must be whole numbers")
    if data.code != "u1" or data.shape != (len(labels), _VALUES) or len(data.raw) != len(labels) * _VALUES:
        raise DataError(f"{at}: expected {len(labels)} rows of {_VALUES} bytes, one a label")
    x = np.frombuffer(data.raw, np.uint8).reshape(-1, *_SHAPE)
    return x, np.array(labels, np.int64)


def _check_opcodes(content: bytes) -> None:
    """Refuse lengths that aren't there, places beyond the end, and tuples of tuples used again and again."""
    names, places, before = 0, set[int](), ""
    for code, argument, _ in pickletools.genops(content):  # refuses lengths itself
        number = argument if isinstance(argument, int) else 0
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            number, names = names if code.name == "MEMOIZE" else number, names + 1
            if number > len(content):  # there would be room for as many
                raise DataError(f"remembers a value at {number}, beyond its own end")
            places = places | {number} if before.startswith("TUPLE") else places - {number}
        elif code.name == "DUP" or (code.name in ("GET", "BINGET", "LONG_BINGET") and number in places):
            raise DataError("uses a tuple twice, which CIFAR's files don't; as a key it could take for ever")
        before = code.name


class _Type:
    """Stands for numpy.dtype: its code, and nothing else that the pickle says of it."""

    def __init__(self, code: str, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _Array:
    """Stands for numpy.ndarray: what was pickled, to be looked at before NumPy sees any of it."""

    shape: tuple[int, ...] = ()
    code = ""
    raw = b""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, str | bytes]) -> None:
        _, self.shape, kind, by_column, raw = state
        if not isinstance(kind, _Type) or by_column:
            raise DataError("holds an array of another kind than CIFAR's")
        self.code = kind.code
        self.raw = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise DataError(f"holds text in {encoding!r}")
    return text.encode("latin1")


class _Plain(pickle.Unpickler):
    """Reads arrays and plain values. Whatever else a pickle names is refused: it could run code."""

    _ALLOWED: ClassVar[dict[tuple[str, str], Callable[..., object]]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Type,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if (module, name) not in self._ALLOWED:
            raise DataError(
                f"names {module}.{name}, which CIFAR's files don't: not read, as it could run code"
            )
        return self._ALLOWED[module, name]
