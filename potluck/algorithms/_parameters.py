"""Parameters from a file: checked against a callable's signature, parts looked up by name.

A *part* is a parameter whose type is a protocol with a role (a selector, a server optimiser, another rule) or
a `@value` class, which is a table of settings. A file gives it as a table, `select = {kind = "Uniform"}`, or
by its name alone, `select = "uniform"`. What a table leaves out is as the parameter's default has it, if that
is of the same kind; else as its class has it.
"""

import dataclasses
import functools
import inspect
import operator
import types
import typing
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from potluck import algorithms
from potluck.algorithms import Build
from potluck.algorithms._kinds import find_part, is_made, list_kinds, members, takes_algorithm
from potluck.algorithms._shown import short, show_problem
from potluck.core.errors import ConfigError, call_named, error_context, nearest, require, show_short
from potluck.core.parts import bare
from potluck.core.ranges import follows_run, give_ends
from potluck.core.rule import Algorithm, Rule, Tiered
from potluck.jobs import Train

_METHODS = ("start", "lanes", "plan", "merge", "serve")  # of a rule
_CONFIG = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
_NONE: Mapping[str, object] = types.MappingProxyType({})


def parameters(build: Build, defaults: Mapping[str, object] = _NONE) -> dict[str, inspect.Parameter]:
    """The parameters of a callable with their types resolved; `defaults` take the place of its own."""
    hints = typing.get_type_hints(_find_signature(build))
    known = {
        name: p.replace(annotation=hints.get(name, object))
        for name, p in inspect.signature(build).parameters.items()
    }
    return known | {name: known[name].replace(default=value) for name, value in defaults.items()}


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
    known: dict[str, inspect.Parameter]  # with the defaults that hold here
    given: dict[str, object]  # by the file, the experiment, and defaults that aren't the signature's
    path: str  # where an error says that a value stands
    kind: str = ""  # what a file calls it
    mode: str | None = None  # of an algorithm that has modes

    def make(self) -> Any:
        filled = {key: v.make() if isinstance(v, Call) else v for key, v in self.given.items()}
        with error_context(self.path, self.known):
            return call_named(self.path, self.build, **filled)


def fit(
    build: Build,
    given: Mapping[str, object],
    path: str,
    terms: Terms,
    defaults: Mapping[str, object] = _NONE,
    others: Collection[str] = (),
) -> Call:
    """The call that parameters of a file ask for; unknown ones and wrong types are refused.

    `defaults` take the place of the signature's; `others` are keys that the table has beside parameters.
    """
    known, ends = parameters(build, defaults), ranges(build)
    filled = fit_given(known, ends, given, path, terms, others)
    for key, p in known.items():
        trains = takes_algorithm(p.annotation) and _default(p) is not None  # as the experiment says
        if key not in filled and trains:
            filled[key] = _fit_part({}, p, f"{path}.{key}", terms)
        if key not in filled and key in defaults:
            filled[key] = p.default
        if key not in filled and p.default is p.empty and key != "local":
            raise ConfigError(f"{path}.{key} is missing: it needs a value of type {short(p.annotation)}")
    if "local" in known:
        filled["local"] = terms.local
    if terms.rounds is not None:
        filled |= {key: terms.rounds for key in ends if follows_run(ends[key]) and filled.get(key) is None}
    clients = filled.get("clients")  # here, for all: some rules would only say so when they start
    good = not isinstance(clients, int) or clients >= 1
    require(good, f"{path}.clients", clients, "must be at least 1 device a round")
    return Call(build, known, filled, path)


def fit_given(
    known: Mapping[str, inspect.Parameter],
    ends: Mapping[str, Any],
    given: Mapping[str, object],
    path: str,
    terms: Terms,
    others: Collection[str] = (),
) -> dict[str, object]:
    """The values that a file gives, as their parameters take them."""
    settable = [name for name in known if name != "local"]
    for key, value in given.items():
        if key == "local":
            raise ConfigError(f"{path}.local: local training is described by [train] or {path}.train")
        if key not in settable:
            hint = nearest(key, [*others, *settable]) if settable else "it has none"
            raise ConfigError(f"{path}.{key} = {show_short(value)}: no such parameter; {hint}")
    return {
        key: _fit_one(value, known[key], ends.get(key, object), f"{path}.{key}", terms)
        for key, value in given.items()
    }


