"""Modes: named sets of defaults of one algorithm.

`potluck` has the defaults of the signature; in `published`, those that PUBLISHED names are the paper's.
PUBLISHED has values as a file would, so that no part need be imported where it stands: a part by its name or
as a table, and what a table leaves out is as in `potluck`.
"""

import dataclasses
from collections.abc import Mapping

from potluck import algorithms
from potluck.algorithms import Build
from potluck.algorithms._kinds import find_taker, takes_algorithm
from potluck.algorithms._parameters import Call, Terms, fit, fit_given, parameters, ranges
from potluck.core.errors import ConfigError, nearest, require, show_short

POTLUCK, PUBLISHED = MODES = ("potluck", "published")


def fit_algorithm(
    name: str, given: Mapping[str, object], path: str, terms: Terms, above: Mapping[str, object] | None = None
) -> Call:
    """The call of an algorithm: where nothing is given its mode's defaults hold.

    `above`: what an algorithm that holds this one has in their place.
    """
    build, own, outer = algorithms.find(name), dict(given), dict(above or {})
    mode, others = None, list[str]()
    if algorithms.find_published(name) is not None:
        others = ["mode"]
        mode = _read_mode(own.pop("mode", outer.pop("mode", POTLUCK)), path, build)
    defaults = list_defaults(name, mode)
    if outer:
        defaults |= _fit_defaults(build, outer, path, defaults)
    return dataclasses.replace(fit(build, own, path, terms, defaults, others), kind=name, mode=mode)


def list_defaults(name: str, mode: str | None) -> dict[str, object]:
    """The defaults of a mode, where they aren't the signature's."""
    published = algorithms.find_published(name)
    if published is not None and "mode" in parameters(algorithms.find(name)):
        raise ConfigError(f"{name}: has PUBLISHED, and so modes, and a parameter mode; rename the parameter")
    if published is None or mode != PUBLISHED:
        return {}
    return _fit_defaults(algorithms.find(name), published, f"{name}: PUBLISHED", {})


def _read_mode(mode: object, path: str, build: Build) -> str:
    if isinstance(mode, str) and mode in MODES:
        return mode
    hint = find_taker(mode, parameters(build)) or nearest(str(mode), MODES)
    raise ConfigError(f"{path}.mode = {show_short(mode)}: no such mode; {hint}")


def _fit_defaults(
    build: Build, values: Mapping[str, object], path: str, below: Mapping[str, object]
) -> dict[str, object]:
    """Values that take the place of defaults: parts are made, algorithms stay as a file has them."""
    known = parameters(build, below)
    found = fit_given(known, ranges(build), values, path, Terms())
    for key, value in found.items():
        if takes_algorithm(known[key].annotation):  # it is to train as the experiment says
            fix = "write it as a file would, by its name or as a table with its kind"
            require(values[key] is None or isinstance(value, Call), f"{path}.{key}", values[key], fix)
            found[key] = values[key]
        elif isinstance(value, Call):
            found[key] = value.make()
    return found
