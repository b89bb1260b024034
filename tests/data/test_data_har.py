import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from potluck.core.errors import DataError
from potluck.data import choose_tests, divide, load

SIGNALS = [f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]


def windows():
    """x, y from 0, user, test: people 1 to 4, of whom 4 is tested."""
    rng = np.random.default_rng(0)
    user = np.repeat([1, 2, 3, 4], 6)
    return rng.standard_normal((24, 9, 128)).astype(np.float16), np.arange(24) % 6, user, user == 4


def published():
    """The files as UCI publishes them, by path."""
    x, y, user, test = windows()
    files = {"README.txt": b"read me"}
    for part, rows in (("train", ~test), ("test", test)):
        for i, signal in enumerate(SIGNALS):
            lines = ("  ".join(f"{value:.7e}" for value in row) for row in x[rows, i])
            files[f"{part}/Inertial Signals/{signal}_{part}.txt"] = "\n".join(lines).encode()
        files[f"{part}/y_{part}.txt"] = "\n".join(str(label + 1) for label in y[rows]).encode()
        files[f"{part}/subject_{part}.txt"] = "\n".join(map(str, user[rows])).encode()
    return files


def write_folder(root, files=None):
    for name, content in (files or published()).items():
        path = root / "UCI HAR Dataset" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def check(pool):
    x, y, user, test = windows()
    assert (pool.name, pool.shape, pool.classes) == ("har", (9, 128), 6)
    assert pool.y.tolist() == y.tolist()
    assert pool.user.tolist() == user.tolist()
    assert pool.test.tolist() == test.tolist()
    assert np.allclose(pool.x * pool.std + pool.mean, x, atol=1e-3)


def test_har_from_npz(tmp_path):
    x, y, user, test = windows()
    (tmp_path / "ucihar").mkdir()
    np.savez(tmp_path / "ucihar" / "ucihar.npz", x=x, y=y, user=user, test=test)
    check(load("har", root=tmp_path))


def test_har_as_published(tmp_path):
    write_folder(tmp_path / "unpacked")
    check(load("har", root=tmp_path / "unpacked"))
    inner = zipped({
        **{f"UCI HAR Dataset/{name}": content for name, content in published().items()},
        "__MACOSX/UCI HAR Dataset/train/._y_train.txt": b"litter",
    })  # fmt: skip
    for name, content in (
        ("UCI HAR Dataset.zip", inner),
        ("human+activity+recognition+using+smartphones.zip", zipped({"UCI HAR Dataset.zip": inner})),
    ):
        folder = tmp_path / name[:3] / "ucihar"
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)
        check(load("har", root=folder.parent))


def test_by_user_gives_a_person_a_client(tmp_path):
    write_folder(tmp_path)
    pool = load("har", root=tmp_path)
    partition = divide(pool, "by_user", None, 1)
    assert partition.clients == 3
    for client in range(3):
        rows = np.concatenate([partition.rows(client, split) for split in ("train", "validation", "test")])
        assert set(pool.user[rows]) == {client + 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train/y_train.txt", None, "has no train/y_train.txt"),
        ("train/y_train.txt", b"1\n2\n", "has 18 rows, train/y_train.txt has 2"),
        ("train/y_train.txt", b"7\n" * 18, "label 6 of row 0 is out of range 0 to 5"),
        ("test/y_test.txt", b"", "not a table of numbers"),
        ("test/y_test.txt", b"walking\n", "not a table of numbers"),
        ("test/subject_test.txt", b"1\n" * 6, "person 1 has train and test rows"),
        ("test/Inertial Signals/body_acc_x_test.txt", b"1 2 3\n" * 6, "expected 128 numbers a line"),
        ("test/Inertial Signals/body_acc_x_test.txt", b"1 2\n3\n", "not a table of numbers"),
    ],
)
def test_damaged_folders_are_named(tmp_path, name, content, message):
    files = published()
    files = {key: value for key, value in {**files, name: content}.items() if value is not None}
    write_folder(tmp_path, files)
    with pytest.raises(DataError, match=message):
        load("har", root=tmp_path)


def test_damaged_archives_and_arrays_are_named(tmp_path):
    path = tmp_path / "UCI HAR Dataset.zip"
    whole = zipped(published())
    for cut in (0, 100, len(whole) - 10):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match="not a whole archive"):
            load("har", root=tmp_path)
    path.write_bytes(zipped({"UCI HAR Dataset.zip": zipped({"deeper.zip": whole})}))
    with pytest.raises(DataError, match="has no train"):
        load("har", root=tmp_path)
    x, y, user, test = windows()
    for changes, message in (
        ({"x": x[:, :3]}, r"9 x 128 values, found \[3, 128\]"),
        ({"user": user[:5]}, r"user has shape \[5\], but y has 24 entries"),
        ({"test": test[:, None]}, r"test has shape \[24, 1\], but y has 24 entries"),
        ({"test": np.zeros(24, bool)}, "0 of 24 rows are test rows"),
        ({"user": user % 3}, "person 1 has train and test rows"),
    ):
        np.savez(tmp_path / "ucihar.npz", **{**dict(x=x, y=y, user=user, test=test), **changes})
        with pytest.raises(DataError, match=message):
            load("har", root=tmp_path)
    with pytest.raises(DataError, match="potluck data get har"):
        load("har", root=tmp_path / "elsewhere")


REAL = os.environ.get("POTLUCK_DATA")


@pytest.mark.skipif(not REAL or not Path(REAL, "ucihar").is_dir(), reason="$POTLUCK_DATA has no ucihar")
def test_real_har():
    pool = load("har", root=Path(str(REAL)))
    assert (len(pool), pool.shape, pool.classes) == (10_299, (9, 128), 6)
    assert (int((~pool.test).sum()), int(pool.test.sum())) == (7_352, 2_947)
    assert np.unique(pool.user).tolist() == list(range(1, 31))
    assert divide(pool, "by_user", None, 1).clients == 21


def test_own_rows_can_be_cut_by_time(tmp_path):
    write_folder(tmp_path)
    pool = load("har", root=tmp_path)
    assert choose_tests(pool, "users") is pool  # its test set is other people
    by_time = choose_tests(pool, "time")
    assert np.array_equal(by_time.test, pool.test)
    partition = divide(by_time, "by_user", None, 1)
    for client in range(3):
        train, validation, test = (partition.rows(client, part) for part in ("train", "validation", "test"))
        assert train.max() < validation.min() <= validation.max() < test.min()
