"""The algorithms: a short file each, or a folder; this folder is the registry, so there is no list to edit.

Module NAME.py, or NAME/algorithm.py, holds one callable called NAME, whatever its capitals and underscores: a
`@value` rule, or a function that returns one. A folder's `__init__` holds the words alone (paper, idea,
deviations), so that a device can import `NAME/device.py` without the rule. The callable's parameters
are what an experiment may set in `[algorithms.NAME]`, and their meanings stand in their types, as
`clients: Annotated[int, "devices a round"] = 10`; `local` is the training that the experiment describes.
Rules come from the paper, unless a constant FIDELITY says that they come from the authors' code. A module
whose name begins with an underscore is no algorithm.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from potluck.core.errors import ConfigError, nearest
from potluck.jobs import Train

__all__ = [
    "Description",
    "Parameter",
    "canonical",
    "complete",
    "describe",
    "fidelity",
    "find",
    "make",
    "names",
]


@dataclass(frozen=True)
class Parameter:
    """One parameter of an algorithm, as people read it."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Description:
    """What an algorithm's file says of it."""

    name: str
    paper: str
    idea: str
    fidelity: str  # what its rules were taken from: "authors' code", or "paper"
    parameters: tuple[Parameter, ...]


def names() -> list[str]:
    """All algorithms, without importing any."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def canonical(name: str, key: str = "algorithm") -> str:
    """The name as the folder spells it: `FedAvg` and `fed-avg` are `fedavg`; `key` is named if it is none."""
    spelled = {_bare(known): known for known in names()}
    if _bare(name) not in spelled:
        raise ConfigError(f"{key} = {name!r}: no such algorithm; {nearest(name.lower(), names())}")
    return spelled[_bare(name)]


def find(name: str) -> Callable[..., Any]:
    """What makes an algorithm: the one callable of its module that bears its name."""
    name = canonical(name)
    module = importlib.import_module(f"{__name__}.{name}")
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{__name__}.{name}.algorithm")
    found = [v for k, v in vars(module).items() if _bare(k) == _bare(name) and callable(v)]
    if len(found) != 1:
        raise ConfigError(
            f"potluck/algorithms/{name}.py holds {len(found)} callables named {name!r} (in any capitals): "
            f"it should hold one; begin the names of helper modules with an underscore"
        )
    make: Callable[..., Any] = found[0]
    return make


def make(name: str, local: Train, /, **params: Any) -> Any:
    """An algorithm with these parameters; a wrong one is an error that names it, its value and the fix."""
    from potluck.algorithms._parameters import arguments, placed  # here: rules alone need no pydantic

    build, path = find(name), f"algorithms.{canonical(name)}"
    filled = arguments(build, params, path, local, _inner)
    with placed(path, filled):
        return build(**filled)


def complete(name: str, local: Train, /, **params: Any) -> dict[str, Any]:
    """The parameters and all defaults beside them, as TOML can hold them."""
    from potluck.algorithms._parameters import arguments, parameters, plain

    build, path = find(name), f"algorithms.{canonical(name)}"
    filled = arguments(build, params, path, local, _inner)
    defaults = {key: p.default for key, p in parameters(build).items() if p.default is not p.empty}
    merged = {**defaults, **filled}
    told = {
        key: params[key] if isinstance(params.get(key), dict | str) else plain(value)
        for key, value in merged.items()
        if key != "local"
    }
    return {key: value for key, value in told.items() if value is not None}


def describe(name: str) -> Description:
    """What the file of an algorithm says: paper, idea, parameters."""
    from potluck.algorithms._parameters import meanings, parameters, short

    build, name = find(name), canonical(name)
    module = inspect.getmodule(importlib.import_module(f"{__name__}.{name}"))
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", (inspect.getdoc(module) or "").strip())]
    said, listed = meanings(build), []
    for key, p in parameters(build).items():
        default = "" if p.default is p.empty else str(p.default) if key != "local" else "the experiment's"
        listed.append(Parameter(key, short(p.annotation), default, said.get(key, "")))
    idea = paragraphs[1] if len(paragraphs) > 1 else ""
    return Description(name, paragraphs[0], idea, fidelity(name), tuple(listed))


def fidelity(name: str) -> str:
    """What an algorithm's rules were taken from; shown beside results."""
    module = importlib.import_module(f"{__name__}.{canonical(name)}")
    graded: str = getattr(module, "FIDELITY", "paper")
    return graded


def _inner() -> dict[str, Callable[..., Any]]:
    """All algorithms, for those that take another one."""
    return {name: find(name) for name in names()}


def _bare(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
