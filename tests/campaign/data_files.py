"""Damaged and hostile data files: each gives rows, or one line, in little memory."""

import gzip
import io
import json
import os
import pickle
import random
import resource
import signal
import struct
import tarfile
import traceback
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from potluck.core.errors import ConfigError, DataError
from potluck.data import Pool, load

TITLE = "damaged and hostile data files of every format"
COUNT = 3_000
QUICK = 90

ALLOWED = "0.03"  # gigabytes that files may unpack to
MEGABYTES = 400  # that reading them may take, at most
SECONDS = 60
GIGA = 1 << 30
ZEROS = b"\0" * (1 << 20)


def attempt(number: int, folder: Path) -> None:
    rng = random.Random(number)
    source, options, files = rng.choice(SETS)()
    if number % 2:
        name, content = rng.choice(list(files.items()))
        files[name] = rng.choice(DAMAGES)(rng, content)
    else:
        source, options, files = rng.choice(HOSTILE)(rng)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    said = in_child(lambda: load(source, folder, **options))
    assert "\n" not in said, said


def in_child(call: Callable[[], Pool]) -> str:
    """What is said of files, by a process that may take no more memory, and is measured."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        said = watch(call)
        os.write(writer, said.encode(errors="replace")[:60_000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode()
    _, code = os.waitpid(child, 0)
    assert not code, f"ended by {code}: {said}"
    assert not said.startswith("!"), said
    return said


def watch(call: Callable[[], Pool]) -> str:
    try:
        os.environ["POTLUCK_DATA_GB"] = ALLOWED
        signal.alarm(SECONDS)
        room = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (room + 2 * GIGA, room + 2 * GIGA))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            said = f"{len(call())} rows"
        except (DataError, ConfigError) as error:
            said = (
                f"! a fault: {error.__cause__!r}"
                if getattr(error, "trace", "")
                else f"{type(error).__name__}: {error}"
            )
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        return said if taken < MEGABYTES else f"! took {taken:.0f} MB: {said}"
    except BaseException:
        return f"!{traceback.format_exc()}"


# ------------------------------------------------------------------------------------------- good files

Files = dict[str, bytes]
Set = tuple[str, dict[str, str], Files]  # a source, its options, its files


def own() -> Set:
    return "npz", {"path": "own.npz"}, {"own.npz": savez(**rows())}


def own_packed() -> Set:
    return "npz", {"path": "own.npz"}, {"own.npz": savez(np.savez_compressed, **rows())}


def rows() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).integers(0, 255, (60, 1, 4, 4), np.uint8)
    return {"x": x, "y": np.arange(60) % 3, "user": np.arange(60) // 10, "test": np.arange(60) % 5 == 0}


def savez(save=np.savez, **arrays) -> bytes:
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def idx(pack: Callable[[bytes], bytes] = bytes, end: str = "") -> Set:
    files = {}
    for part, count in (("train", 30), ("t10k", 12)):
        images = np.random.default_rng(0).integers(0, 255, (count, 4, 4), np.uint8)
        labels = (np.arange(count) % 3).astype(np.uint8)
        files[f"{part}-images-idx3-ubyte{end}"] = pack(to_idx(images))
        files[f"{part}-labels-idx1-ubyte{end}"] = pack(to_idx(labels))
    return "idx", {"path": "."}, files


def idx_packed() -> Set:
    return idx(gzip.compress, ".gz")


def to_idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@cache
def signals() -> Files:
    made, rng = {}, np.random.default_rng(0)
    for part, people in (("train", (1, 2)), ("test", (3, 4))):
        kinds = [f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]
        for kind in kinds:
            lines = [" ".join(f"{v:.3f}" for v in row) for row in rng.normal(size=(6, 128))]
            made[f"{part}/Inertial Signals/{kind}_{part}.txt"] = "\n".join(lines).encode()
        made[f"{part}/y_{part}.txt"] = b"1\n2\n3\n4\n5\n6\n"
        made[f"{part}/subject_{part}.txt"] = "".join(f"{people[i % 2]}\n" for i in range(6)).encode()
    return made


def har() -> Set:
    return "har", {}, {f"UCI HAR Dataset/{name}": content for name, content in signals().items()}


def har_zip() -> Set:
    return "har", {}, {"UCI HAR Dataset.zip": zipped(har()[2])}


def har_twice() -> Set:
    inner = zipped(har()[2])
    return "har", {}, {"human+activity+recognition+using+smartphones.zip": zipped({"UCI HAR.zip": inner})}


def har_npz() -> Set:
    x = np.random.default_rng(0).normal(size=(24, 9, 128)).astype(np.float32)
    user, test = np.arange(24) // 6, np.arange(24) >= 12
    return "har", {}, {"ucihar.npz": savez(x=x, y=np.arange(24) % 6, user=user, test=test)}


def zipped(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def batches(kind: str) -> Files:
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    pixels = np.random.default_rng(0).integers(0, 255, (4, 3072), np.uint8)
    if kind == "bin":
        line = np.concatenate([np.arange(4, dtype=np.uint8)[:, None], pixels], axis=1).tobytes()
        return {f"{name}.bin": line for name in names}
    return {name: pickle.dumps({"data": pixels, "labels": [0, 1, 2, 3]}, 2) for name in names}


def cifar_bin() -> Set:
    return "cifar-10", {}, {f"cifar-10-batches-bin/{name}": each for name, each in batches("bin").items()}


def cifar_py() -> Set:
    return "cifar-10", {}, {f"cifar-10-batches-py/{name}": each for name, each in batches("py").items()}


def cifar_tar() -> Set:
    return "cifar-10", {}, {"cifar-10-python.tar.gz": gzip.compress(tarred(cifar_py()[2]))}


def cifar_tar_bin() -> Set:
    return "cifar-10", {}, {"cifar-10-binary.tar.gz": gzip.compress(tarred(cifar_bin()[2]))}


def tarred(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def roles() -> Set:
    content = {f"ROLE {i}": [f"speech {i} " * 20, "to be or not"] for i in range(8)}
    return "shakespeare", {}, {"shakespeare/roles.json": json.dumps(content).encode()}


def roles_packed() -> Set:
    name, options, files = roles()
    return name, options, {f"{key}.gz": gzip.compress(content) for key, content in files.items()}


SETS = (
    *(own, own_packed, idx, idx_packed, har, har_zip, har_twice, har_npz),
    *(cifar_bin, cifar_py, cifar_tar, cifar_tar_bin, roles, roles_packed),
)


# ---------------------------------------------------------------------------------------------- damage


def flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 100))):
        near = rng.choice((len(changed), min(300, len(changed))))  # headers are short
        at = rng.randrange(near)
        changed[rng.choice((at, len(changed) - 1 - at))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def splice(rng: random.Random, data: bytes) -> bytes:
    at, start = rng.randrange(len(data)), rng.randrange(len(data))
    piece = rng.choice(
        (rng.randbytes(20), data[start : start + rng.randrange(400)], bytes(400), b"\n1e99 NaN")
    )
    return data[:at] + piece + data[at + rng.choice((0, len(piece))) :]


def replace(rng: random.Random, data: bytes) -> bytes:
    """Something else altogether, whose name is right."""
    others = (b"", b"<html>not found</html>", rng.randbytes(500), bytes(5000), b"\x93NUMPY\x01\x00v\x00{")
    return rng.choice((*others, gzip.compress(data), zipped({"x": data}), data + data, data[::-1]))


def unpack_and(change: Callable[[random.Random, bytes], bytes]) -> Callable[[random.Random, bytes], bytes]:
    """Damage below a good packing, which checksums don't see."""

    def damage(rng: random.Random, data: bytes) -> bytes:
        if data[:2] == b"\x1f\x8b":
            return gzip.compress(change(rng, gzip.decompress(data)))
        if data[:2] != b"PK":
            return change(rng, data)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(list(members))
        return zipped({**members, name: damage(rng, members[name]) if members[name] else b""})

    return damage


