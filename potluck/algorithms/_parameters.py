"""Parameters from a file: checked against a callable's signature, parts looked up by name.

A *part* is a parameter whose type is a protocol with a role (a selector, a server optimiser, another rule) or
a `@value` class, which is a table of settings. A file gives it as a table, `select = {kind = "Uniform"}`, or
by its name alone, `select = "uniform"`.
"""

import dataclasses
import functools
import inspect
import math
import operator
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import get_protocol_members, is_protocol

from potluck import algorithms
from potluck.algorithms import Build
from potluck.algorithms._shown import short, show_problem
from potluck.core.codec import Json
from potluck.core.errors import (
    ConfigError,
    call_named,
    error_context,
    nearest,
    nearest_or_own,
    require,
    show_short,
)
from potluck.core.parts import bare, parts, role_of
from potluck.core.ranges import follows_run, give_ends
from potluck.core.rule import Algorithm, Rule, Tiered
from potluck.jobs import Train

ALGORITHM = "rule"  # the role that algorithms themselves are offered for
_METHODS = ("start", "lanes", "plan", "merge", "serve")  # of a rule
_CONFIG = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)


def parameters(build: Build) -> dict[str, inspect.Parameter]:
    """The parameters of a callable with their types resolved."""
    hints = typing.get_type_hints(_find_signature(build))
    signature = inspect.signature(build)
    return {name: p.replace(annotation=hints.get(name, object)) for name, p in signature.parameters.items()}


def ranges(build: Build) -> dict[str, Any]:
    """The types of a callable's parameters with the ends of their numbers."""
    hints = typing.get_type_hints(_find_signature(build), include_extras=True)
    return {name: give_ends(hint) for name, hint in hints.items()}


def meanings(build: Build) -> dict[str, str]:
    """What each parameter means: the text of `Annotated[int, "devices a round"]`."""
    hints = typing.get_type_hints(_find_signature(build), include_extras=True)
    annotated = {name: hint for name, hint in hints.items() if typing.get_origin(hint) is Annotated}
    return {name: text for name, hint in annotated.items() for text in hint.__metadata__ if type(text) is str}


def is_table(p: inspect.Parameter) -> bool:
    """Whether a parameter is a table of settings: its type is one class of values, that of its default."""
    return dataclasses.is_dataclass(p.annotation) and type(p.default) is p.annotation is not Train


@dataclasses.dataclass(frozen=True)
class Terms:
    """What an experiment lays down for whatever algorithm it runs: parameters that are left out follow it."""

    local: Train = Train()
    rounds: int | None = None  # of the run; None: it ends by its clock


@dataclasses.dataclass(frozen=True)
class Call:
    """What is to be made of parameters that fit: parts that aren't made yet are calls themselves."""

    build: Build
    given: dict[str, object]
    path: str  # where an error says that a value stands

    def make(self) -> Any:
        filled = {key: v.make() if isinstance(v, Call) else v for key, v in self.given.items()}
        with error_context(self.path, parameters(self.build)):
            return call_named(self.path, self.build, **filled)


def fit(build: Build, given: Mapping[str, object], path: str, terms: Terms) -> Call:
    """The call that parameters of a file ask for; unknown ones and wrong types are refused."""
    known, ends = parameters(build), ranges(build)
    settable = [name for name in known if name != "local"]
    for key, value in given.items():
        if key == "local":
            raise ConfigError(f"{path}.local: local training is described by [train] or {path}.train")
        if key not in settable:
            hint = suggest(value, known) or (nearest(key, settable) if settable else "it has none")
            raise ConfigError(f"{path}.{key} = {show_short(value)}: no such parameter; {hint}")
    filled = {
        key: _fit_one(value, known[key], ends.get(key, object), f"{path}.{key}", terms)
        for key, value in given.items()
    }
    if "local" in known:
        filled["local"] = terms.local
    if terms.rounds is not None:
        filled |= {key: terms.rounds for key in ends if follows_run(ends[key]) and given.get(key) is None}
    for key, p in known.items():
        if key not in filled and _default(p) is not None and ALGORITHM in _roles(p.annotation):
            filled[key] = _fit_part({}, p, f"{path}.{key}", terms)  # it trains as the experiment says
        if key not in filled and p.default is p.empty:
            raise ConfigError(f"{path}.{key} is missing: it needs a value of type {short(p.annotation)}")
    clients = filled.get("clients")  # here, for all: some rules would only say so when they start
    good = not isinstance(clients, int) or clients >= 1
    require(good, f"{path}.clients", clients, "must be at least 1 device a round")
    return Call(build, filled, path)


def suggest(value: object, known: Mapping[str, inspect.Parameter]) -> str | None:
    """What to write in place of a key that there isn't: the parameter that takes a part of this name."""
    kind = value.get("kind") if isinstance(value, dict) else value
    for name, p in known.items():
        offered = _list_offers([m for m in _members(p.annotation) if _is_part(m) and role_of(m)])
        if isinstance(kind, str) and bare(kind) in offered:
            return f"{kind!r} is a {name}: write {name} = {show_short(value)}"
    return None


def check_rule(name: str, made: Any) -> Any:
    """What was made, if it can be run; else an error that says what it lacks."""
    if isinstance(made, Rule | Algorithm | Tiered):
        return made
    lacks = [method for method in _METHODS if method not in dir(made)]
    raise ConfigError(
        f"algorithm = {name!r}: what makes it gave a {type(made).__name__}, which is no rule: "
        f"it lacks {', '.join(lacks)}"
    )