def check_rule(name: str, made: Any) -> Any:
    """What was made, if it can be run; else an error that says what it lacks."""
    if isinstance(made, Rule | Algorithm | Tiered):
        return made
    lacks = [method for method in _METHODS if method not in dir(made)]
    raise ConfigError(
        f"algorithm = {name!r}: what makes it gave a {type(made).__name__}, which is no rule: "
        f"it lacks {', '.join(lacks)}"
    )


def _default(p: inspect.Parameter) -> object:
    return None if p.default is p.empty else p.default


def _find_signature(build: Build) -> Build:
    return build.__init__ if inspect.isclass(build) else build


def _fit_one(value: object, p: inspect.Parameter, ends: Any, path: str, terms: Terms) -> object:
    among, kinds = members(p.annotation), list_kinds(p.annotation)
    if value is None and types.NoneType in among:
        return None
    if is_table(p) and isinstance(value, bool | int | float | str | list):
        raise ConfigError(f"{path} = {show_short(value)}: should be a table")
    if kinds and (isinstance(value, dict) or (isinstance(value, str) and str not in among)):
        return _fit_part(value if isinstance(value, dict) else {"kind": value}, p, path, terms)
    if any(is_made(value, kind) for kind in kinds):
        return value  # in Python
    others = [m for m in members(ends) if m not in kinds and m is not types.NoneType]
    if not others:
        shown = show_short(value)
        raise ConfigError(f"{path} = {shown}: name a part, or give a table with its kind and settings")
    adapter = TypeAdapter[object](functools.reduce(operator.or_, others), config=_CONFIG)
    try:
        # Strict, so that "10" is no number; but a file has only lists where a tuple is meant.
        return adapter.validate_python(value, strict=not isinstance(value, list))
    except ValidationError as error:
        problem, *further = error.errors()
        named = problem["type"] == "literal_error" and not further  # it says already all that there is
        kind = "" if named else f" ({short(p.annotation)})"
        raise ConfigError(f"{path} = {show_short(value)}: {show_problem(problem)}{kind}") from None


def _fit_part(table: Mapping[str, object], p: inspect.Parameter, path: str, terms: Terms) -> Call:
    from potluck.algorithms._modes import fit_algorithm  # here: an algorithm's parts may be algorithms

    kinds = list_kinds(p.annotation)
    own, settings = _take_apart(p)  # its settings need not name its kind
    kind = str(table.get("kind", own or kinds[0].__name__))
    given = {key: value for key, value in table.items() if key != "kind"}
    defaults = settings if own is not None and bare(own) == bare(kind) else _NONE
    if takes_algorithm(p.annotation):
        return fit_algorithm(algorithms.canonical(kind, f"{path}.kind"), given, path, terms, defaults)
    build = find_part(kind, kinds, f"{path}.kind")
    return dataclasses.replace(fit(build, given, path, terms, defaults), kind=build.__name__)


def _take_apart(p: inspect.Parameter) -> tuple[str | None, Mapping[str, object]]:
    """The kind of a parameter's default, and its settings; an algorithm's are a table's, or its own."""
    default = _default(p)
    if default is None:
        return None, _NONE
    if isinstance(default, str):
        return default, _NONE
    if isinstance(default, Mapping):
        settings = {key: value for key, value in default.items() if key != "kind"}
        return (str(default["kind"]) if "kind" in default else None), settings
    if takes_algorithm(p.annotation) or not dataclasses.is_dataclass(default):
        return type(default).__name__, _NONE
    fields = [f.name for f in dataclasses.fields(default) if f.init and f.name != "local"]
    return type(default).__name__, {name: getattr(default, name) for name in fields}
