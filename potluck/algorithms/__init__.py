"""The algorithms: a short file each, or a folder; this folder is the registry, so there is no list to edit.

Module NAME.py, or NAME/algorithm.py, holds one callable called NAME, whatever its capitals and underscores: a
`@value` rule, or a function that returns one. A folder's `__init__` holds the words alone (paper, idea,
deviations), so that a device can import `NAME/device.py` without the rule. The callable's parameters
are what an experiment may set in `[algorithms.NAME]`, and their meanings stand in their types, as
`clients: Annotated[int, "devices a round"] = 10`; `local` is the training that the experiment describes, and
a parameter of type `RunRounds` is the number of the run's rounds unless an experiment sets it.
Rules come from the paper, unless a constant FIDELITY says that they come from the authors' code. Where its
defaults aren't the paper's, a constant PUBLISHED beside it has the paper's values, as a file would have them;
an algorithm that has one has the modes `potluck`, the default, and `published` (`mode` in its table). How its
notes read in a report stands in NOTES of NAME/notes.py, when it should help in ADVISER of NAME/advice.py; an
algorithm of one file may hold both itself. A module whose name begins with an underscore is no algorithm.

Algorithms of other packages are found by their entry points in `potluck.algorithms`, each a module like those
here or the callable itself; `register` adds one by hand.
"""

import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

from potluck.algorithms._description import Description, Parameter
from potluck.core import entry_points
from potluck.core.advice import Adviser
from potluck.core.codec import Json
from potluck.core.errors import ConfigError, nearest_or_own, require
from potluck.core.notes import Notes
from potluck.core.parts import bare
from potluck.core.registry import Registry
from potluck.jobs import Train

__all__ = [
    "Build",
    "Description",
    "Parameter",
    "canonical",
    "check",
    "check_made",
    "complete",
    "describe",
    "fidelity",
    "find",
    "find_advisers",
    "find_notes",
    "find_published",
    "follow_run",
    "list_modes",
    "make",
    "names",
    "register",
]

Build: TypeAlias = Callable[..., Any]  # it returns a rule, an algorithm, or one of several tiers
GROUP = "potluck.algorithms"
_REGISTERED: Registry[Build] = Registry("algorithm")


def names() -> list[str]:
    """All algorithms, without importing any."""
    return sorted({*_in_tree(), *entry_points.list_entries(GROUP), *_REGISTERED})


def canonical(name: str, key: str = "algorithm") -> str:
    """The name as it is spelled here: `FedAvg` and `fed-avg` are `fedavg`; `key` is named if it is none."""
    spelled = {bare(known): known for known in names()}
    if bare(name) not in spelled:
        raise ConfigError(f"{key} = {name!r}: no such algorithm; {nearest_or_own(name.lower(), names())}")
    return spelled[bare(name)]


def register(name: str, build: Build) -> None:
    """Make an algorithm of your own known by `name`.

    `build`: a `@value` rule, or a function that returns one. Its parameters become keys of
    [algorithms.NAME]; one called `local` is given the training that the experiment describes.
    """
    if not callable(build):
        raise ConfigError(
            f"algorithm {name!r}: register what makes it, a function or a class, not a {type(build).__name__}"
        )
    others = {bare(known): known for known in names() if known not in _REGISTERED or known != name}
    if taken := others.get(bare(name)):
        raise ConfigError(f"algorithm {name!r}: there is {taken!r} already; register yours by another name")
    _REGISTERED.add(name, build, build)


def find(name: str, key: str = "algorithm") -> Build:
    """What makes an algorithm: the one callable of its module that bears its name."""
    name = canonical(name, key)
    if name in _REGISTERED:
        return _REGISTERED[name]
    where, module = f"potluck/algorithms/{name}.py", _origin(name)
    if not isinstance(module, ModuleType):
        return module
    if module.__name__.startswith(__name__) and hasattr(module, "__path__"):
        module = importlib.import_module(f"{__name__}.{name}.algorithm")
    found: list[Build] = [v for k, v in vars(module).items() if bare(k) == bare(name) and callable(v)]
    if len(found) != 1:
        raise ConfigError(
            f"{module.__file__ or where} holds {len(found)} callables named {name!r} (in any capitals): "
            f"it should hold one; begin the names of helper modules with an underscore"
        )
    return found[0]


def make(name: str, local: Train, rounds: int | None = None, /, **params: object) -> Any:
    """An algorithm with these parameters; a wrong one is an error that names it, its value and the fix.

    `rounds` are the run's, for parameters that follow them.
    """
    from potluck.algorithms._modes import fit_algorithm  # here: rules alone need no pydantic
    from potluck.algorithms._parameters import Terms, check_rule

    name = canonical(name)
    call = fit_algorithm(name, params, f"algorithms.{name}", Terms(local, rounds))
    return follow_run(check_rule(name, call.make()), rounds)


