"""What installed packages offer Potluck: entry points, listed without importing them, loaded when used."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from potluck.core.errors import PotluckError


@cache
def offered(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; two packages may offer the same one."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, []).append(entry)
    return found


def load(entry: EntryPoint) -> object:
    """What an entry point names."""
    try:
        loaded: object = entry.load()
    except Exception as error:  # code of others, which may fail in any way
        why = f"{type(error).__name__}: {error}"
        raise PotluckError(f"{describe(entry)} can't be loaded ({why}): mend or remove it") from error
    return loaded


def describe(entry: EntryPoint) -> str:
    """An entry point as errors name it."""
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return f"entry point {entry.group} {entry.name} = {entry.value!r} of {package}"
