"""What may travel to a device: jobs and what they are made of, and nothing else.

A device builds values by name and fields; of all that Potluck registers it builds these alone, and those of
modules that its own file names. Nothing that comes over a wire is imported.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable

from potluck.core import codec
from potluck.core.errors import ConfigError

_OWN = ("potluck.jobs", "potluck.core.job")  # of the models, ModelSpec alone is a value


def learn(modules: Iterable[str] = ()) -> frozenset[str]:
    """Import what runs on devices; the names of the values that may come. `modules`: of the device's own."""
    places = [*_OWN, *_list_device_modules(), *modules]
    for place in places:
        try:
            _import_all(place)
        except ImportError as error:
            raise ConfigError(f"modules = [{place!r}]: can't be imported ({error})") from None
    known = codec.values().items()
    return frozenset(name for name, cls in known if _is_below(cls.__module__, places))


def _list_device_modules() -> list[str]:
    """The part of each algorithm that runs on devices."""
    package = importlib.import_module("potluck.algorithms")
    folders = [found.name for found in pkgutil.iter_modules(package.__path__) if found.ispkg]
    names = [f"potluck.algorithms.{folder}.device" for folder in folders]
    return [name for name in names if importlib.util.find_spec(name) is not None]


def _import_all(place: str) -> None:
    """A module and those below it."""
    module = importlib.import_module(place)
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        _import_all(f"{place}.{found.name}")


def _is_below(module: str, places: Iterable[str]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)
