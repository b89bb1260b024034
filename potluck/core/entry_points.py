"""What installed packages offer Potluck: entry points, listed without importing them, loaded when used."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from potluck.core.errors import PotluckError

GROUPS = ("potluck.algorithms", "potluck.models", "potluck.data")
_CALLED: set[str] = set()  # groups


@cache
def list_entries(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; two packages may offer the same one."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, []).append(entry)
    return found


def call_all(group: str) -> None:
    """Call what every entry point of a group names, once a process: each registers what it offers."""
    if group in _CALLED:
        return
    _CALLED.add(group)
    try:
        for entry in (entry for entries in list_entries(group).values() for entry in entries):
            with blame(entry):
                entry.load()()
    except BaseException:
        _CALLED.discard(group)
        raise


def find_package(module: str) -> tuple[str, str] | None:
    """Name and version of the package that a module is of, if that offers Potluck anything."""
    for entry in (entry for group in GROUPS for entries in list_entries(group).values() for entry in entries):
        if entry.dist is not None and entry.module.partition(".")[0] == module.partition(".")[0]:
            return entry.dist.name, entry.dist.version
    return None


def list_versions() -> dict[str, str]:
    """The packages that offer Potluck anything, and their versions."""
    entries = (entry for group in GROUPS for entries in list_entries(group).values() for entry in entries)
    return {entry.dist.name: entry.dist.version for entry in entries if entry.dist is not None}


@contextmanager
def blame(entry: EntryPoint) -> Iterator[None]:
    """Name the entry point in what goes wrong while it is loaded: code of others may fail in any way."""
    try:
        yield
    except PotluckError as error:
        raise error.retell(f"{describe(entry)}: {error}") from error.__cause__
    except Exception as error:  # named, and its traceback shown
        text = f"{describe(entry)}: can't be loaded ({type(error).__name__}: {error}); mend or remove it"
        raise PotluckError(text).blame(error, (ImportError,)) from error


def describe(entry: EntryPoint) -> str:
    """An entry point as errors name it."""
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return f"entry point {entry.name} = {entry.value!r} of {package} ({entry.group})"
