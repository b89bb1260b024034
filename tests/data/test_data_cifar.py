import contextlib
import io
import pickle
import struct
import tarfile

import numpy as np
import pytest
import torch

from potluck.core.errors import DataError
from potluck.data import load

NAMES = {
    "cifar-10": ([f"data_batch_{i}" for i in range(1, 6)], "test_batch"),
    "cifar-100": (["train"], "test"),
}


def batches(name, rows=6):
    """Every file's pixels [rows, 3072] and labels: fine and coarse."""
    rng = np.random.default_rng(0)
    train, test = NAMES[name]
    fine = 10 if name == "cifar-10" else 100
    return {
        file: (
            rng.integers(0, 256, (rows, 3072)).astype(np.uint8),
            rng.integers(0, fine, rows),
            np.arange(rows),
        )
        for file in (*train, test)
    }


def python_2_pickle(pixels, labels):
    """A dict as Python 2 wrote it with protocol 2: the form of the published files."""

    def text(value):
        return (
            b"T" + struct.pack("<I", len(value)) + value
            if len(value) > 255
            else b"U" + bytes([len(value)]) + value
        )

    def number(value):
        return b"K" + bytes([value])

    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R"
        + b"(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    shape = b"".join(b"J" + struct.pack("<i", size) for size in pixels.shape) + b"\x86"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        + b"cnumpy\nndarray\n"
        + b"K\x00\x85"
        + text(b"b")
        + b"\x87R"
    )
    array += b"(K\x01" + shape + dtype + b"\x89" + text(pixels.tobytes()) + b"tb"
    out = b"\x80\x02}(" + text(b"data") + array
    for key, values in labels.items():
        out += text(key.encode()) + b"](" + b"".join(number(int(value)) for value in values) + b"e"
    return out + b"u."


def binary(name, pixels, fine, coarse):
    columns = [fine] if name == "cifar-10" else [coarse, fine]
    return np.concatenate([*(c[:, None].astype(np.uint8) for c in columns), pixels], axis=1).tobytes()


def pickled(name, pixels, fine, coarse, protocol):
    keys = {"labels": fine} if name == "cifar-10" else {"fine_labels": fine, "coarse_labels": coarse}
    if protocol is None:
        return python_2_pickle(pixels, keys)
    return pickle.dumps({"data": pixels, **{key: value.tolist() for key, value in keys.items()}}, protocol)


def contents(name, version, protocol=None):
    made = batches(name)
    if version == "bin":
        return {f"{file}.bin": binary(name, *parts) for file, parts in made.items()}
    return {file: pickled(name, *parts, protocol) for file, parts in made.items()}


