"""Data by name: `load("digits")`, or a source of one's own that was registered."""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path

from potluck.core import entry_points
from potluck.core.codec import Json
from potluck.core.errors import ConfigError, DataError, call_named, nearest
from potluck.core.registry import Registry
from potluck.data.pool import Pool, limit_rows

Make = Callable[..., Pool]
SOURCES: Registry[Make] = Registry("source", partial(entry_points.call_all, "potluck.data"))


def register(name: str, make: Make) -> None:
    """Make a source of data known by `name`.

    `make`: a function that returns a `Pool`, best made by `potluck.data.assemble`. It is called with `root`,
    the folder of data files (None if the user named none), and with those of its further parameters that the
    file sets. Each of these needs a default, and becomes a key of [data].
    """
    if not callable(make):
        raise ConfigError(f"source {name!r}: register a function that makes a pool, not {make!r}")
    first, *options = [*inspect.signature(make).parameters.values(), None]
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise ConfigError(f"source {name!r}: its function needs `root` as its first parameter")
    for option in options:
        if option is not None and (option.default is option.empty or option.kind is option.VAR_KEYWORD):
            raise ConfigError(f"source {name!r}: give its option {option.name!r} a name and a default")
    SOURCES.add(name, make, make)


def load(source: str, root: Path | None = None, limit: int | None = None, **options: Json) -> Pool:
    """All rows of `source`, from files in `root` or, without it, in $POTLUCK_DATA, ./data, here or the cache.

    Nothing is downloaded; `potluck data get` does that. `limit` keeps all test rows but at most so many
    others, the same ones in every run. `options` are the further parameters of the source's function: `path`
    and `normalise` of npz, `rows` of synthetic.
    """
    make = SOURCES.find(source, "data.source")
    known = list_options(source)
    for option in options:
        if option not in known:
            hint = nearest(option, known) if known else f"{source} has none"
            raise ConfigError(f"data.{option}: {source} has no such option; {hint}")
    pool = call_named(f"data.source = {source!r}", make, root, **options)
    if not isinstance(pool, Pool):
        raise DataError(f"data.source = {source!r}: its function gave a {type(pool).__name__}, not a Pool")
    return pool if limit is None else limit_rows(pool, limit)


def list_options(source: str) -> list[str]:
    """The options of a `source`, by its name, in the order of its function's parameters."""
    return [*inspect.signature(SOURCES[source]).parameters][1:]
