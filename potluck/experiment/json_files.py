"""JSON files of a folder that anybody may have written: checked against a type before they are used."""

import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from potluck.core import safe_files
from potluck.core.codec import Json
from potluck.core.errors import SnapshotError

T = TypeVar("T")
_SPELLED: dict[object, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def write_json(folder: Path, name: str, content: Mapping[str, object]) -> None:
    """Content that people may read, too."""
    safe_files.write_file(folder, name, (json.dumps(content, indent=2) + "\n").encode())


def read_json(folder: Path, name: str, kind: Callable[..., T], fix: str) -> T:
    """What a file holds, as a TypedDict or a class of fields; an error says how to mend the file."""
    return make(read_table(folder, name, fix), kind, folder / name, fix)


def read_table(folder: Path, name: str, fix: str) -> dict[str, Json]:
    """What a file holds that should be a table, whatever is in it."""
    content = parse(safe_files.read_file(folder, name), folder / name, fix)
    if not isinstance(content, dict):
        raise damaged(folder / name, "no table", fix)
    return content


def parse(data: bytes, path: Path, fix: str) -> Json:
    """The value that JSON spells."""
    try:
        value: Json = json.loads(data)
        return value
    except RecursionError:
        raise damaged(path, "nested too deep", fix) from None
    except ValueError as error:
        raise damaged(path, str(error), fix) from None


def make(content: dict[str, Json], kind: Callable[..., T], path: Path, fix: str) -> T:
    """A value of this kind, if all of its fields are there and are what they should be."""
    if (fault := find_fault(content, kind)) is not None:
        raise damaged(path, fault.removeprefix("."), fix)
    try:
        return kind(**content)
    except TypeError as error:
        raise damaged(path, str(error), fix) from None


def damaged(path: Path, why: str, fix: str) -> SnapshotError:
    """The error to raise for a file that isn't what it should be."""
    return SnapshotError(f"{path}: damaged ({why}); {fix}")


def find_fault(value: Json, kind: object) -> str | None:
    """What is wrong with a value that should be of a kind, and where in it; None: nothing is."""
    if (
        type(value) is kind
        or (kind is float and type(value) is int)
        or (kind is types.NoneType and value is None)
    ):
        return None
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        faults = [find_fault(value, each) for each in inner]
        return None if None in faults else faults[0]
    if origin is typing.Literal:
        return None if value in inner else f" should be {' or '.join(map(str, inner))}"
    if origin is list:
        if not isinstance(value, list):
            return " should be a list"
        return _find_first((f"[{i}]", each, inner[0]) for i, each in enumerate(value))
    if kind in _SPELLED:
        return f" should be {_SPELLED[kind]}"
    if not isinstance(value, dict):
        return " should be a table"
    if origin is dict:
        return _find_first((f".{key}", each, inner[1]) for key, each in value.items())
    if not callable(kind):
        return " should be null"
    fields = typing.get_type_hints(kind)
    if missing := [key for key in fields if key not in value and _is_required(kind, key)]:
        return f" has no {missing[0]!r}"
    return _find_first((f".{key}", value[key], fields[key]) for key in fields if key in value)


def _find_first(parts: Iterable[tuple[str, Json, object]]) -> str | None:
    for at, value, kind in parts:
        if (fault := find_fault(value, kind)) is not None:
            return at + fault
    return None


def _is_required(kind: object, key: str) -> bool:
    """A TypedDict says so; a class refuses by itself to be made without."""
    return key in getattr(kind, "__required_keys__", ())
