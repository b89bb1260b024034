"""Names of models, and how each is built."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from potluck.core import entry_points
from potluck.core.errors import ConfigError, ModelError, nearest_or_own, show_short
from potluck.core.job import ModelSpec
from potluck.core.registry import Registry, pick_parameters

Build = Callable[..., nn.Module]


class Builder(NamedTuple):
    """What builds a model, and which of the offered keywords it takes."""

    build: Build
    takes: frozenset[str]


MOST = {"width": 1000, "depth": 100}  # as factors
_FACTORS = ("width", "depth")
_OFFERED = ("shape", "classes", "vocabulary", *_FACTORS)


def _load_offered() -> None:
    """Register the models of other packages: an entry point's name is the model's, its object builds it."""
    for name, entries in entry_points.list_entries("potluck.models").items():
        for entry in entries:
            with entry_points.blame(entry):
                register(name, entry.load())


MODELS: Registry[Builder] = Registry("model", _load_offered)


def register(name: str, build: Build) -> None:
    """Make a model known by `name`.

    `build`: a function or a class that returns an `nn.Module`. It is called with those of these keywords
    that it has as parameters: `shape` (of one row of the data), `classes` (outputs), `vocabulary` (classes of
    the data: tokens, where rows are text), and the factors `width` and `depth`, which make smaller variants.
    It is called once for every initialisation, so it should draw new weights each time.

    A `width` or `depth` is a factor if its default is 1.0, or if it has none. With any other default
    (`width=64`: units of a layer) it is the builder's own: Potluck leaves it alone; the model has one size.
    """
    if isinstance(build, nn.Module) or not callable(build):
        raise ModelError(
            f"model {name!r}: register what builds the module, not the module itself; "
            f"to start from its present weights write register({name!r}, lambda: net)"
        )
    takes = pick_parameters(f"model {name!r}: its builder", build, _OFFERED, ModelError)
    given = inspect.signature(build).parameters
    own = {key for key in _FACTORS if key not in given or not _is_factor(name, given[key])}
    MODELS.add(name, Builder(build, takes - own), build)


def _is_factor(name: str, parameter: inspect.Parameter) -> bool:
    """Whether a width or a depth can only be meant as Potluck means it: a factor, 1.0 for the full size."""
    whole = parameter.annotation in (int, "int")
    if parameter.default is not parameter.empty:
        number = isinstance(parameter.default, float) or parameter.annotation in (float, "float")
        return number and not whole and bool(parameter.default == 1)
    if whole:
        raise ModelError(
            f"model {name!r}: its builder's {parameter.name!r} is a whole number without a default, but "
            f"what is offered is a factor; give it a default, or make it `{parameter.name}: float = 1.0`"
        )
    return True


def find_builder(
    spec: ModelSpec, shape: tuple[int, ...], classes: int, vocabulary: int
) -> Callable[[], nn.Module]:
    """A call that builds the model of a spec for rows of a shape."""
    if spec.name not in MODELS:
        hint = nearest_or_own(spec.name, list(MODELS))
        raise ConfigError(f"model.name = {show_short(spec.name)}: no such model; {hint}")
    build, takes = MODELS[spec.name]
    for key, factor in zip(_FACTORS, (spec.width, spec.depth), strict=True):
        if not 0 < factor <= MOST[key]:
            raise ConfigError(f"model {spec.name!r}: {key} = {factor} should be above 0, at most {MOST[key]}")
        if factor != 1 and key not in takes:
            own = key in inspect.signature(build).parameters
            why = f": its builder's {key} is no factor, as `{key}: float = 1.0` would be" if own else ""
            raise ConfigError(
                f"model {spec.name!r} can't change its {key} ({key} = {factor}){why}; leave it at 1"
            )
    sizes = {"shape": shape, "classes": classes, "vocabulary": vocabulary}
    offered = {**sizes, "width": spec.width, "depth": spec.depth}
    chosen = {key: value for key, value in offered.items() if key in takes}
    return lambda: build(**chosen)
