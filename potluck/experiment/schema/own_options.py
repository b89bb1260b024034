"""Options of sources and partitions, which are keys of [data] too: those of the user's own are checked here.

An option is a parameter with a default. Its type is what it is annotated with, else that of the default.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from potluck.core.ranges import give_ends
from potluck.data import PARTITIONS, SOURCES, list_options

_CONFIG = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)


class Option(NamedTuple):
    """What may be set of a source or a partition."""

    type: Any  # None: anything
    default: object  # None: nothing that a file could hold


def find_options(table: Mapping[str, object]) -> dict[str, Option]:
    """The options of the source and of the partition that a table names, as far as they are known."""
    source, partition, found = table.get("source"), table.get("partition"), dict[str, Option]()
    if isinstance(source, str) and source in SOURCES:
        found |= _read_options(SOURCES[source], list_options(source))
    if isinstance(partition, str) and partition in PARTITIONS:
        found |= _read_options(PARTITIONS[partition].deal, PARTITIONS[partition].own)
    return found


def check_options(
    table: Mapping[str, object], fields: Mapping[str, object], recorded: bool
) -> dict[str, object]:
    """The table with its options as their types say; keys that are neither fields nor options are refused.

    What was recorded was right then, and its code may not be here: nothing of it is refused.
    """
    others = [key for key in table if key not in fields]
    if not others:  # most tables have none: then nobody else's package is asked
        return dict(table)
    source, partition = table.get("source", "digits"), table.get("partition", "dirichlet")
    known = source in [*SOURCES] and partition in [*PARTITIONS]  # else that is what will be told
    options = find_options({"source": source, "partition": partition})
    problems: list[InitErrorDetails] = []
    checked = dict(table)
    for key in others:
        if key in options:
            try:
                checked[key] = _fit(table[key], options[key])
            except ValidationError as error:
                first = error.errors()[0]
                why = PydanticCustomError("option_type", "{why}", {"why": first["msg"]})
                problems.append({"type": why, "loc": (key,), "input": table[key]})
        elif known:
            all_keys = list(dict.fromkeys([*fields, *options]))
            why = PydanticCustomError("extra_forbidden", "no such key", {"known": all_keys})
            problems.append({"type": why, "loc": (key,), "input": table[key]})
    if problems and not recorded:
        raise ValidationError.from_exception_data("data", problems)
    return checked


def _read_options(make: Callable[..., object], names: Collection[str]) -> dict[str, Option]:
    try:
        hints = typing.get_type_hints(make)
    except (NameError, TypeError):  # written as text that means nothing here: not checked
        hints = {}
    given = inspect.signature(make).parameters
    defaults = {name: given[name].default for name in names}
    types = {name: None if value is None else type(value) for name, value in defaults.items()}
    return {name: Option(hints.get(name, types[name]), _plain(defaults[name])) for name in names}


def _fit(value: object, option: Option) -> object:
    if option.type is None or value is None:
        return value
    # Strict, so that "10" is no number; but a file has only lists where a tuple is meant.
    adapter = TypeAdapter[object](give_ends(option.type), config=_CONFIG)
    return adapter.validate_python(value, strict=not isinstance(value, list))


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    return value if isinstance(value, bool | int | float | str) else None
