"""TOML in and out: syntax errors in one line, and a writer for what experiments hold."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from potluck.errors import ConfigError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_bytes().decode() + "\n")  # else an error in the last line names none
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; write one, or start from examples/demo.toml") from None
    except IsADirectoryError:
        fix = (
            f"resume it with `potluck resume {path}`"
            if (path / "experiment.toml").exists()
            else "name a file"
        )
        raise ConfigError(f"{path}: a folder, not an experiment's TOML file; {fix}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is no UTF-8; save the file as UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from None
    except tomllib.TOMLDecodeError as error:
        what, place = re.fullmatch(r"(.*?)(?: \(at (.*)\))?", str(error), re.DOTALL).groups()  # type: ignore[union-attr]
        raise ConfigError(f"{path}{f', {place}' if place else ''}: not valid TOML: {what}") from None


def literal(text: str) -> Any:
    """A value as TOML reads it; what TOML can't read, or reads as a date, is a string."""
    try:
        read = tomllib.loads(f"it = {text}") if "\n" not in text else {}
    except tomllib.TOMLDecodeError:
        return text
    return read["it"] if isinstance(read.get("it"), bool | int | float | str | list | dict) else text


def write(table: dict[str, Any]) -> str:
    """A table as TOML; entries that are None are left out."""
    return "\n".join(_lines(table, ())) + "\n"


def _lines(table: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    here = {key: value for key, value in table.items() if value is not None}
    flat = [f"{_key(k)} = {_value(v)}" for k, v in here.items() if not isinstance(v, dict)]
    inner = [line for k, v in here.items() if isinstance(v, dict) for line in _lines(v, (*path, k))]
    head = ["", f"[{'.'.join(map(_key, path))}]"] if path and (flat or not inner) else []
    return head + flat + inner


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    raise ConfigError(f"a {type(value).__name__} can't be written to an experiment file: {value!r}")
