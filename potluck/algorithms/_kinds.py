"""Which parts a parameter's type takes, and how a file names them."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from typing_extensions import get_protocol_members, is_protocol

from potluck import algorithms
from potluck.algorithms import Build
from potluck.core.errors import ConfigError, nearest_or_own, show_short
from potluck.core.parts import bare, parts, role_of

ALGORITHM = "rule"  # the role that algorithms themselves are offered for


def find_part(kind: str, kinds: list[type], key: str) -> Build:
    """What makes a part of one of these kinds; one that only an algorithm's folder holds is found there."""
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


def find_taker(value: object, known: Mapping[str, inspect.Parameter]) -> str | None:
    """What to write of a part that stands at another key: the parameter that takes parts of its name."""
    kind = value.get("kind") if isinstance(value, Mapping) else value
    for name, p in known.items():
        offered = _list_offers([each for each in list_kinds(p.annotation) if role_of(each)])
        if isinstance(kind, str) and bare(kind) in offered:
            return f"{kind!r} is a {name}: write {name} = {show_short(value)}"
    return None


def takes_algorithm(annotation: object) -> bool:
    """Whether it is a type that algorithms are of."""
    return any(role_of(kind) == ALGORITHM for kind in list_kinds(annotation))


def list_kinds(annotation: object) -> list[type]:
    """Those of its alternatives that are parts."""
    return [m for m in members(annotation) if is_part(m)]


def members(annotation: Any) -> list[type]:
    """The alternatives of a union, protocols without their arguments; else the type itself."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        inside = members(annotation.__origin__)  # of one, what is said of it counts: its ends
        return inside if len(inside) > 1 or is_part(inside[0]) else [annotation]
    if origin in (typing.Union, types.UnionType):
        return [m for arg in typing.get_args(annotation) for m in members(arg)]
    return [origin if inspect.isclass(origin) and role_of(origin) else annotation]


def is_made(value: object, kind: type) -> bool:
    """Whether a value is a part of a kind already: it has what the kind's protocol asks for."""
    return isinstance(value, kind) if not is_protocol(kind) else get_protocol_members(kind) <= {*dir(value)}


def is_part(kind: type) -> bool:
    """Whether a type is that of parts: it has a role, or is a `@value` class."""
    return inspect.isclass(kind) and (role_of(kind) is not None or dataclasses.is_dataclass(kind))