DAMAGES = (flip, cut, splice, replace, *map(unpack_and, (flip, flip, cut, splice, splice, replace)))


# --------------------------------------------------------------------------------------------- malice


def deflated(count: int) -> bytes:
    """So many zeros, deflated: a thousandth of them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(ZEROS) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * (count >> 20) + packer.flush(zlib.Z_FINISH)


def gzipped(head: bytes, count: int) -> bytes:
    """A gzip file of some bytes and many zeros; its checksum is wrong, but who gets there?"""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    begun = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + begun + deflated(count) + bytes(8)


def zip_of(name: str, packed: bytes, size: int, how: int = zipfile.ZIP_DEFLATED, others: Files | None = None):
    """A zip with a member that is said to have this size."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for other, content in (others or {}).items():
            archive.writestr(other, content)
        archive.writestr(name, packed)
        member = archive.getinfo(name)
        member.compress_type, member.file_size = how, min(size, 0xFFFFFFFE)
    return out.getvalue()


def npy(head: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = head.encode() + b"\n"
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + body


def header(shape: str, descr: str = "'|u1'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def npz_with(x: bytes, name: str = "x.npy") -> Set:
    others = {f"{key}.npy": savez(y=array) for key, array in rows().items() if key != "x"}
    with zipfile.ZipFile(io.BytesIO(savez(**rows()))) as archive:
        others = {key: archive.read(key) for key in archive.namelist() if key != "x.npy"}
    return "npz", {"path": "own.npz"}, {"own.npz": zipped({**others, name: x})}


def lying_shape(rng: random.Random) -> Set:
    shapes = ("(1000000000000,)", "(60, 1000000, 1000000)", "(60, -4)", "(0, 1000000000000)", "(2**40,)")
    more = ("(60, 4, 4)", "(True, 4)", "(" * 300 + ")" * 300, "()", "(60,4,4,)*9", "[60, 16]", "(1e9,)")
    kinds = ("'|u1'", "'<f8'", "'|O'", "'<U999999999'", "[('a', '<f4')]", "'<M8[s]'", "'|V9'", "3", "'<c16'")
    version = rng.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    body = bytes(rng.choice((0, 960, 60 * 16)))
    return npz_with(npy(header(rng.choice(shapes + more), rng.choice(kinds)), body, version))


def odd_member(rng: random.Random) -> Set:
    contents = (
        b"",
        b"text",
        pickle.dumps([1]),
        b"\x93NUMPY",
        npy("(" * 9000),
        npy("{" * 60_000),
        npy("a" * 9),
    )
    many = npy("9" * 30_000) + bytes(99)
    return npz_with(rng.choice((*contents, many)), rng.choice(("x.npy", "x", "x.npy")))


def npz_bomb(rng: random.Random) -> Set:
    count = rng.choice((GIGA >> 3, GIGA, 3 * GIGA))
    head = npy(header(f"({rng.choice((count, 60))}, 1)"))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH) + deflated(count)
    with zipfile.ZipFile(io.BytesIO(savez(**rows()))) as archive:
        others = {key: archive.read(key) for key in archive.namelist() if key != "x.npy"}
    how = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA, 77))
    said = rng.choice((len(head) + count, 960, 0))
    return "npz", {"path": "own.npz"}, {"own.npz": zip_of("x.npy", packed, said, how, others)}


