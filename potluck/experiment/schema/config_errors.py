"""What is wrong with an experiment, in one line: where, which key, its value, and the fix."""

import json
import types
import typing
from collections.abc import Sequence

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from potluck.core.errors import ConfigError, nearest, show_short

UNION_TAGS = ("<value>", "<table>")  # of keys that hold either; pydantic puts them into locations


def explain_error(error: ValidationError, model: type[BaseModel], where: str, above: str = "") -> ConfigError:
    """The first problem that pydantic found, and how many there are; `above` is the path of the model."""
    problems = [_drop_tags(problem) for problem in error.errors(include_url=False)]
    first = next(
        (p for p in problems if p["type"] == "extra_forbidden"), problems[0]
    )  # a typo explains the rest
    paths = {_path(p, model) for p in problems}
    more = f" ({len(paths) - 1} more in this file)" if len(paths) > 1 else ""
    path = ".".join((*([above] if above else []), *_path(first, model)))
    value, fix = first["input"], _fix(first, model)
    shown = "" if isinstance(value, dict) or first["type"] == "missing" else f" = {show_short(value)}"
    return ConfigError(f"{where}: {path or 'the experiment'}{shown}: {fix}{more}")


def _drop_tags(problem: ErrorDetails) -> ErrorDetails:
    return {**problem, "loc": tuple(part for part in problem["loc"] if part not in UNION_TAGS)}


def check_distinct(key: str, values: Sequence[object]) -> None:
    """Refuse a list that names something twice."""
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ConfigError(f"{key} = {show_short(list(values))}: {show_short(value)} is named twice")


def _fix(problem: ErrorDetails, model: type[BaseModel]) -> str:
    kind, loc, context = problem["type"], problem["loc"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        table = _descend(model, loc[:-1])
        known = context.get("known") or (list(table.model_fields) if table else [])
        noun, name = "table" if isinstance(problem["input"], dict) else "key", str(loc[-1])
        return f"no such {noun}; {nearest(name, _find_elsewhere(name, model) or known)}"
    if kind == "missing":
        table = _descend(model, loc[:-1])
        field = table.model_fields.get(str(loc[-1])) if table else None
        said = next((text for text in (field.metadata if field else ()) if isinstance(text, str)), None)
        return f"must be given: {said}" if said else "must be given"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "should be a table"
    if kind == "literal_error":
        allowed = [part.strip("' ") for part in context["expected"].replace(" or ", ", ").split(",")]
        hint = nearest(str(problem["input"]), allowed)
        meant = f"; {hint}" if hint.startswith("did") else ""  # else it would name them all once more
        return f"should be one of {', '.join(allowed)}{meant}"
    if kind in ("list_type", "tuple_type") and str(problem["input"]).startswith("["):
        return 'should be a list of TOML, its texts in quotes: --set \'KEY=["a", "b"]\''
    if kind in ("list_type", "tuple_type") and isinstance(problem["input"], str):
        return f"should be a list, such as {json.dumps([problem['input']], ensure_ascii=False)}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "too_short":
        least = context["min_length"]
        return f"should have at least {least} {'item' if least == 1 else 'items'}"
    return problem["msg"].removeprefix("Input ")


def _find_elsewhere(name: str, model: type[BaseModel]) -> list[str]:
    """Keys of that very name in the tables of an experiment: somebody forgot the table, or took another."""
    if name == "mode":  # of some algorithms, whose parameters are no tables here
        return ["algorithms.NAME.mode"]
    tables = {key: _table(field.annotation) for key, field in model.model_fields.items() if key != "robust"}
    return [f"{key}.{name}" for key, table in tables.items() if table and name in table.model_fields]


def _path(problem: ErrorDetails, model: type[BaseModel]) -> tuple[str, ...]:
    """Keys only: pydantic's locations also name the members of unions."""
    loc = problem["loc"]
    keys = next((i + 1 for i in range(len(loc)) if _union(model, loc[: i + 1])), len(loc))
    return tuple(str(part) for part in loc[:keys])


def _union(model: type[BaseModel], loc: tuple[int | str, ...]) -> bool:
    """Whether a location is a key whose value may be of several types."""
    table = _descend(model, loc[:-1])
    field = table.model_fields.get(str(loc[-1])) if table else None
    unions = (typing.Union, types.UnionType)
    return (
        field is not None and typing.get_origin(field.annotation) in unions and not _table(field.annotation)
    )


def _descend(model: type[BaseModel] | None, loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The table at a location, if there is one."""
    parts = iter(loc)
    for part in parts:
        field = model.model_fields.get(str(part)) if model else None
        model = _table(field.annotation) if field else None
        if field and typing.get_origin(field.annotation) in (dict, list):
            next(parts, None)  # a name or a number, and then the keys of a table
    return model


def _table(annotation: object) -> type[BaseModel] | None:
    """The table that a type is, may be or holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in typing.get_args(annotation) if (found := _table(inner))), None)
