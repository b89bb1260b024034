"""Types and values of parameters as people read them."""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping

from pydantic_core import ErrorDetails

from potluck.jobs import Train

_ENDS = {
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be above {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be below {lt:g}",
}


def short(annotation: object) -> str:
    """A type without the modules that its names come from, nor what a protocol's state is made of."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " | ".join("None" if m is types.NoneType else short(m) for m in typing.get_args(annotation))
    named = re.sub(r"[\w.]+\.(\w+)", r"\1", inspect.formatannotation(annotation))
    return named.replace("[Any]", "")


def show(value: object) -> str:
    """A default as people read it: a part by its name and settings, without the experiment's training."""
    if isinstance(value, Mapping):  # a part as a file has it
        own = ", ".join(f"{key}={each!r}" for key, each in value.items() if key != "kind")
        return f"{value.get('kind', '')}({own})"
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return str(value)
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    shown = {
        k: repr(v) if isinstance(v, str) else show(v) for k, v in fields.items() if not isinstance(v, Train)
    }
    told = ", ".join(f"{name}={text}" for name, text in shown.items())
    return f"{type(value).__name__}({told})"


def is_end(problem: ErrorDetails) -> bool:
    """Whether a number lies beyond an end."""
    return problem["type"] in _ENDS


def show_problem(problem: ErrorDetails) -> str:
    """What is wrong with a value, as pydantic found it."""
    if is_end(problem):
        return _ENDS[problem["type"]].format(**problem["ctx"])
    return "too few values" if problem["type"] == "missing" else problem["msg"].removeprefix("Input ")
