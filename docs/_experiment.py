"""Experiment files as their types describe them, in Markdown: every table and key."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from _algorithms import plain, table
from pydantic.fields import FieldInfo

from potluck.data import PARTITIONS
from potluck.data import SOURCES as DATA
from potluck.experiment import Experiment
from potluck.experiment.schema.table import Table
from potluck.fleet.builder import SOURCES as FLEETS
from potluck.models.registry import MODELS
from potluck.rules.robust import list_judges

WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "anything"}
FAR = 1e9  # ends that nobody meets; the page says that there are some
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "min_length": "length at least"}


def reference() -> str:
    """All tables, outermost first."""
    return "\n\n".join(_shown(path, model) for path, model in tables())


def tables(model: type[Table] = Experiment, path: str = "") -> Iterator[tuple[str, type[Table]]]:
    """Every table and where it stands: `data`, `data.groups`, `[data.changes]`, `fleet.tiers.NAME`."""
    yield path, model
    for key, field in model.model_fields.items():
        below = f"{path}.{key}".strip(".")
        for inner, container in _inner(field.annotation):
            named = {dict: f"{below}.NAME", list: f"[{below}]"}.get(container, below)
            yield from tables(inner, named)


def rows(path: str, model: type[Table]) -> list[tuple[str, str, str, str]]:
    """The keys of a table: name, type with bounds, default, meaning."""
    return [
        (f"`{key}`", _type(field, path, key), _default(field), _meaning(model, key))
        for key, field in model.model_fields.items()
    ]


def choices(what: str) -> str:
    """What a key can name, and what each is."""
    if what == "models":
        return _listed({name: it.build for name, it in MODELS.items()}, ("shape", "classes", "vocabulary"))
    if what == "partitions":
        return _listed({name: way.deal for name, way in PARTITIONS.items()}, None)
    if what == "robust":
        return _listed(list_judges(), ())
    known = ("root", "n", "key", "seed")
    return _listed({"data": DATA, "fleet": FLEETS}[what], known)


def _listed(named: Mapping[str, Callable[..., Any]], known: tuple[str, ...] | None) -> str:
    """Names, first sentences and own settings of callables; `known` are parameters that no file sets."""
    lines = []
    for name, build in named.items():
        about = plain(" ".join((inspect.getdoc(build) or "").split("\n\n")[0].split()))
        own = [] if known is None else [p for p in inspect.signature(build).parameters if p not in known]
        lines.append((f"`{name}`", about, ", ".join(f"`{p}`" for p in own)))
    if all(not own for *_, own in lines):
        return table(("name", "what it is"), [line[:2] for line in lines])
    return table(("name", "what it is", "its own keys"), lines)


def _shown(path: str, model: type[Table]) -> str:
    body = table(("key", "type", "default", "meaning"), rows(path, model))
    if not path:
        return f"## The top of a file {{#top}}\n\nKeys that stand before the first table.\n\n{body}"
    level = "###" if "." in path else "##"
    return f"{level} `[{path}]` {{#{_anchor(path)}}}\n\n{_about(model)}\n\n{body}"


def _anchor(path: str) -> str:
    return path.strip("[]").replace(".", "-").lower()


def _inner(annotation: Any) -> Iterator[tuple[type[Table], Any]]:
    """The tables that a type holds, and what holds them: a list, a dict or nothing."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        yield annotation, None
    origin = typing.get_origin(annotation)
    for each in typing.get_args(annotation):
        for found, container in _inner(each):
            yield found, container or (origin if origin in (dict, list) else None)


def _type(field: FieldInfo, path: str, key: str) -> str:
    below = f"{path}.{key}".strip(".")
    for _, container in _inner(field.annotation):
        address = f"{below}.NAME" if container is dict else below
        noun = {dict: "tables by name", list: "list of tables"}.get(container, "table")
        plain = _words(field.annotation, field.metadata)
        return f"{plain}{', or ' if plain else ''}[{noun}](#{_anchor(address)})"
    return _words(field.annotation, field.metadata)


def _words(annotation: Any, metadata: typing.Sequence[Any] = ()) -> str:
    """A type in words, with its bounds."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _words(members[0], [*members[1:], *metadata])
    if origin in (typing.Union, types.UnionType):
        said = [_words(m, metadata) for m in members if m is not types.NoneType]
        return " or ".join(dict.fromkeys(filter(None, said)))
    if origin is typing.Literal:
        return ", ".join(f"`{m}`" for m in members)
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return ""  # it is linked to
    if origin in (list, dict) and not _words(members[-1]):
        return ""
    if origin is list:
        return ", ".join((f"list of: {_words(members[0])}", *_bounds(metadata)))
    if origin is dict:
        return f"table of: {_words(members[1])}"
    return ", ".join((WORDS[annotation], *_bounds(metadata)))


def _bounds(metadata: typing.Sequence[Any]) -> Iterator[str]:
    for each in metadata:
        if isinstance(each, FieldInfo):
            yield from _bounds(each.metadata)
        for name, words in BOUNDS.items():
            end = getattr(each, name, None)
            if end is not None and not (name == "le" and end >= FAR):
                yield f"{words} {end:g}" if isinstance(end, float) else f"{words} {end:,}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**must be given**"
    value = field.default
    if value is None:
        return ""
    if isinstance(value, Table):
        said = ", ".join(f"{key} = {getattr(value, key)!r}" for key in sorted(value.model_fields_set))
        return f"`{said}`" if said else ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value not in ([], {}) else ""


def _meaning(model: type[Table], key: str) -> str:
    """What a key's type says of it, as in `Annotated[int, "devices"]`; a table says of itself what it is."""
    field = model.model_fields[key]
    said = next((text for text in field.metadata if isinstance(text, str)), None)
    inner = next((t for t, _ in _inner(field.annotation)), None)
    return plain(said) if said else _about(inner) if inner else ""


def _about(model: type[Table]) -> str:
    """A table's own words, without its name."""
    said = re.sub(r"^\[+[\w.]+\]+: ", "", " ".join((model.__doc__ or "").split()))
    return plain(said[:1].upper() + said[1:])
