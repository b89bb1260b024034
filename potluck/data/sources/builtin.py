"""The sources of the package: a new one is a function here, and its name at the end."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from potluck.core.errors import ConfigError, DataError, require
from potluck.core.keys import derive, generator
from potluck.core.room import require_room
from potluck.data.pool import Pool, assemble
from potluck.data.sources.cifar import CIFAR_10, CIFAR_100, Version, load_cifar
from potluck.data.sources.files import ROOT_HINT, find, join_paths, list_places
from potluck.data.sources.har import NAMES as HAR_NAMES
from potluck.data.sources.har import load_har
from potluck.data.sources.idx import load_idx
from potluck.data.sources.npz_file import read_arrays
from potluck.data.sources.registry import register
from potluck.data.sources.shakespeare import load_shakespeare

_DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # where its package dataset-fashion-mnist puts the files
_CUT = "cifar10/cifar10_21k.npz"  # the same rows in one file
_FIRST = (18_000, 3_000)  # to train on, and of the global test set
_CENTRE = 3.0  # length of a class's mean, in deviations: blobs overlap, but are learned in few steps


def digits(root: Path | None) -> Pool:
    """1,797 handwritten digits of 8x8 pixels from scikit-learn's own package: needs no files."""
    from sklearn.datasets import load_digits  # here: costs a second, which other sources needn't pay

    bunch = load_digits()
    return assemble("digits", bunch.images[:, None].astype(np.uint8), bunch.target, classes=10, top=16)


def idx(root: Path | None, path: str = ".", classes: int | None = None) -> Pool:
    """A folder of IDX files, named as MNIST's are."""
    return load_idx("idx", list_places(root, path), "four IDX files, named as those of MNIST", classes)


def mnist(root: Path | None) -> Pool:
    """60,000 + 10,000 handwritten digits of 28x28 pixels, in the folder `mnist`; see load_idx for writers."""
    origin = "the four files of MNIST (yann.lecun.com/exdb/mnist) by `potluck data get mnist`"
    return load_idx("mnist", list_places(root, "mnist"), origin, classes=10)


def fashion_mnist(root: Path | None) -> Pool:
    """60,000 + 10,000 garments of 28x28 pixels, in the folder `fashion-mnist` or of Debian's package."""
    origin = (
        "the four files of Fashion-MNIST (github.com/zalandoresearch/fashion-mnist) by "
        "`potluck data get fashion-mnist`, or Debian's package dataset-fashion-mnist"
    )
    folders = [*list_places(root, "fashion-mnist"), *([_DEBIAN] if root is None else [])]
    return load_idx("fashion-mnist", folders, origin, classes=10)


def cifar_10(root: Path | None) -> Pool:
    """50,000 + 10,000 photographs of 32x32 pixels in 10 classes: the binary or the Python version."""
    return _cifar("cifar-10", root, CIFAR_10, 10)


def cifar_10_first(root: Path | None) -> Pool:
    """The first 18,000 and 3,000 photographs of CIFAR-10, cut from all of it or from cifar10_21k.npz."""
    name = "cifar-10-first"
    file = next((place for place in list_places(root, _CUT) if place.is_file()), None)
    if file is None:
        return _cifar("cifar-10", root, CIFAR_10, 10, name=name, first=_FIRST)
    arrays = read_arrays(file, ("x", "y", "test"))
    pool = assemble(str(file), arrays["x"], arrays["y"], test=arrays["test"], classes=10)
    return replace(pool, name=name)


def cifar_100(root: Path | None, coarse: bool = False) -> Pool:
    """50,000 + 10,000 photographs of 32x32 pixels in 100 classes or, if coarse, in 20."""
    return _cifar("cifar-100", root, CIFAR_100, 20 if coarse else 100, coarse)


def _cifar(
    source: str,
    root: Path | None,
    versions: tuple[Version, ...],
    classes: int,
    coarse: bool = False,
    name: str | None = None,
    first: tuple[int, int] | None = None,
) -> Pool:
    entries = [entry for version in versions for entry in version.names]
    origin = f"get it (www.cs.toronto.edu/~kriz/cifar.html) by `potluck data get {source}`"
    path = find(source, root, source, entries, origin)
    return load_cifar(name or source, path, versions, classes, coarse, first)


