"""Rules that are made: their numbers have the ends that files have, and follow the run where files would."""

import dataclasses
from typing import Any

from pydantic import TypeAdapter, ValidationError

from potluck.algorithms._parameters import ranges
from potluck.algorithms._shown import is_end, show_problem
from potluck.core.errors import require
from potluck.core.ranges import follows_run


def check_made(part: object, path: str) -> None:
    """Refuse numbers of a rule made in Python, and of its parts, that lie beyond the ends of their types."""
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return
    ends = _find_ends(part)
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if isinstance(value, float | int) and value != f.default and f.name in ends:
            try:
                TypeAdapter[object](ends[f.name]).validate_python(value)
            except ValidationError as error:
                why = [show_problem(problem) for problem in error.errors() if is_end(problem)]
                require(not why, f"{path}.{f.name}", value, "".join(why[:1]))
        else:
            check_made(value, f"{path}.{f.name}")


def follow_run(part: Any, rounds: int) -> Any:
    """A part in which numbers that follow the run are its rounds, unless they were given."""
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    ends, changed = _find_ends(part), {}
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        follows = value is None and follows_run(ends.get(f.name))
        new = rounds if follows else follow_run(value, rounds)
        if new is not value and f.init:
            changed[f.name] = new
    return dataclasses.replace(part, **changed) if changed else part


def _find_ends(part: object) -> dict[str, Any]:
    try:
        return ranges(type(part))
    except (NameError, TypeError):  # written as text that means nothing here: nothing is known of them
        return {}
