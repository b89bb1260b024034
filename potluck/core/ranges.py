"""What numbers a setting may be: types with ends, in which tables and parameters are written.

A type says what a number is, so that every key of its kind is refused alike, before anything is built. Ends
are far beyond what is sensible and far below what overflows. A plain `int` or `float`, in an algorithm of
one's own say, has the ends of `Whole` and `Number`.

`RunRounds` says besides where a number comes from that is left out: from the run.
"""

import functools
import operator
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Lt

MOST = 2**31 - 1
WIDEST = 1e12


class FollowsRun:
    """Said of a type: what is left out, or None, becomes the number of the run's rounds."""


Whole = Annotated[int, Ge(-MOST), Le(MOST)]
Natural = Annotated[int, Ge(0), Le(MOST)]
Count = Annotated[int, Ge(1), Le(MOST)]
Many = Annotated[int, Ge(1), Le(1_000_000)]  # of what takes memory or time in every task: rows, passes
Repeats = Annotated[int, Ge(0), Le(1_000_000)]  # the same where there may be none
Lanes = Annotated[int, Ge(1), Le(10_000)]  # devices at work, each of which is looked at at every event
Few = Annotated[int, Ge(1), Le(1000)]  # of what is held as often in memory: models, groups, directions
RunRounds = Annotated[Count | None, FollowsRun()]  # None stays where a run has no last round
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]
Number = Annotated[float, Ge(-WIDEST), Le(WIDEST)]
Positive = Annotated[float, Gt(0), Le(WIDEST)]
AtLeast0 = Annotated[float, Ge(0), Le(WIDEST)]
Power = Annotated[float, Ge(0), Le(100)]  # an exponent
Factor = Annotated[float, Ge(1), Le(1e6)]  # how many times as much
Share = Annotated[float, Gt(0), Lt(1)]
Portion = Annotated[float, Gt(0), Le(1)]  # a share that may be all
Chance = Annotated[float, Ge(0), Le(1)]
Momentum = Annotated[float, Ge(0), Lt(1)]  # of what was before
LearningRate = Annotated[float, Gt(0), Le(1000)]
Seconds = Annotated[float, Gt(0), Le(WIDEST)]
Often = Annotated[float, Ge(1e-3), Le(WIDEST)]  # seconds from one to the next of what comes again and again

_CONTAINERS = (list, tuple, set, frozenset, dict, Sequence, Mapping)


def give_ends(hint: Any) -> Any:
    """A type in which every number has ends: its own, or those of `Whole` and `Number`."""
    if hint in (int, float):
        return Whole if hint is int else Number
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return hint if any(isinstance(note, Le | Lt) for note in inside[1:]) else _annotate(*inside)
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, (give_ends(member) for member in inside))
    if origin in _CONTAINERS:
        return origin[tuple(give_ends(member) for member in inside)]
    return hint


def follows_run(hint: Any) -> bool:
    """Whether a number of this type is the run's unless told."""
    return any(isinstance(note, FollowsRun) for note in getattr(hint, "__metadata__", ()))


def _annotate(hint: Any, *notes: object) -> Any:
    """The ends of a type and what else is said of it, which may narrow them."""
    return Annotated[(give_ends(hint), *notes)]