def har(root: Path | None) -> Pool:
    """7,352 + 2,947 windows of a phone's inertial signals, six activities of 30 people: UCI HAR."""
    origin = "get it (archive.ics.uci.edu/dataset/240) by `potluck data get har`"
    return load_har(find("har", root, "ucihar", HAR_NAMES, origin))


def shakespeare(root: Path | None, length: int = 80, stride: int = 20) -> Pool:
    """The next character of what a role says: some 170,000 rows of `length` characters, at this `stride`."""
    origin = "write one, {role: [speech, ...]}, from any edition of his plays"
    names = ("roles.json.gz", "roles.json")
    return load_shakespeare(find("shakespeare", root, "shakespeare", names, origin), length, stride)


def npz(root: Path | None, path: str = "", classes: int | None = None, normalise: bool = True) -> Pool:
    """Your own data: a file with arrays `x`, `y` and, if you have them, `user`, `test` (bool) and `time`.

    Without `test`, a fixed fifth of every class becomes the global test set, across users: where rows of one
    person resemble each other (overlapping windows, say) set data.test_from. Without `time`, rows count as
    being in the order of time.
    """
    if not path:
        raise ConfigError("data.path is missing: npz needs the file to read, such as data.path = 'mine.npz'")
    looked = list_places(root, path)
    found = next((place for place in looked if place.is_file()), None)
    if found is None:
        raise DataError(f"npz: no file at {join_paths(looked)}; write it with numpy.savez, and {ROOT_HINT}")
    arrays = read_arrays(found, ("x", "y"), ("user", "test", "time"))
    pool = assemble(
        str(found),  # what errors name
        arrays["x"],
        arrays["y"],
        test=arrays.get("test"),
        user=arrays.get("user"),
        time=arrays.get("time", np.arange(arrays["y"].size)),
        classes=classes,
        normalise=normalise,
    )
    return replace(pool, name=found.stem)


def synthetic(
    root: Path | None, classes: int = 10, dimension: int = 32, rows: int = 10_000, seed: int = 0
) -> Pool:
    """Gaussian blobs, one a class and equally many rows in each: cheap, and as large as you like.

    With the procedural partition, a million clients share these rows and cost nothing more.
    """
    for name, value, least in (("classes", classes, 2), ("dimension", dimension, 1)):
        require(value >= least, f"data.{name}", value, f"synthetic needs at least {least}")
    fix = f"synthetic needs at least {5 * classes}: 5 of each of data.classes = {classes}"
    require(rows >= 5 * classes, "data.rows", rows, fix)
    largest = max(("rows", rows), ("dimension", dimension), key=lambda pair: pair[1])
    taken = 12 * rows * dimension + 16 * classes * dimension + 80 * rows
    require_room(
        taken, f"data.{largest[0]}", largest[1], f"lower it ({rows:,} rows of {dimension:,} numbers)"
    )
    rng = generator(derive(seed, int.from_bytes(b"blobs")))
    centres = rng.standard_normal((classes, dimension))
    centres *= _CENTRE / np.linalg.norm(centres, axis=1, keepdims=True)
    y = np.arange(rows) % classes
    x = rng.standard_normal((rows, dimension), np.float32) + centres.astype(np.float32)[y]
    return assemble("synthetic", x, y, classes=classes)


def python(root: Path | None, path: str = "") -> Pool:
    """Stands for a pool made in Python, in the files of its run: it can't be had by name."""
    raise ConfigError(
        f"data.source = 'python': {path or 'the data'} was made in Python and is in no file; "
        f"run or resume it there, with potluck.run(..., pool=...), potluck.resume(..., pool=...) or "
        "potluck.resume_comparison(..., pool=...)"
    )


for _make in (
    digits,
    idx,
    mnist,
    fashion_mnist,
    cifar_10,
    cifar_10_first,
    cifar_100,
    har,
    shakespeare,
    npz,
    synthetic,
    python,
):
    register(_make.__name__.replace("_", "-"), _make)
