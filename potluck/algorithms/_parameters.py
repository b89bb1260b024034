"""Parameters from a file: checked against a callable's signature, parts looked up by name.

A *part* is a parameter whose type is a protocol or a `@value` class (a selector, a server optimiser, another
rule). A file gives it as a table, `select = {kind = "Uniform"}`, or by its name alone, `select = "uniform"`.
"""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from potluck.core import codec
from potluck.core.errors import ConfigError, nearest, require
from potluck.jobs import Train

Build = Callable[..., Any]
Inner = Callable[[], dict[str, Build]]


def parameters(build: Build) -> dict[str, inspect.Parameter]:
    """The parameters of a callable with their types resolved."""
    hints = typing.get_type_hints(build.__init__ if inspect.isclass(build) else build)
    signature = inspect.signature(build)
    return {name: p.replace(annotation=hints.get(name, Any)) for name, p in signature.parameters.items()}


def meanings(build: Build) -> dict[str, str]:
    """What each parameter means: the text of `Annotated[int, "devices a round"]`."""
    hints = typing.get_type_hints(build.__init__ if inspect.isclass(build) else build, include_extras=True)
    annotated = {name: hint for name, hint in hints.items() if typing.get_origin(hint) is Annotated}
    return {name: text for name, hint in annotated.items() for text in hint.__metadata__ if type(text) is str}


def arguments(build: Build, given: dict[str, Any], path: str, local: Train, inner: Inner) -> dict[str, Any]:
    """What a callable is to be called with; `path` is where an error says that a value stands."""
    known = parameters(build)
    settable = [name for name in known if name != "local"]
    for key, value in given.items():
        if key == "local":
            raise ConfigError(f"{path}.local: local training is described by [train] or {path}.train")
        if key not in settable:
            hint = nearest(key, settable) if settable else "it has none"
            raise ConfigError(f"{path}.{key} = {value!r}: no such parameter; {hint}")
    filled = {key: _fit(value, known[key], f"{path}.{key}", local, inner) for key, value in given.items()}
    if "local" in known:
        filled["local"] = local
    for key, p in known.items():
        if key not in filled and _is_rule(type(p.default)):
            filled[key] = _fit({}, p, f"{path}.{key}", local, inner)  # it trains as the experiment says
        if key not in filled and p.default is p.empty:
            raise ConfigError(f"{path}.{key} is missing: it needs a value of type {short(p.annotation)}")
    clients = filled.get("clients")  # here, for all: some rules would only say so when they start
    require(clients is None or clients >= 1, f"{path}.clients", clients, "must be at least 1 device a round")
    return filled


@contextmanager
def placed(path: str, known: Collection[str]) -> Iterator[None]:
    """Let a problem with one of these parameters name the whole key, while something is made of them."""
    try:
        with keyed(path, known):
            yield
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


@contextmanager
def keyed(path: str, known: Collection[str]) -> Iterator[None]:
    """The same once it is made: other errors are no matter of parameters."""
    try:
        yield
    except ConfigError as error:
        key = str(error).partition(" = ")[0]
        if key.partition(".")[0] not in known:
            raise
        raise ConfigError(f"{path}.{error}") from None


def plain(value: Any) -> Any:
    """A value as TOML can hold it; None where it can't be told."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Train):
        told = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if any(isinstance(getattr(value, f.name), Train) for f in dataclasses.fields(value)):
            return None  # its training comes from elsewhere
        return {"kind": type(value).__name__, **{k: v for k, v in told.items() if v is not None}}
    return None


def short(annotation: Any) -> str:
    """A type without the modules that its names come from."""
    return re.sub(r"[\w.]+\.(\w+)", r"\1", inspect.formatannotation(annotation))


def _fit(value: Any, p: inspect.Parameter, path: str, local: Train, inner: Inner) -> Any:
    members = _members(p.annotation)
    parts = [m for m in members if _is_part(m)]
    if parts and isinstance(value, dict | str) and not (isinstance(value, str) and str in members):
        return _part(value, p, parts, path, local, inner)
    if parts and not isinstance(value, bool | int | float | str | list):
        return value  # made in Python
    plain = [m for m in members if m not in parts and m is not types.NoneType]
    if not plain:
        raise ConfigError(f"{path} = {value!r}: name a part, or give a table with its kind and settings")
    config = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
    kind: Any = typing.Union[tuple(plain)]  # noqa: UP007 - of as many as there are
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=config)
    try:
        # Strict, so that "10" is no number; but a file has only lists where a tuple is meant.
        return None if value is None else adapter.validate_python(value, strict=not isinstance(value, list))
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Input ")
        raise ConfigError(f"{path} = {value!r}: {why} ({short(p.annotation)})") from None


def _part(
    value: dict[str, Any] | str, p: inspect.Parameter, parts: list[Any], path: str, local: Train, inner: Inner
) -> Any:
    table = dict(value) if isinstance(value, dict) else {"kind": value}
    offered: dict[str, Build] = {
        _bare(cls.__name__): cls for cls in codec.values().values() if any(_suits(cls, m) for m in parts)
    }
    if any(_is_rule(m) for m in parts):
        offered |= {_bare(name): build for name, build in inner().items()}
    kind = table.pop("kind", type(p.default).__name__)  # settings of the default need not name it
    build = offered.get(_bare(str(kind)))
    if build is None:
        known = sorted({getattr(b, "__name__", name) for name, b in offered.items()})
        raise ConfigError(f"{path}.kind = {kind!r}: no such part; {nearest(str(kind), known)}")
    filled = arguments(build, table, path, local, inner)
    with placed(path, filled):
        return build(**filled)


def _bare(name: str) -> str:
    """`AdaptiveKrum`, `adaptive_krum` and `adaptive-krum` are one."""
    return name.replace("_", "").replace("-", "").lower()


def _members(annotation: Any) -> list[Any]:
    """The alternatives of a union, generics without their arguments; else the type itself."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return [m for arg in typing.get_args(annotation) for m in _members(arg)]
    return [origin if getattr(origin, "_is_protocol", False) else annotation]


def _is_part(kind: Any) -> bool:
    return kind is Any or getattr(kind, "_is_protocol", False) or dataclasses.is_dataclass(kind)


def _is_rule(kind: Any) -> bool:
    return hasattr(kind, "merge") and hasattr(kind, "plan")


def _suits(cls: type, kind: Any) -> bool:
    if not getattr(kind, "_is_protocol", False):
        return kind is Any or issubclass(cls, kind)
    return not getattr(cls, "_is_protocol", False) and all(
        _arity(getattr(cls, name, None)) == _arity(method) for name, method in _promised(kind).items()
    )


def _arity(method: Any) -> int:
    return len(inspect.signature(method).parameters) if callable(method) else -1


def _promised(protocol: type) -> dict[str, Any]:
    """The methods of a protocol and of those that it extends."""
    return {
        name: member
        for cls in reversed(protocol.__mro__)
        if getattr(cls, "_is_protocol", False) and cls is not typing.Protocol
        for name, member in vars(cls).items()
        if not name.startswith("_") and callable(member)
    }