def list_settings(table: object) -> dict[str, Json]:
    """A table of settings, those that it was given and its defaults, as TOML can hold them."""
    if isinstance(table, Call):
        given = {name: p.default for name, p in parameters(table.build).items()} | table.given
    else:
        assert dataclasses.is_dataclass(table)
        given = {f.name: getattr(table, f.name) for f in dataclasses.fields(table)}
    settings: dict[str, Json] = {
        name: {"kind": v.build.__name__, **list_settings(v)} if isinstance(v, Call) else plain(v)
        for name, v in given.items()
    }
    return {name: value for name, value in settings.items() if value is not None}


def plain(value: object) -> Json:
    """A value as TOML can hold it; None where it can't."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # a file may not say so: a default that isn't written stays one
    if isinstance(value, bool | int | float | str | dict):
        return value
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, type | Train | Call) or not dataclasses.is_dataclass(value):
        return None
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if any(isinstance(v, Train) for v in fields.values()):
        return None  # its training comes from elsewhere
    settings = {name: plain(v) for name, v in fields.items()}
    return {"kind": type(value).__name__, **{k: v for k, v in settings.items() if v is not None}}


def _default(p: inspect.Parameter) -> object:
    return None if p.default is p.empty else p.default


def _find_signature(build: Build) -> Build:
    return build.__init__ if inspect.isclass(build) else build


def _fit_one(value: object, p: inspect.Parameter, ends: Any, path: str, terms: Terms) -> object:
    members = _members(p.annotation)
    kinds = [m for m in members if _is_part(m)]
    if value is None and types.NoneType in members:
        return None
    if is_table(p) and isinstance(value, bool | int | float | str | list):
        raise ConfigError(f"{path} = {show_short(value)}: should be a table")
    if kinds and (isinstance(value, dict) or (isinstance(value, str) and str not in members)):
        return _fit_part(value if isinstance(value, dict) else {"kind": value}, p, path, terms)
    if any(_is_made(value, kind) for kind in kinds):
        return value  # in Python
    others = [m for m in _members(ends) if m not in kinds and m is not types.NoneType]
    if not others:
        shown = show_short(value)
        raise ConfigError(f"{path} = {shown}: name a part, or give a table with its kind and settings")
    adapter = TypeAdapter[object](functools.reduce(operator.or_, others), config=_CONFIG)
    try:
        # Strict, so that "10" is no number; but a file has only lists where a tuple is meant.
        return adapter.validate_python(value, strict=not isinstance(value, list))
    except ValidationError as error:
        why = show_problem(error.errors()[0])
        raise ConfigError(f"{path} = {show_short(value)}: {why} ({short(p.annotation)})") from None


def _fit_part(table: Mapping[str, object], p: inspect.Parameter, path: str, terms: Terms) -> Call:
    kinds = [m for m in _members(p.annotation) if _is_part(m)]
    settings = {key: value for key, value in table.items() if key != "kind"}
    own = kinds[0] if _default(p) is None else type(p.default)  # its settings need not name it
    build = _find_part(str(table.get("kind", own.__name__)), kinds, f"{path}.kind")
    return fit(build, settings, path, terms)


def _find_part(kind: str, kinds: list[type], key: str) -> Build:
    """What makes a part of one of these kinds; one that only an algorithm's folder holds is found there."""
    if any(role_of(k) == ALGORITHM for k in kinds):
        return algorithms.find(kind, key)
    offered = _list_offers(kinds)
    if bare(kind) not in offered:
        for name in algorithms.names():
            algorithms.find(name)
        offered = _list_offers(kinds)
    if bare(kind) not in offered:
        known = sorted(cls.__name__ for cls in offered.values())
        raise ConfigError(f"{key} = {show_short(kind)}: no such part; {nearest_or_own(kind, known)}")
    return offered[bare(kind)]


def _list_offers(kinds: list[type]) -> dict[str, type]:
    """The classes that may be named: those of a role, or the one class that is its own kind."""
    found: dict[str, type] = {}
    for kind in kinds:
        role = role_of(kind)
        found |= {bare(kind.__name__): kind} if role is None else parts(role)
    return found


def _roles(annotation: object) -> set[str | None]:
    return {role_of(m) for m in _members(annotation) if _is_part(m)}


def _members(annotation: Any) -> list[type]:
    """The alternatives of a union, protocols without their arguments; else the type itself."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        inside = _members(annotation.__origin__)  # of one, what is said of it counts: its ends
        return inside if len(inside) > 1 or _is_part(inside[0]) else [annotation]
    if origin in (typing.Union, types.UnionType):
        return [m for arg in typing.get_args(annotation) for m in _members(arg)]
    return [origin if inspect.isclass(origin) and role_of(origin) else annotation]


def _is_made(value: object, kind: type) -> bool:
    """Whether a value is a part of a kind already: it has what the kind's protocol asks for."""
    return isinstance(value, kind) if not is_protocol(kind) else get_protocol_members(kind) <= {*dir(value)}


def _is_part(kind: type) -> bool:
    return inspect.isclass(kind) and (role_of(kind) is not None or dataclasses.is_dataclass(kind))
