"""The parameters of an algorithm as people read them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from inspect import Parameter as Signed
from operator import attrgetter

from potluck import algorithms
from potluck.algorithms import Build, Parameter
from potluck.algorithms._modes import MODES, POTLUCK, PUBLISHED, list_defaults
from potluck.algorithms._parameters import is_table, meanings, parameters, ranges
from potluck.algorithms._shown import short, show
from potluck.core.ranges import follows_run

MODE = "which defaults: those that keep the promise, or the paper's; keys that are written win"


def list_parameters(name: str) -> Iterator[Parameter]:
    """An algorithm's parameters; if it has modes, these first, and the defaults of both."""
    build = algorithms.find(name)
    listed = _list_parameters(build, parameters(build))
    if algorithms.find_published(name) is None:
        yield from listed
        return
    yield Parameter("mode", " | ".join(MODES), POTLUCK, MODE, PUBLISHED)
    others = _list_parameters(build, parameters(build, list_defaults(name, PUBLISHED)))
    for own, other in zip(listed, others, strict=True):
        yield replace(own, published=other.default)


def _list_parameters(build: Build, known: Mapping[str, Signed]) -> Iterator[Parameter]:
    """A callable's parameters; below a table of settings, its keys with their own defaults."""
    meaning, ends = meanings(build), ranges(build)
    for key, p in known.items():
        if is_table(p):
            yield Parameter(key, "table", "", meaning.get(key, ""))
            for own in _list_parameters(p.annotation, parameters(p.annotation)):
                default = own.default if own.type == "table" else show(attrgetter(own.name)(p.default))
                yield replace(own, name=f"{key}.{own.name}", default=default)
        else:
            said = "the experiment's" if key == "local" else show(p.default)
            said = "the run's" if p.default is None and follows_run(ends.get(key)) else said
            default = "" if p.default is p.empty else said
            yield Parameter(key, short(p.annotation), default, meaning.get(key, ""))