def idx_bomb(rng: random.Random) -> Set:
    source, options, files = idx_packed()
    sizes = rng.choice(((30, 4, 4), (GIGA, 1, 1), (2**31, 2**31, 255), (0, 4, 4), (30, 0, 0)))
    head = bytes([0, 0, 8, 3]) + struct.pack(">3I", *sizes)
    name = rng.choice([name for name in files if "images" in name])
    return source, options, {**files, name: gzipped(head, rng.choice((0, GIGA >> 3, 4 * GIGA)))}


def har_bomb(rng: random.Random) -> Set:
    source, options, files = har()
    name = rng.choice(list(files))
    packed, said = deflated(GIGA), rng.choice((GIGA, 100, 2**32 - 2))
    rest = {key: content for key, content in files.items() if key != name}
    bomb = zip_of(name, packed, said, zipfile.ZIP_DEFLATED, rest)
    if rng.random() < 0.3:
        bomb = zip_of("inner.zip", deflated(GIGA), GIGA)
    return source, options, {"UCI HAR Dataset.zip": bomb if rng.random() < 0.7 else zipped({"a.zip": bomb})}


def tar_bomb(rng: random.Random) -> Set:
    """A huge member, a huge header, a sparse file, or zeros after the end."""
    member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    member.size = rng.choice((GIGA, 8 * GIGA - 1))
    kind = rng.choice((tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE))
    member.type = kind
    head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    if kind == tarfile.GNUTYPE_SPARSE:
        head[386 + 96 + 1 : 386 + 96 + 13] = b"77777777777\0"  # its real size
        head[124:136] = b"00000000000\0"
        head[148:156] = b" " * 8
        head[148:156] = f"{sum(head[:512]):06o}\0 ".encode()
    good = tarred(cifar_bin()[2])
    content = rng.choice((bytes(head), good[:-10240] + bytes(head), good))
    return "cifar-10", {}, {"cifar-10-binary.tar.gz": gzipped(content, rng.choice((0, GIGA, 4 * GIGA)))}


