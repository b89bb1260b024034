"""The parameters of an algorithm as people read them."""

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from potluck.algorithms import Build, Parameter
from potluck.algorithms._parameters import is_table, meanings, parameters, ranges
from potluck.algorithms._shown import short, show
from potluck.core.ranges import follows_run


def list_parameters(build: Build) -> Iterator[Parameter]:
    """A callable's parameters; below a table of settings, its keys with their own defaults."""
    meaning, ends = meanings(build), ranges(build)
    for key, p in parameters(build).items():
        if is_table(p):
            yield Parameter(key, "table", "", meaning.get(key, ""))
            for own in list_parameters(p.annotation):
                default = own.default if own.type == "table" else show(attrgetter(own.name)(p.default))
                yield replace(own, name=f"{key}.{own.name}", default=default)
        else:
            said = "the experiment's" if key == "local" else show(p.default)
            said = "the run's" if follows_run(ends.get(key)) else said
            default = "" if p.default is p.empty else said
            yield Parameter(key, short(p.annotation), default, meaning.get(key, ""))
