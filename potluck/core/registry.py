"""What an experiment file calls by name: what the package has, and what a user's own code adds to it."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from potluck.core.errors import ConfigError, PotluckError, nearest_or_own

V = TypeVar("V")


class Registry(Mapping[str, V], Generic[V]):
    """Values by name, in the order in which they came.

    `load` is called before the first name is looked up: it may add what other packages offer.
    """

    added: ClassVar[int] = 0  # by now, to all registries
    by_noun: ClassVar[dict[str, "Registry[Any]"]] = {}

    def __init__(self, noun: str, load: Callable[[], None] | None = None) -> None:
        self.noun = noun  # of its values, in errors
        self._load = load
        self._values: dict[str, V] = {}
        self._modules: dict[str, str] = {}  # who registered each
        Registry.by_noun[noun] = self

    def add(self, name: str, value: V, owner: Callable[..., object]) -> None:
        """Make a value known by a name, in the name of the module that wrote `owner`.

        A module may replace what is its own, as a notebook does whose cell is run again. It can't take a name
        that is another's: a file would then mean something else wherever that module isn't loaded.
        """
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
            raise ConfigError(f"{self.noun} {name!r}: a name is made of letters, digits, '_', '-' and '.'")
        module = str(owner.__module__)
        if self._modules.get(name, module) != module:
            raise ConfigError(
                f"{self.noun} {name!r}: the name is taken by {self._modules[name]}; "
                f"register yours under another, such as {'my-' + name!r}"
            )
        self._values[name], self._modules[name] = value, module
        Registry.added += 1

    def find(self, name: str, key: str) -> V:
        """The value of a name, which a setting gave; `key` is the setting's own name, for errors."""
        if name not in self:
            raise ConfigError(f"{key} = {name!r}: no such {self.noun}; {nearest_or_own(name, list(self))}")
        return self[name]

    def find_module(self, name: str) -> str:
        """Who registered a name; empty if nobody did."""
        return self._modules.get(name, "")

    def list_of(self, packages: Collection[str]) -> dict[str, tuple[str, V]]:
        """What these packages, or modules of their own, have registered: by name, with the module."""
        modules = self._modules.items()
        return {
            name: (module, self._values[name])
            for name, module in modules
            if module.partition(".")[0] in packages
        }

    def restore(self, found: Mapping[str, tuple[str, V]]) -> None:
        """Make known what `list_of` gave in another process, but for names that are known already."""
        for name, (module, value) in found.items():
            if name not in self:
                self._values[name], self._modules[name] = value, module
                Registry.added += 1

    def __getitem__(self, name: str) -> V:
        return self._load_once()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load_once())

    def __len__(self) -> int:
        return len(self._load_once())

    def _load_once(self) -> dict[str, V]:
        load, self._load = self._load, None  # first: what is loaded may look here
        if load is not None:
            try:
                load()
            except BaseException:
                self._load = load
                raise
        return self._values


def pick_parameters(
    what: str, make: Callable[..., object], offered: Sequence[str], error: type[PotluckError] = ConfigError
) -> frozenset[str]:
    """Which of the offered keywords a callable takes; `what` it is, for the error if it needs others."""
    takes: set[str] = set()
    for parameter in inspect.signature(make).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes.update(offered)
        elif parameter.name in offered and parameter.kind is not parameter.POSITIONAL_ONLY:
            takes.add(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise error(
                f"{what} needs {parameter.name!r}, but is offered only "
                f"{', '.join(offered)} (by keyword); give {parameter.name!r} a default"
            )
    return frozenset(takes)
