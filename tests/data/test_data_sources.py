import contextlib
import gzip
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from potluck.core.errors import ConfigError, DataError
from potluck.core.folders import find_cache_folder
from potluck.data import load
from potluck.data.pool import assemble, fingerprint, limit_rows
from potluck.data.sources import builtin as sources

PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx_bytes(array, code=8):
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def small_set(train=30, test=10, classes=3):
    rng = np.random.default_rng(0)
    sizes = ((train, 4, 5), (train,), (test, 4, 5), (test,))
    images, labels, test_images, test_labels = (rng.integers(0, 256, size).astype(np.uint8) for size in sizes)
    return images, labels % classes, test_images, test_labels % classes


def write_idx(folder, arrays=None, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for part, array in zip(PARTS, arrays or small_set(), strict=True):
        content = idx_bytes(array)
        (folder / (part + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return folder


@pytest.fixture(autouse=True)
def _nowhere(tmp_path, monkeypatch):
    """No data but what a test writes."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.delenv("POTLUCK_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_DEBIAN", tmp_path / "debian")


def test_digits():
    pool = load("digits")
    assert (len(pool), pool.shape, pool.classes, pool.user) == (1797, (1, 8, 8), 10, None)
    assert pool.x.dtype == torch.float32
    assert pool.y.dtype == torch.int64
    counts = np.bincount(pool.y[torch.tensor(pool.test)], minlength=10)
    assert counts.sum() == pool.test.sum() == 359
    assert counts.min() >= 34  # stratified
    train = pool.x[torch.tensor(~pool.test)].double()
    assert abs(float(train.mean())) < 1e-6
    assert abs(float(train.std()) - 1) < 1e-3
    values = pool.x.double() * pool.std + pool.mean
    assert abs(float(values.min())) < 1e-6
    assert abs(float(values.max()) - 1) < 1e-6
    again = load("digits")
    assert torch.equal(pool.x, again.x)
    assert np.array_equal(pool.test, again.test)


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_packed_or_not(tmp_path, packed):
    images, labels, test_images, test_labels = small_set()
    write_idx(tmp_path / "own", packed=packed)
    pool = load("idx", root=tmp_path, path="own")
    assert (len(pool), pool.shape, pool.classes, pool.user) == (40, (1, 4, 5), 3, None)
    assert pool.test.tolist() == [False] * 30 + [True] * 10
    assert pool.y.tolist() == [*labels, *test_labels]
    assert pool.mean == pytest.approx(images.mean() / 255)  # of the train rows alone
    assert pool.std == pytest.approx(images.std() / 255)
    values = (pool.x * pool.std + pool.mean) * 255
    assert np.allclose(values[30:, 0], test_images, atol=1e-3)


def test_files_are_found_by_root_environment_or_folder(tmp_path, monkeypatch):
    write_idx(tmp_path / "cache" / "potluck" / "mnist", small_set(train=20))
    assert len(load("mnist")) == 30
    write_idx(tmp_path / "cwd" / "data" / "mnist")
    assert len(load("mnist")) == 40
    write_idx(tmp_path / "env" / "mnist", small_set(train=50))
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path / "env"))
    assert len(load("mnist")) == 60
    write_idx(tmp_path / "root" / "mnist", small_set(train=70))
    assert len(load("mnist", root=tmp_path / "root")) == 80
    with pytest.raises(DataError, match="elsewhere"):  # a wrong root never falls back
        load("mnist", root=tmp_path / "elsewhere")


def test_cache_of_the_user(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    for value in ("", "relative"):  # the standard says to ignore these
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert find_cache_folder() == Path("/home/me/.cache/potluck")


def test_fashion_mnist_of_debian(tmp_path):
    write_idx(tmp_path / "debian")
    assert len(load("fashion-mnist")) == 40
    with pytest.raises(DataError, match="elsewhere"):
        load("fashion-mnist", root=tmp_path / "elsewhere")
    write_idx(tmp_path / "cwd" / "data" / "fashion-mnist", small_set(train=50))
    assert len(load("fashion-mnist")) == 60


def test_missing_files_say_where_and_whence(tmp_path, monkeypatch):
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path / "env"))
    with pytest.raises(DataError) as error:
        load("mnist")
    for word in (
        tmp_path / "env" / "mnist",
        tmp_path / "cwd" / "data" / "mnist",
        tmp_path / "cache" / "potluck" / "mnist",
        "yann.lecun.com",
        "potluck data get mnist",
        "data.root",
    ):
        assert str(word) in str(error.value)
    with pytest.raises(DataError, match="zalandoresearch"):
        load("fashion-mnist")
    (write_idx(tmp_path / "env" / "mnist") / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match="has no t10k-labels-idx1-ubyte"):
        load("mnist")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda whole: gzip.compress(whole)[:-20], "not a whole gzip file"),
        (lambda whole: b"<html>not found</html>", "not a whole gzip file"),
        (lambda whole: b"", "found 0 bytes"),
        (lambda whole: gzip.compress(whole[:-1]), "expected 616 bytes .* found 615"),
        (lambda whole: gzip.compress(whole + b"!"), "expected 616 bytes .* found more"),
        (lambda whole: gzip.compress(whole[:7]), "expected an IDX file"),
        (lambda whole: gzip.compress(b"\0\0\x0d\3" + whole[4:]), "open with 00 00 0d 03"),
        (lambda whole: gzip.compress(b"\0\0\x08\1\0\0\0\1" + b"x"), "expected 3 sizes"),
        (
            lambda whole: gzip.compress(whole[:4] + b"\xff" * 12),
            "expected 79228162458924105385300197391 bytes",
        ),
    ],
)
def test_damaged_idx_files_are_named(tmp_path, content, message):
    path = write_idx(tmp_path / "mnist") / "train-images-idx3-ubyte.gz"
    path.write_bytes(content(gzip.decompress(path.read_bytes())))
    with pytest.raises(DataError, match=message) as error:
        load("mnist", root=tmp_path)
    assert str(path) in str(error.value)


def test_idx_parts_must_fit_together(tmp_path):
    images, labels, test_images, test_labels = small_set()
    write_idx(tmp_path / "mnist", (images, labels[:-1], test_images, test_labels))
    with pytest.raises(DataError, match="30 images but 29 labels"):
        load("mnist", root=tmp_path)
    write_idx(tmp_path / "mnist", (images, labels, test_images[:, :2], test_labels))
    with pytest.raises(DataError, match="differ in size"):
        load("mnist", root=tmp_path)
    labels[7] = 12
    write_idx(tmp_path / "mnist", (images, labels, test_images, test_labels))
    with pytest.raises(DataError, match="label 12 of row 7 is out of range 0 to 9"):
        load("mnist", root=tmp_path)


def test_writers_become_users(tmp_path):
    folder = write_idx(tmp_path / "mnist")
    train, test = np.arange(30, dtype=np.int16) // 10, np.arange(10, dtype=np.int16) // 5 + 100
    np.savez(folder / "writers.npz", train_writer=train, test_writer=test)
    pool = load("mnist", root=tmp_path)
    assert pool.user is not None
    assert pool.user.tolist() == [*train, *test]
    np.savez(folder / "writers.npz", train_writer=train, test_writer=test - 98)
    with pytest.raises(DataError, match="writer 2 has train and test rows"):
        load("mnist", root=tmp_path)
    np.savez(folder / "writers.npz", train_writer=train[1:], test_writer=test)
    with pytest.raises(DataError, match="train_writer must hold 30 integers"):
        load("mnist", root=tmp_path)
    np.savez(folder / "writers.npz", train_writer=train)
    with pytest.raises(DataError, match="no array 'test_writer'"):
        load("mnist", root=tmp_path)


def test_populations_of_writers(tmp_path):
    folder = write_idx(tmp_path / "mnist")
    train, test = np.arange(30, dtype=np.int16) // 10, np.arange(10, dtype=np.int16) // 5 + 100
    columns = {"train_writer": train, "test_writer": test}
    np.savez(folder / "writers.npz", **columns)
    assert load("mnist", root=tmp_path).people is None
    hsf = {"train_hsf": np.int8(4) * (train == 1), "test_hsf": np.int8(4) * (test == 100)}
    np.savez(folder / "writers.npz", **columns, **hsf)
    pool = load("mnist", root=tmp_path)
    assert pool.people.tolist() == [0] * 10 + [4] * 10 + [0] * 10 + [4] * 5 + [0] * 5
    assert limit_rows(pool, 12).people.tolist() == [
        4 if u in (1, 100) else 0 for u in limit_rows(pool, 12).user
    ]
    assert fingerprint(pool) != fingerprint(replace(pool, people=None))
    np.savez(folder / "writers.npz", **columns, train_hsf=hsf["train_hsf"])
    with pytest.raises(DataError, match="has train_hsf, only one of the two: give both"):
        load("mnist", root=tmp_path)
    np.savez(folder / "writers.npz", **columns, **hsf | {"test_hsf": train})
    with pytest.raises(DataError, match="test_hsf must hold 10 integers"):
        load("mnist", root=tmp_path)


def qmnist(digits, writers, more=0):
    """QMNIST's table of labels; its test set is longer than MNIST's. Odd writers are students (4)."""
    table = np.zeros((len(digits) + more, 8), ">i4")
    table[: len(digits), 0], table[: len(digits), 2] = digits, writers
    table[: len(digits), 1] = 4 * (writers % 2)
    return table


def write_labels(path, table, code=12):
    path.write_bytes(gzip.compress(idx_bytes(table, code)))


def test_writers_from_qmnist(tmp_path):
    folder = write_idx(tmp_path / "mnist")
    _, digits, _, test_digits = small_set()
    train, test = np.arange(30) // 10, np.arange(10) // 5 + 2400
    first, second = (folder / f"qmnist-{part}-labels-idx2-int.gz" for part in ("train", "test"))
    write_labels(first, qmnist(digits, train))
    with pytest.raises(DataError, match=r"has no qmnist-test-labels-idx2-int\.gz, only the other"):
        load("mnist", root=tmp_path)
    write_labels(second, qmnist(test_digits, test, more=50))
    pool = load("mnist", root=tmp_path)
    assert pool.user is not None
    assert pool.user.tolist() == [*train, *test]
    assert pool.people.tolist() == [4 * (writer % 2) for writer in pool.user]
    for wrong, message in (
        (qmnist(test_digits[:-1], test[:-1]), r"at least 10 rows, found \[9, 8\]"),
        (qmnist(test_digits, test)[:, :5], r"expected 8 columns .* found \[10, 5\]"),
        (qmnist((test_digits + 1) % 3, test), "row 0 is another digit than in mnist"),
        (qmnist(test_digits, test - 2399), "writer 1 has train and test rows"),
    ):
        write_labels(second, wrong)
        with pytest.raises(DataError, match=message):
            load("mnist", root=tmp_path)
    write_labels(second, qmnist(test_digits, test).astype(np.uint8), code=8)
    with pytest.raises(DataError, match=r"expected an IDX file of integers \(00 00 0c"):
        load("mnist", root=tmp_path)
    np.savez(folder / "writers.npz", train_writer=train + 1, test_writer=test)
    assert load("mnist", root=tmp_path).user[0] == 1  # is asked first


def own_arrays(**changes):
    arrays = {"x": np.arange(160.0).reshape(40, 2, 2), "y": np.arange(40) % 4}
    return {name: value for name, value in {**arrays, **changes}.items() if value is not None}


def test_npz_with_and_without_test_rows(tmp_path):
    np.savez(tmp_path / "a.npz", **own_arrays(user=np.arange(40) // 4, test=np.arange(40) < 4))
    pool = load("npz", root=tmp_path, path="a.npz")
    assert (pool.name, pool.shape, pool.classes, pool.test.sum()) == ("a", (2, 2), 4, 4)
    assert pool.user is not None
    assert pool.user.tolist() == [i // 4 for i in range(40)]
    np.savez("here.npz", **own_arrays())
    pool = load("npz", path="here.npz")
    assert np.bincount(pool.y[torch.tensor(pool.test)]).tolist() == [2, 2, 2, 2]
    assert np.array_equal(load("npz", path=str(tmp_path / "cwd" / "here.npz")).test, pool.test)
    raw = load("npz", path="here.npz", normalise=False)
    assert raw.x.flatten().tolist() == list(range(160))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "no array 'y'"),
        ({"y": np.arange(39) % 4}, "y has 39 entries, x has 40 rows"),
        ({"y": np.arange(40) % 4 - 1}, "label -1 of row 0 is out of range 0 to 2; number them without gaps"),
        ({"y": np.arange(40) + 1000}, "numbered 0, 1, 2"),
        ({"y": np.zeros(40, int)}, "every row has label 0, so nothing can be learned"),
        ({"y": np.arange(40) / 2}, "y must hold one column of integers, .*; number them without gaps"),
        ({"y": np.full(40, "cat")}, "y must hold one column of integers, .*; number them without gaps"),
        ({"x": np.full((40, 2), "a")}, "x must hold numbers"),
        ({"x": np.full((40, 2), None)}, "holds Python objects"),
        ({"x": np.arange(40.0)}, "x must hold numbers of shape"),
        ({"x": np.ones((40, 2))}, "all values of x are equal"),
        ({"x": np.ones((40, 2), np.uint8)}, "all values of x are equal"),
        ({"x": np.where(np.arange(40)[:, None] == 9, np.nan, [1.0, 2.0])}, "x of row 9 is not a finite"),
        ({"x": np.where(np.arange(40)[:, None] == 9, 1e300, [1.0, 2.0])}, "x of row 9 is not a finite"),
        ({"user": np.arange(40) / 2}, "user must hold one column of integers or text"),
        ({"user": np.full((40, 1), "me")}, "user must hold one column of integers or text"),
        ({"time": np.full(40, "now")}, "time must hold one column of numbers or dates"),
        ({"time": np.where(np.arange(40) == 9, np.nan, 1.0)}, "time of row 9 is no moment"),
        ({"time": np.arange(39)}, "time has 39 entries, x has 40 rows"),
        ({"user": np.arange(3)}, "user has 3 entries"),
        ({"test": np.arange(40) % 2}, "test must hold one column of bool"),
        ({"test": np.zeros(40, bool)}, "0 of 40 rows are test rows"),
    ],
)
def test_npz_arrays_that_make_no_sense(tmp_path, changes, message):
    np.savez(tmp_path / "a.npz", **own_arrays(**changes))
    with pytest.raises(DataError, match=message) as error:
        load("npz", root=tmp_path, path="a.npz")
    assert str(tmp_path / "a.npz") in str(error.value)


def test_npz_files_that_are_none(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.path is missing"):
        load("npz")
    with pytest.raises(DataError, match=r"no file at .*absent"):
        load("npz", path="absent.npz")
    np.savez_compressed(tmp_path / "a.npz", **own_arrays())
    whole = (tmp_path / "a.npz").read_bytes()
    for cut in range(0, len(whole), 37):  # wherever a copy was broken off
        (tmp_path / "a.npz").write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"a\.npz"):
            load("npz", root=tmp_path, path="a.npz")
    np.save(tmp_path / "b.npy", np.ones(3))
    with pytest.raises(DataError, match="one bare array"):
        load("npz", root=tmp_path, path="b.npy")


def test_flipped_bytes_never_raise_anything_else(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", **own_arrays())
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    for at in range(len(whole)):
        damaged = whole.copy()
        damaged[at] ^= 0x55
        (tmp_path / "a.npz").write_bytes(damaged)
        with contextlib.suppress(DataError):  # nor need it be raised: a date is harmless
            load("npz", root=tmp_path, path="a.npz")


def test_synthetic_blobs_can_be_told_apart():
    pool = load("synthetic", classes=4, dimension=8, rows=2000, seed=3)
    assert (len(pool), pool.shape, pool.classes) == (2000, (8,), 4)
    assert pool.test.sum() == 400
    train, test = torch.tensor(~pool.test), torch.tensor(pool.test)
    centres = torch.stack([pool.x[train & (pool.y == label)].mean(0) for label in range(4)])
    guess = torch.cdist(pool.x[test], centres).argmin(1)
    assert 0.7 < float((guess == pool.y[test]).double().mean()) < 0.999
    assert not torch.equal(pool.x, load("synthetic", classes=4, dimension=8, rows=2000, seed=4).x)
    with pytest.raises(ConfigError, match=r"data\.rows = 7"):
        load("synthetic", rows=7)


def test_limit_keeps_test_rows_and_nests():
    pool = load("synthetic", rows=500)
    small, large = load("synthetic", rows=500, limit=50), load("synthetic", rows=500, limit=80)
    assert (~small.test).sum() == 50
    assert small.test.sum() == pool.test.sum()
    assert (small.mean, small.std) == (pool.mean, pool.std)
    rows = {tuple(row.tolist()) for row in large.x}
    assert all(tuple(row.tolist()) in rows for row in small.x)
    assert len(load("synthetic", rows=500, limit=10**6)) == 500
    with pytest.raises(ConfigError, match=r"data\.limit = 0"):
        load("synthetic", limit=0)


def test_limit_keeps_users(tmp_path):
    np.savez(tmp_path / "a.npz", **own_arrays(user=np.arange(40), test=np.arange(40) < 4))
    pool = load("npz", root=tmp_path, path="a.npz", limit=6)
    assert pool.user is not None
    assert len(pool.user) == len(pool) == len(pool.x) == 10
    assert (pool.y.numpy() == pool.user % 4).all()


def test_names_are_checked():
    with pytest.raises(ConfigError, match="did you mean 'mnist'"):
        load("mnst")
    with pytest.raises(ConfigError, match="did you mean 'classes'"):
        load("synthetic", clases=3)
    with pytest.raises(ConfigError, match="digits has none"):
        load("digits", path="x")
    with pytest.raises(ConfigError, match="mine was made in Python and is in no file"):
        load("python", path="mine")


def test_bytes_and_floats_give_the_same_pool():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 256, (100, 3)).astype(np.uint8), np.arange(100) % 5
    a, b = assemble("a", x, y), assemble("b", x / 255, y)
    assert torch.allclose(a.x, b.x, atol=1e-5)
    assert a.mean == pytest.approx(b.mean)


def test_tokens_stay_as_they_are():
    x, y = np.arange(40).reshape(20, 2), np.arange(20) % 3
    pool = assemble("a", x, y, tokens=True)
    assert (pool.x.dtype, pool.x.tolist(), pool.mean, pool.std) == (torch.int64, x.tolist(), 0.0, 1.0)
    with pytest.raises(DataError, match="tokens must be integers"):
        assemble("a", x / 2, y, tokens=True)
    with pytest.raises(DataError, match="x of row 1 holds a negative token"):
        assemble("a", np.where(x == 3, -1, x), y, tokens=True)


def test_fingerprint_tells_pools_apart():
    pool = load("synthetic", rows=100)
    assert fingerprint(pool) == fingerprint(load("synthetic", rows=100))
    others = [
        replace(pool, name="other"),
        replace(pool, x=pool.x.double()),
        replace(pool, y=pool.y.flip(0)),
        replace(pool, test=~pool.test),
        replace(pool, user=np.arange(100)),
        replace(pool, server=pool.test),
        replace(pool, validators=pool.test),
        load("synthetic", rows=100, seed=1),
    ]
    assert len({fingerprint(each) for each in (pool, *others)}) == 9


REAL = os.environ.get("POTLUCK_DATA")


@pytest.mark.skipif(not REAL or not Path(REAL, "mnist").is_dir(), reason="$POTLUCK_DATA has no mnist")
def test_real_mnist():
    pool = load("mnist", root=Path(str(REAL)))
    assert (len(pool), pool.shape, pool.test.sum()) == (70_000, (1, 28, 28), 10_000)
    assert (round(pool.mean, 4), round(pool.std, 4)) == (0.1307, 0.3081)  # the constants in use everywhere
    if pool.user is not None:
        counts = np.unique(pool.user[~pool.test], return_counts=True)[1]
        assert (len(counts), counts.min(), counts.max()) == (539, 19, 131)
        assert len(np.unique(pool.user[pool.test])) == 297


@pytest.mark.skipif(not REAL or not Path(REAL, "fashion-mnist").is_dir(), reason="$POTLUCK_DATA has none")
def test_real_fashion_mnist():
    pool = load("fashion-mnist", root=Path(str(REAL)))
    assert (len(pool), pool.shape, pool.test.sum()) == (70_000, (1, 28, 28), 10_000)
    assert np.bincount(pool.y).tolist() == [7_000] * 10
    assert (round(pool.mean, 4), round(pool.std, 4)) == (0.286, 0.353)
