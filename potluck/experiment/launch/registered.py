"""What a script or a notebook has registered itself, for processes that can't read that anywhere: it travels.

What Potluck and installed packages offer is known there, and the files of --code and of a study are read
there. So it is what the main program has registered, and modules that lie beside it.
"""

import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from potluck.core import codec, parts
from potluck.core.registry import Registry


class Registered(NamedTuple):
    """Functions and classes, by what files and bytes call them."""

    named: dict[str, dict[str, tuple[str, Any]]]  # by noun and name: the module, and what it registered
    values: dict[str, type]
    parts: dict[str, list[type]]  # by role


def list_own_modules() -> list[ModuleType]:
    """The main program, and those modules and packages that were imported from its folder."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    folder = Path.cwd() if file is None else Path(file).resolve().parent  # a notebook has no file
    tops = [module for name, module in sys.modules.items() if "." not in name and name != "potluck"]
    return [main, *(module for module in tops if module is not main and _find_folder(module) == folder)]


def _find_folder(module: object) -> Path | None:
    """Where a module, or a package, lies."""
    at = [*getattr(module, "__path__", []), getattr(module, "__file__", None)][0]
    return Path(at).resolve().parent if isinstance(at, str) else None


def find_registered(modules: Collection[ModuleType]) -> Registered | None:
    """What these have registered; None if they have registered nothing."""
    own = {module.__name__ for module in modules}
    named = {noun: registry.list_of(own) for noun, registry in Registry.by_noun.items()}
    values = {name: cls for name, cls in codec.values().items() if _find_top(cls) in own}
    offered = {
        role: [cls for cls in parts.parts(role).values() if _find_top(cls) in own] for role in parts.roles()
    }
    found = Registered(
        {noun: there for noun, there in named.items() if there},
        values,
        {role: there for role, there in offered.items() if there},
    )
    return found if any(found) else None


def _find_top(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def restore(found: Registered) -> None:
    """Make that known in this process."""
    for noun, named in found.named.items():
        Registry.by_noun[noun].restore(named)
    for name, value in found.values.items():
        codec.register(value, name)
    for role, offered in found.parts.items():
        for each in offered:
            parts.part(role)(each)
