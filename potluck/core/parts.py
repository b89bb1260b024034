"""Parts by role: what a file may name where an algorithm takes a selector, a server optimiser and so on.

A protocol states a role, `@role("select")`; a class is offered for it, `@part("select")`. A parameter whose
type is that protocol takes any class that was offered, by its name: `select = {kind = "Uniform"}`.
"""

from collections.abc import Callable
from typing import TypeVar

from potluck.core.errors import PotluckError

C = TypeVar("C", bound=type)
_ROLES: dict[type, str] = {}  # by protocol
_PARTS: dict[str, dict[str, type]] = {}  # by role and bare name


def role(name: str) -> Callable[[C], C]:
    """Let a protocol, and those that extend it, stand for the parts of a role of this `name`."""

    def state(protocol: C) -> C:
        _ROLES[protocol] = name
        return protocol

    return state


def part(role: str) -> Callable[[C], C]:
    """Offer a class to files for a `role`: above `@value`, so that it can be stored too."""

    def offer(cls: C) -> C:
        known = _PARTS.setdefault(role, {})
        here, there = (f"{c.__module__}:{c.__qualname__}" for c in (cls, known.get(bare(cls.__name__), cls)))
        if here != there:  # else its module was imported anew
            raise PotluckError(
                f"@part({role!r}) {cls.__name__!r} is {there} already: give {here} another name"
            )
        known[bare(cls.__name__)] = cls
        return cls

    return offer


def role_of(kind: type) -> str | None:
    """The role that a protocol stands for; None if none does."""
    return next((_ROLES[base] for base in kind.__mro__ if base in _ROLES), None)


def parts(role: str) -> dict[str, type]:
    """All classes that were offered for a role so far, by bare name."""
    return dict(_PARTS.get(role, {}))


def parts_of(module: str) -> dict[str, str]:
    """The parts that a module offers, by name, with their roles."""
    return {
        c.__name__: role for role, known in _PARTS.items() for c in known.values() if c.__module__ == module
    }


def roles() -> set[str]:
    """All roles that a protocol stands for."""
    return set(_ROLES.values())


def bare(name: str) -> str:
    """`AdaptiveKrum`, `adaptive_krum` and `adaptive-krum` are one."""
    return name.replace("_", "").replace("-", "").lower()
