"""TOML in and out: syntax errors in one line, and what experiments hold, written."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from potluck.core.codec import Json
from potluck.core.errors import ConfigError, show_short


def read(path: Path) -> dict[str, Json]:
    """The content of a TOML file."""
    try:
        return parse(path.read_bytes(), path)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; write one, or start from examples/demo.toml") from None
    except IsADirectoryError:
        fix = (
            f"resume it with `potluck resume {path}`"
            if (path / "experiment.toml").exists()
            else "name a file"
        )
        raise ConfigError(f"{path}: a folder, not an experiment's TOML file; {fix}") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from None


def parse(content: bytes, path: Path) -> dict[str, Json]:
    """What a TOML file holds that has been read already."""
    try:
        text = content.decode("utf-8-sig")  # some editors begin a file with a byte order mark
        return tomllib.loads(text + "\n")  # else an error in the last line names none
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is no UTF-8; save the file as UTF-8 text") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deep; write fewer brackets") from None
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        where = f"{path}, {place.removesuffix(')')}" if place else path
        raise ConfigError(f"{where}: not valid TOML: {what}") from None
    except ValueError:  # Python's, of digits that it doesn't read
        raise ConfigError(f"{path}: an integer has thousands of digits; write one of 64 bits") from None


def parse_literal(text: str) -> Json:
    """A value as TOML reads it; what TOML can't read, or reads as a date, is a string."""
    try:
        read = tomllib.loads(f"it = {text}") if "\n" not in text else {}
    except (ValueError, RecursionError):
        return text
    found = read.get("it")
    return found if isinstance(found, bool | int | float | str | list | dict) else text


def write(table: Mapping[str, object]) -> str:
    """A table as TOML; entries that are None are left out."""
    return tomli_w.dumps({key: _without_none(entry) for key, entry in table.items() if entry is not None})


def find_change(old: Mapping[str, Json], new: Mapping[str, Json]) -> str | None:
    """The first key of two tables whose value differs, with both values; None if there is none."""
    for key in dict.fromkeys([*old, *new]):
        before, now = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(now, dict):
            inner = find_change(before, now)
            if inner is not None:
                return f"{key}.{inner}"
        elif before != now:
            told = ["left out" if value is None else show_short(value) for value in (before, now)]
            return f"{key} = {told[0]} there, {told[1]} here"
    return None


def _without_none(value: object) -> Json:
    if isinstance(value, dict):
        return {key: _without_none(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_without_none(entry) for entry in value]
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(f"a {type(value).__name__} can't be written to an experiment file: {value!r}")
    return value
