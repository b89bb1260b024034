"""Files that lie about what they hold, or unpack to more than there is: one line, and little memory."""

import gzip
import io
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from potluck.cli import main
from potluck.core.errors import ConfigError, DataError
from potluck.data import load
from potluck.data.sources.allowance import find_most

ZEROS = bytes(5_000_000)
X = np.arange(120, dtype=np.uint8).reshape(30, 4)


@pytest.fixture(autouse=True)
def _little(monkeypatch):
    monkeypatch.setenv("POTLUCK_DATA_GB", "0.002")


def save(path, how=zipfile.ZIP_DEFLATED, **members):
    """An .npz file of bytes or arrays; names as they are written."""
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            if isinstance(content, np.ndarray):
                out = io.BytesIO()
                np.save(out, content)
                content = out.getvalue()
            archive.writestr(name.replace("_npy", ".npy"), content)
    return path


def header(shape, descr="|u1", body=b"", version=(1, 0)):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text + body


@pytest.mark.parametrize(
    ("x", "why"),
    [
        (header((10**12, 4), body=X.tobytes()), r"header says uint8 \[1000000000000, 4\].*but there are 120"),
        (header((30, -4), body=X.tobytes()), r"header says uint8 \[30, -4\]"),
        (header((30, 2), body=X.tobytes()), "60 bytes, but there are 120"),
        (header((15,), "|O", X.tobytes()), "holds Python objects"),
        (header((30, 4), body=X.tobytes(), version=(3, 0)), r"format 3\.0"),
        (b"id,label\n1,2\n", "not a whole .npz file of plain arrays"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, "not a whole .npz file of plain arrays"),
        (header("(" * 200 + ")" * 200), "not a whole .npz file of plain arrays"),
        (header((5_000_000,), body=ZEROS), r"more than 2\.0 MB.*POTLUCK_DATA_GB"),
    ],
)
def test_an_array_is_as_large_as_it_says_and_no_larger_than_it_may_be(tmp_path, x, why):
    save(tmp_path / "a.npz", x_npy=x, y_npy=np.arange(30) % 3)
    with pytest.raises(DataError, match=why) as error:
        load("npz", tmp_path, path="a.npz")
    assert str(tmp_path / "a.npz") in str(error.value)


def test_a_member_that_is_no_array(tmp_path):
    save(tmp_path / "a.npz", x=b"text", y_npy=np.arange(30) % 3)
    with pytest.raises(DataError, match=r"a\.npz: x: not a whole"):
        load("npz", tmp_path, path="a.npz")


def test_a_size_that_can_not_be(tmp_path):
    path = save(tmp_path / "a.npz", how=zipfile.ZIP_STORED, x_npy=X, y_npy=np.arange(30) % 3)
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02") + 24  # of x, in the list at the end
    content[at : at + 4] = struct.pack("<I", 1_000_000)
    path.write_bytes(content)
    with pytest.raises(DataError, match="said to unpack to 1000000, which can't be"):
        load("npz", tmp_path, path="a.npz")


def test_archives_unpack_no_further_than_there_is_room(tmp_path):
    parts = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    (tmp_path / "mnist").mkdir()
    for part, head in zip(parts, (b"\0\0\x08\x03" + struct.pack(">3I", 5_000_000, 1, 1), b""), strict=True):
        (tmp_path / "mnist" / part).write_bytes(gzip.compress(head + ZEROS))
    with pytest.raises(DataError, match=r"mnist: unpacks to more than 2\.0 MB"):
        load("mnist", tmp_path)
    with zipfile.ZipFile(tmp_path / "UCI HAR Dataset.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train/y_train.txt", ZEROS)
    with pytest.raises(DataError, match=r"HAR Dataset\.zip: unpacks to more than 2\.0 MB"):
        load("har", tmp_path)
    (tmp_path / "roles.json.gz").write_bytes(gzip.compress(b'{"a": ["' + ZEROS))
    with pytest.raises(DataError, match="unpacks to more than 62"):  # letters become 32 times as much
        load("shakespeare", tmp_path)
    (tmp_path / "roles.json.gz").write_bytes(gzip.compress(b"[" * 50_000))
    with pytest.raises(DataError, match="lists in lists without end"):
        load("shakespeare", tmp_path)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_member_of_an_archive_is_not_believed(tmp_path, kind):
    member = tarfile.TarInfo("data_batch_1.bin")
    member.size, member.type = 7_000_000_000, kind
    content = member.tobuf() + ZEROS
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=r"unpacks to more than 2\.0 MB"):
        load("cifar-10", tmp_path)


@pytest.mark.parametrize(
    ("pickled", "why"),
    [
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "remembers a value at 2147483647"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.", "not a whole pickle"),
        (b"\x80\x02)" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60)) + b".", "uses a tuple twice"),
    ],
)
def test_a_pickle_takes_no_more_than_it_holds(tmp_path, pickled, why):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(pickled)
    with pytest.raises(DataError, match=why):
        load("cifar-10", tmp_path)


def test_who_means_it_can_have_more(tmp_path, monkeypatch):
    large = np.zeros((60_000, 10), np.float32)
    large[::2] = 1
    np.savez(tmp_path / "a.npz", x=large, y=np.arange(60_000) % 3)
    with pytest.raises(DataError, match="POTLUCK_DATA_GB"):
        load("npz", tmp_path, path="a.npz")
    monkeypatch.setenv("POTLUCK_DATA_GB", "0.01")
    assert len(load("npz", tmp_path, path="a.npz")) == 60_000
    monkeypatch.delenv("POTLUCK_DATA_GB")
    assert find_most() > 10_000_000
    for wrong in ("much", "0", "-1", "nan", "inf"):
        monkeypatch.setenv("POTLUCK_DATA_GB", wrong)
        with pytest.raises(ConfigError, match="a number of gigabytes above 0"):
            load("npz", tmp_path, path="a.npz")


def test_the_command_says_it_in_a_line(tmp_path, capsys):
    save(tmp_path / "a.npz", x_npy=header((10**12, 4)), y_npy=np.arange(30) % 3)
    (tmp_path / "e.toml").write_text(f'[data]\nsource = "npz"\npath = "{tmp_path}/a.npz"\nclients = 2\n')
    with pytest.raises(SystemExit) as end:
        main(["data", str(tmp_path / "e.toml")])
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.count("\n") == 1
    assert "header says uint8" in said
