"""Ways to damage one file of a folder; each gets the folder, a path in it and a generator of chance."""

import json
import os
import shutil

HUGE = 1 << 40  # bytes of a file that takes none on the disk
STRANGE = (
    *(None, True, -1, 0, 1e308, -1e308, float("nan"), float("inf"), 10**40, "", "x", [], {}, [None], [[1]]),
    *({"a": []}, "\x1b[31mred", "<script>alert(1)</script>", "../../etc/passwd", "a" * 5000, [1, "b", {}]),
)


def flip(place, path, rng):
    """Some bits."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 1, 3, 20]) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(place, path, rng):
    """The end is missing, or all of it."""
    data = path.read_bytes()
    path.write_bytes(
        data[: rng.choice([0, len(data) // 2, max(0, len(data) - 1), rng.randrange(len(data) + 1)])]
    )


def grow(place, path, rng):
    """Something stands behind the end."""
    with path.open("ab") as file:
        file.write(rng.choice([b"\0" * 100, b"\n", b"x", rng.randbytes(1000), b'{"round":1}\n']))


def fill(place, path, rng):
    """Other bytes altogether."""
    content = [
        b"[]",
        b"null",
        b"3",
        b"{}",
        b"\xff\xfe",
        b"\0" * 9,
        b"[" * 99_999,
        b'{"a":' * 9999,
        rng.randbytes(500),
    ]
    path.write_bytes(rng.choice(content))


def lose(place, path, rng):
    """It isn't there."""
    path.unlink()


def swap(place, path, rng):
    """It has changed places with another file of the folder."""
    other = rng.choice([each for each in list_files(place) if each != path])
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


def link(place, path, rng):
    """A symbolic link stands in its place: to its content elsewhere, another file, itself or nowhere."""
    outside = place.parent / "outside"
    (outside / "copy").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(rng.choice([outside / "copy", outside / "mine", path, outside / "nothing", outside]))


def link_folder(place, path, rng):
    """A folder is a link to a copy of itself elsewhere."""
    inner = rng.choice(["snapshots", "models"])
    if not (place / inner).is_dir():
        return link(place, path, rng)
    shutil.move(place / inner, place.parent / "outside" / inner)
    (place / inner).symlink_to(place.parent / "outside" / inner)


def nest(place, path, rng):
    """A folder stands in place of the file, or a file in place of its folder."""
    if path.parent != place and rng.random() < 0.5:
        shutil.rmtree(path.parent)
        path.parent.write_bytes(b"no folder")
        return
    path.unlink()
    path.mkdir()
    if rng.random() < 0.5:
        (path / "inner").write_text("something")


def pipe(place, path, rng):
    """A pipe that nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def blow_up(place, path, rng):
    """A terabyte."""
    os.truncate(path, HUGE)


def add_foreign(place, path, rng):
    """Files that nobody knows, some of them half-written ones."""
    names = [
        "notes.txt",
        ".summary.json.partial",
        "snapshots/00000099.snapshot",
        "snapshots/x",
        "models/a.safetensors",
    ]
    names += [
        "snapshots/99999999.snapshot",
        "keep.7.log",
        "records.jsonl.1",
        "\x1b[2Jname",
        ".experiment.toml.partial",
    ]
    name = rng.choice(names)
    if (place / name).parent.is_dir():
        (place / name).write_bytes(rng.choice([b"", path.read_bytes(), rng.randbytes(300)]))


def spoil(place, path, rng):
    """JSON that is right but for some value in it; a text in which one word is another."""
    text = path.read_bytes()
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    for _ in range(rng.choice([1, 1, 5])):
        at = rng.randrange(len(lines)) if lines else 0
        try:
            content = json.loads(lines[at])
        except (ValueError, IndexError):
            return replace_word(path, text, rng)
        lines[at] = json.dumps(put_strange(content, rng)).encode()
    path.write_bytes(b"\n".join(lines) + b"\n" * (path.suffix == ".jsonl"))


def put_strange(content, rng):
    """The same with one value replaced, however deep, or one key missing."""
    if not isinstance(content, dict | list) or not content or rng.random() < 0.1:
        return rng.choice(STRANGE)
    key = rng.choice(list(content) if isinstance(content, dict) else range(len(content)))
    if rng.random() < 0.1:
        del content[key]
    else:
        content[key] = put_strange(content[key], rng)
    return content


def replace_word(path, text, rng):
    words = text.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(
        [b"9", b"-1", b"nan", b'"x"', b"[]", b"9" * 5000, b"1e999", b""]
    )
    path.write_bytes(b" ".join(words))


KINDS = (
    flip,
    spoil,
    cut,
    lose,
    swap,
    spoil,
    fill,
    link,
    nest,
    grow,
    flip,
    link_folder,
    blow_up,
    add_foreign,
    pipe,
)


def list_files(place):
    """The plain files of a folder, those of runs in it too."""
    return sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