def check(name: str, /, **params: object) -> None:
    """Refuse parameters that `make` would refuse by their names or types; nothing is made."""
    from potluck.algorithms._modes import fit_algorithm
    from potluck.algorithms._parameters import Terms

    name = canonical(name)
    fit_algorithm(name, params, f"algorithms.{name}", Terms())


def check_made(rule: object) -> None:
    """Refuse a rule made in Python whose numbers lie beyond the ends that files have."""
    from potluck.algorithms import _made

    _made.check_made(rule, type(rule).__name__)


def follow_run(rule: Any, rounds: int | None) -> Any:
    """A rule in which, in its parts too, numbers that follow the run are those of this one, unless given."""
    from potluck.algorithms import _made

    return rule if rounds is None else _made.follow_run(rule, rounds)


def complete(name: str, rounds: int | None = None, /, **params: object) -> dict[str, Json]:
    """The mode, the parameters and all defaults beside them, as TOML holds them; `rounds` are the run's."""
    from potluck.algorithms._modes import fit_algorithm
    from potluck.algorithms._parameters import Terms
    from potluck.algorithms._written import list_settings

    name = canonical(name)
    return list_settings(fit_algorithm(name, params, f"algorithms.{name}", Terms(rounds=rounds)))


def describe(name: str) -> Description:
    """What the file of an algorithm says: paper, idea, parameters."""
    from potluck.algorithms._described import list_parameters

    build, name = find(name), canonical(name)
    words = (inspect.getdoc(_module(name)) or inspect.getdoc(build) or "").strip()
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", words)]
    idea = paragraphs[1] if len(paragraphs) > 1 else ""
    return Description(
        name, paragraphs[0], idea, fidelity(name), tuple(list_parameters(name)), list_modes(name)
    )


def fidelity(name: str) -> str:
    """What an algorithm's rules were taken from; shown beside results."""
    return str(getattr(_module(canonical(name)), "FIDELITY", "paper"))


def find_published(name: str) -> Mapping[str, object] | None:
    """The paper's values of the parameters whose defaults aren't; None of an algorithm without modes."""
    published = getattr(_module(canonical(name)), "PUBLISHED", None)
    fix = 'make it a table of parameters and values, such as {"clients": 20}'
    require(published is None or isinstance(published, Mapping), f"{name}: PUBLISHED", published, fix)
    return published


def list_modes(name: str) -> tuple[str, ...]:
    """The modes of an algorithm, the default first; none if it has none."""
    from potluck.algorithms._modes import MODES

    return () if find_published(name) is None else MODES


def find_notes() -> dict[str, Notes]:
    """How notes read in a report, of every algorithm that says so."""
    found = {name: _beside(name, "notes") for name in names()}
    for name, notes in found.items():
        require(notes is None or isinstance(notes, Notes), f"{name}: NOTES", notes, "make it a potluck Notes")
    return {name: notes for name, notes in found.items() if isinstance(notes, Notes)}


def find_advisers() -> list[Adviser]:
    """Those who know when an algorithm should help; algorithms of one file may have one together."""
    found = {name: _beside(name, "advice") for name in names()}
    for name, own in found.items():
        require(own is None or isinstance(own, Adviser), f"{name}: ADVISER", own, "make it a potluck Adviser")
    return list(dict.fromkeys(own for own in found.values() if isinstance(own, Adviser)))


def _in_tree() -> frozenset[str]:
    return _list_modules(tuple(__path__))


@cache  # every setting of every run asks for names
def _list_modules(folders: tuple[str, ...]) -> frozenset[str]:
    return frozenset(m.name for m in pkgutil.iter_modules(folders) if not m.name.startswith("_"))


def _beside(name: str, file: str) -> object:
    """What an algorithm's folder says in one of its files, or its own file; None if it says nothing."""
    module = _module(name)
    if module is not None and hasattr(module, "__path__"):
        within = f"{module.__name__}.{file}"
        module = importlib.import_module(within) if importlib.util.find_spec(within) else None
    return None if module is None else vars(module).get({"notes": "NOTES", "advice": "ADVISER"}[file])


def _origin(name: str) -> ModuleType | Build:
    """What a name stands for: a module of this folder, or what another package offers."""
    entries = entry_points.list_entries(GROUP).get(name, [])
    if len(entries) + (name in _in_tree()) > 1:
        others = " and ".join(entry_points.describe(entry) for entry in entries)
        raise ConfigError(f"algorithm = {name!r}: offered more than once, by {others}; remove or rename one")
    if not entries:
        return importlib.import_module(f"{__name__}.{name}")
    with entry_points.blame(entries[0]):
        origin: ModuleType | Build = entries[0].load()
        if not (isinstance(origin, ModuleType) or callable(origin)):
            raise ConfigError("should be a module, or what makes the algorithm")
        return origin


def _module(name: str) -> ModuleType | None:
    """The module whose words describe an algorithm."""
    origin = _REGISTERED[name] if name in _REGISTERED else _origin(name)
    return origin if isinstance(origin, ModuleType) else sys.modules.get(origin.__module__)
