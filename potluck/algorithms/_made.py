"""Rules made in Python: their numbers have the ends that files have."""

import dataclasses

from pydantic import TypeAdapter, ValidationError

from potluck.algorithms._parameters import ranges
from potluck.algorithms._shown import is_end, show_problem
from potluck.core.errors import require


def check_made(part: object, path: str) -> None:
    """Refuse numbers of a rule made in Python, and of its parts, that lie beyond the ends of their types."""
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return
    try:
        ends = ranges(type(part))
    except (NameError, TypeError):  # written as text that means nothing here: not checked
        return
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