def pickle_bomb(rng: random.Random) -> Set:
    source, options, files = cifar_py()
    good = batches("py")["test_batch"]
    doubled = b"\x80\x02)" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(200)) + b"}q\xffh\xc7K\x01s."
    bombs = (
        good[:-1] + b"r\xff\xff\xff\x7f.",
        b"\x80\x02Nr\xff\xff\xff\x7f.",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
        b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.",
        b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b".",
        b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".",
        b"p99999999999\nN.",
        b"L" + b"9" * 100_000 + b"L\n.",
        doubled,
    )
    return source, options, {**files, rng.choice(list(files)): rng.choice(bombs)}


def json_bomb(rng: random.Random) -> Set:
    texts = (
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"[" + b"[]," * 400_000 + b"[]]",
        b'{"a": ["' + b"x" * 3_000_000 + b'"], "b": ["y"]}',
        b'{"a": [' + b"9" * 10_000 + b"]}",
        json.dumps({"a": ["\ud800" * 500], "b": ["x" * 500], "\udfff": ["z" * 900]}).encode(),
        b"\xff\xfe" + "{}".encode("utf-16-le"),
        b"NaN",
    )
    if rng.random() < 0.3:
        return (
            "shakespeare",
            {},
            {"shakespeare/roles.json.gz": gzipped(b'{"a": ["', rng.choice((0, 4 * GIGA)))},
        )
    return "shakespeare", {}, {"shakespeare/roles.json": rng.choice(texts)}


def odd_arrays(rng: random.Random) -> Set:
    """Whole files of arrays that make no sense."""
    (source, options, files), count = rng.choice(((own(), 60), (har_npz(), 24)))
    odd = (
        np.array(3),
        np.zeros((count, 0)),
        np.full(count, np.nan),
        np.array(["a"] * count),
        np.array([b"a"] * count),
        np.zeros(count, np.complex64),
        np.arange(count, dtype=np.uint64) << np.uint64(58),
        np.full((count, 2), 1e300),
        np.zeros(count, "datetime64[s]"),
        np.zeros((count, 1, 1, 1, 1, 1, 1)),
        np.zeros(count, [("a", "<f4")]),
        np.full(count, -1),
        np.full(count, 2**62),
        np.array([], np.int64),
    )
    name = next(iter(files))
    with np.load(io.BytesIO(files[name])) as arrays:
        changed = {**arrays, rng.choice(("x", "y", "user", "test")): rng.choice(odd)}
    return source, options, {name: savez(**changed)}


HOSTILE = (
    *(lying_shape, odd_member, npz_bomb, idx_bomb, har_bomb, tar_bomb, pickle_bomb, json_bomb),
    *(odd_arrays, odd_arrays, lying_shape),
)