def write(root, name, version, packed=False, files=None):
    files = contents(name, version) if files is None else files
    stem = {"bin": "cifar-10-batches-bin", "py": "cifar-10-batches-py"}[version]
    folder = stem if name == "cifar-10" else f"cifar-100-{'binary' if version == 'bin' else 'python'}"
    if packed:
        path = root / f"{name}-{'binary' if version == 'bin' else 'python'}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for file, content in files.items():
                member = tarfile.TarInfo(f"{folder}/{file}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return path
    (root / folder).mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (root / folder / file).write_bytes(content)
    return root / folder


@pytest.mark.parametrize("name", ["cifar-10", "cifar-100"])
@pytest.mark.parametrize("version", ["bin", "py"])
@pytest.mark.parametrize("packed", [True, False])
def test_every_version_gives_the_same_rows(tmp_path, name, version, packed):
    write(tmp_path, name, version, packed)
    pool = load(name, root=tmp_path)
    made = batches(name)
    assert pool.classes == (10 if name == "cifar-10" else 100)
    assert pool.y.tolist() == [label for _, fine, _ in made.values() for label in fine]
    assert pool.test.tolist() == [False] * (len(made) - 1) * 6 + [True] * 6
    assert pool.shape == (3, 32, 32)
    values = (pool.x * pool.std + pool.mean) * 255
    pixels = np.concatenate([pixels for pixels, _, _ in made.values()])
    assert np.allclose(values.reshape(-1, 3072), pixels, atol=1e-2)
    if name == "cifar-100":
        coarse = load(name, root=tmp_path, coarse=True)
        assert (coarse.classes, coarse.y.tolist()) == (20, [0, 1, 2, 3, 4, 5] * 2)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_pickles_of_this_python(tmp_path, protocol):
    write(tmp_path, "cifar-10", "py", files=contents("cifar-10", "py", protocol))
    assert len(load("cifar-10", root=tmp_path)) == 36


def test_the_first_rows_are_the_same_cut_or_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.data.sources.builtin._FIRST", (7, 2))
    (tmp_path / "cut").mkdir()
    write(tmp_path / "cut", "cifar-10", "bin")
    cut = load("cifar-10-first", root=tmp_path / "cut")
    made = batches("cifar-10")
    pixels = np.concatenate([pixels for pixels, _, _ in made.values()]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([fine for _, fine, _ in made.values()])
    kept = [*range(7), 30, 31]
    assert cut.y.tolist() == labels[kept].tolist()
    assert cut.test.tolist() == [False] * 7 + [True] * 2
    (tmp_path / "file" / "cifar10").mkdir(parents=True)
    place = tmp_path / "file" / "cifar10" / "cifar10_21k.npz"
    np.savez(place, x=pixels[kept], y=labels[kept], test=np.arange(9) >= 7)
    whole = load("cifar-10-first", root=tmp_path / "file")
    assert (whole.name, whole.mean, whole.std, whole.classes) == (cut.name, cut.mean, cut.std, 10)
    assert torch.equal(whole.x, cut.x)
    assert torch.equal(whole.y, cut.y)


def test_folder_of_the_name_and_binary_first(tmp_path):
    write(tmp_path / "cifar-10", "cifar-10", "bin")
    write(tmp_path / "cifar-10", "cifar-10", "py", files={"data_batch_1": b"damaged"})
    assert len(load("cifar-10", root=tmp_path)) == 36
    with pytest.raises(DataError, match="potluck data get cifar-100") as error:
        load("cifar-100", root=tmp_path)
    assert str(tmp_path / "cifar-100") in str(error.value)
    assert "cifar-100-python.tar.gz" in str(error.value)


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: pickle.dumps(Evil(print, ("harm",))), "names builtins.print"),
        (lambda: pickle.dumps(Evil(__import__("os").system, ("true",))), "names posix.system"),
        (lambda: pickle.dumps({"data": Evil(eval, ("1",)), "labels": []}), "names builtins.eval"),
        (lambda: b"cnumpy\nload\n.", "names numpy.load"),
        (lambda: b"cnumpy.core.multiarray\nscalar\n.", "names numpy.core.multiarray.scalar"),
        (lambda: b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "text in 'rot13'"),
        (lambda: b"\x80\x04\x8c\x05numpy\x8c\x0bload.system\x93.", "names numpy.load.system"),
        (lambda: contents("cifar-10", "py")["data_batch_1"][:-40], "not a whole pickle"),
        (lambda: b"", "not a whole pickle"),
        (lambda: b"<html>", "not a whole pickle"),
        (lambda: pickle.dumps([1, 2]), "expected an array 'data' and a list 'labels'"),
        (lambda: pickle.dumps({"data": 3, "labels": [1]}), "expected an array 'data'"),
        (lambda: pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": ["a"]}, 2), "whole numbers"),
        (
            lambda: pickle.dumps({"data": np.zeros((1, 3072), np.int64), "labels": [1]}, 2),
            "rows of 3072 bytes",
        ),
        (
            lambda: pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, 2),
            "rows of 3072 bytes",
        ),
        (lambda: pickle.dumps({"data": np.array([{}], object), "labels": [1]}, 2), "not a whole pickle"),
        (lambda: pickle.dumps({"data": np.zeros((2, 4), np.uint8).T, "labels": [1]}, 2), "another kind"),
    ],
)
def test_pickles_that_are_no_batches_run_nothing(tmp_path, content, message, capsys):
    folder = write(tmp_path, "cifar-10", "py")
    (folder / "data_batch_1").write_bytes(content())
    with pytest.raises(DataError, match=message) as error:
        load("cifar-10", root=tmp_path)
    assert f"{folder}: data_batch_1" in str(error.value)
    assert capsys.readouterr().out == ""


def test_flipped_bytes_never_raise_anything_else(tmp_path):
    folder = write(tmp_path, "cifar-10", "py")
    whole = pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [1]}, 2)
    heads = [at for at in range(len(whole)) if at < 200 or at > len(whole) - 60]
    for at in heads:
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        (folder / "data_batch_1").write_bytes(damaged)
        with contextlib.suppress(DataError):
            load("cifar-10", root=tmp_path)


def test_damaged_binary_files_are_named(tmp_path):
    folder = write(tmp_path, "cifar-100", "bin")
    (folder / "train.bin").write_bytes(b"x" * 3073)
    with pytest.raises(DataError, match=r"train\.bin: expected rows of 3074 bytes, found 3073"):
        load("cifar-100", root=tmp_path)
    (folder / "train.bin").write_bytes(b"\xff" * 3074)
    with pytest.raises(DataError, match="label 255 of row 0 is out of range 0 to 99"):
        load("cifar-100", root=tmp_path)
    (folder / "test.bin").unlink()
    with pytest.raises(DataError, match=r"has no test\.bin"):
        load("cifar-100", root=tmp_path)


def test_archives_that_broke_off(tmp_path):
    path = write(tmp_path, "cifar-10", "bin", packed=True)
    whole = path.read_bytes()
    for cut in (0, 5, 100, len(whole) // 2, len(whole) - 9):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: (not a whole archive|has no|can't)"):
            load("cifar-10", root=tmp_path)
    damaged = bytearray(whole)
    damaged[-6] ^= 1  # in gzip's checksum
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="CRC check failed"):
        load("cifar-10", root=tmp_path)
