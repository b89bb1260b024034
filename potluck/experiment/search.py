"""Where a search for one method's settings goes next: functions of what was tried, without any run.

First comes a share of the grid, the product of the keys' values: all of it, or where it is larger a fixed,
well-spread part that has every value of every key (`spread`). The rest of the trials goes around the best
point so far, one after another (`next_move`): one step beyond an end where the best point lies at one, at
most `REACH` of them, else half-way to a neighbour. Nothing is drawn from a clock or a process, so a search
that is resumed asks for the same points again.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias, TypedDict

from potluck.core.keys import derive

Plain: TypeAlias = bool | int | float | str
Value: TypeAlias = Plain | list[Plain]
Point: TypeAlias = dict[str, Value]  # by dotted key: {"train.lr": 0.1, "mu": 0.01}
Space: TypeAlias = Mapping[str, Sequence[Value]]  # what the grid has for each key; numbers rise
Origin: TypeAlias = Literal["grid", "extension", "refinement"]

REACH = 3  # steps that a search may go beyond each end of a key's values
DIGITS = 3  # of numbers that nobody wrote, where so many tell them apart: 0.173, not 0.17320508075688773
_DRAWS = 32  # looks for the next point of a spread part
_SEED = 7  # any number, always the same


class Trial(TypedDict):
    """A point that was tried."""

    point: Point
    origin: Origin
    key: str | None  # that was moved from the best point before it; of the grid: None
    results: list[float]  # by seed: final mean accuracy over devices, on their validation rows
    mean: float


class Move(NamedTuple):
    """A point to be tried next."""

    point: Point
    origin: Origin
    key: str | None = None


def count_product(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def count_points(space: Space, trials: int, refine: int | None) -> int:
    """How many points a search tries, unless its numbers leave no further one."""
    return trials if refine != 0 and _list_movable(space) else min(trials, count_product(space))


def count_grid(space: Space, trials: int, refine: int | None) -> int:
    """How many of them are of the grid: those kept back go around the best one, a third unless told."""
    kept = trials // 3 if refine is None else min(refine, trials - 1)
    return min(count_product(space), trials - kept if _list_movable(space) else trials)


def spread(space: Space, wanted: int) -> list[Point]:
    """So many points of the product, in its order, with all values of each key that has no more than that.

    Each point takes, of every key, one of the values that were taken least often so far; of some such points
    drawn by a fixed seed, the one that lies farthest from those taken already.
    """
    if count_product(space) <= wanted:
        return list(_list_product(space))
    sizes = [len(values) for values in space.values()]
    taken: list[tuple[int, ...]] = []
    for step in range(wanted):
        rare = [_list_rarest([at[i] for at in taken], size) for i, size in enumerate(sizes)]
        drawn = (
            tuple(least[derive(_SEED, step, draw, i) % len(least)] for i, least in enumerate(rare))
            for draw in range(_DRAWS)
        )
        fresh = [at for at in drawn if at not in taken]
        if not fresh:  # then any that is left
            fresh = [next(at for at in product(*map(range, sizes)) if at not in taken)]
        taken.append(max(fresh, key=lambda at: min((_measure(at, one, sizes) for one in taken), default=0.0)))
    return [
        {key: values[i] for (key, values), i in zip(space.items(), at, strict=True)} for at in sorted(taken)
    ]


def find_best(tried: Sequence[Trial]) -> Trial:
    """The best mean over seeds; of equally good ones the first: of a grid's numbers, the smallest."""
    return max(tried, key=lambda trial: trial["mean"])


def next_move(space: Space, tried: Sequence[Trial], refused: Sequence[Point] = ()) -> Move | None:
    """The next point around the best one; `refused` are points that no run can have. None: there is no other.

    Ends that the best point lies at go first, led by the one towards which accuracy rose most. Then keys take
    turns: who was moved least often so far.
    """
    best, turns = find_best(tried)["point"], Counter(trial["key"] for trial in tried)
    known = {_spell(trial["point"]) for trial in tried} | {_spell(point) for point in refused}
    keys = sorted(space, key=lambda key: turns[key])  # stable: then as written
    ends = sorted((key for key in keys if key in _list_movable(space)), key=lambda k: -_find_rise(tried, k))
    moves = [
        *(
            Move({**best, key: v}, "grid" if v in space[key] else "extension", key)
            for key in ends
            for v in _step_beyond(space, tried, key, refused)
        ),
        *(
            Move({**best, key: v}, "refinement", key)
            for key in keys
            for v in _step_between(space, tried, key)
        ),
    ]
    found = next((move for move in moves if _spell(move.point) not in known), None)
    if found is not None:
        return found
    rest = (point for point in _list_product(space) if _spell(point) not in known)
    return next((Move(point, "grid") for point in rest), None)


def find_edges(space: Space, tried: Sequence[Trial], refused: Sequence[Point] = ()) -> list[str]:
    """Keys whose best value is the first or the last that was tried, so that one beyond might be better.

    Not where the next one was refused: there the setting ends.
    """
    return [
        key
        for key in _list_movable(space)
        if (end := _find_end(tried, key)) and not _is_closed(end, key, refused)
    ]


def list_extensions(tried: Sequence[Trial]) -> dict[str, list[Value]]:
    """By key: the values beyond its grid that were tried, in their order."""
    found: dict[str, list[Value]] = {}
    for trial in tried:
        if trial["origin"] == "extension" and trial["key"] is not None:
            found.setdefault(trial["key"], []).append(trial["point"][trial["key"]])
    return found


class _End(NamedTuple):
    """Where the best value lies, if that is at an end of those tried."""

    value: float
    side: int  # 1: it is the largest; -1: the smallest


def _find_end(tried: Sequence[Trial], key: str) -> _End | None:
    values, best = _list_numbers(tried, key), _number(find_best(tried)["point"][key])
    if len(values) < 2 or best not in (values[0], values[-1]):
        return None
    return _End(best, 1 if best == values[-1] else -1)


def _find_rise(tried: Sequence[Trial], key: str) -> float:
    """How much better the end is than the next value inwards, where all else is alike; 0: it is no end.

    Where no two points are, the best ones of both are compared.
    """
    if (end := _find_end(tried, key)) is None:
        return 0.0
    inner = _list_numbers(tried, key)[-2 if end.side > 0 else 1]
    means = {_spell(trial["point"]): trial["mean"] for trial in tried}
    outermost = [trial for trial in tried if trial["point"][key] == end.value]
    pairs = [(trial["mean"], means.get(_spell({**trial["point"], key: inner}))) for trial in outermost]
    rises = [outer - mean for outer, mean in pairs if mean is not None]
    return fmean(rises) if rises else find_best(tried)["mean"] - _find_score(tried, key, inner)


def _find_score(tried: Sequence[Trial], key: str, value: float) -> float:
    """The best mean with a value."""
    return max(trial["mean"] for trial in tried if trial["point"][key] == value)


def _is_closed(end: _End, key: str, refused: Sequence[Point]) -> bool:
    return any((_number(point[key]) - end.value) * end.side > 0 for point in refused)


def _step_beyond(space: Space, tried: Sequence[Trial], key: str, refused: Sequence[Point]) -> Iterator[Value]:
    """One step further, by the ratio of the grid's two outermost values (by their distance, if one is not
    above 0); whole numbers stay whole."""
    end = _find_end(tried, key)
    if end is None or _is_closed(end, key, refused):
        return
    grid = [_number(value) for value in space[key]]
    outer, inner = (grid[-1], grid[-2]) if end.side > 0 else (grid[0], grid[1])
    if untried := [value for value in grid if (value - end.value) * end.side > 0]:  # of a part that was tried
        yield space[key][grid.index(untried[0] if end.side > 0 else untried[-1])]
        return
    steps = [_number(value) for value in list_extensions(tried).get(key, [])]
    if sum((value - outer) * end.side > 0 for value in steps) >= REACH:
        return
    by_ratio = min(outer, inner, end.value) > 0
    further = end.value * (outer / inner) if by_ratio else end.value + (outer - inner)
    if _is_whole(space[key]):
        least = int(end.value) + end.side
        yield max(least, round(further)) if end.side > 0 else min(least, round(further))
    else:
        yield from _shorten(further, *sorted((end.value, end.side * math.inf)))


def _step_between(space: Space, tried: Sequence[Trial], key: str) -> Iterator[Value]:
    """Half-way to the better neighbour, then to the other one; for words, other words."""
    best = find_best(tried)["point"][key]
    if not is_numeric(space[key]):
        yield from (value for value in space[key] if value != best)
        return
    values, here = _list_numbers(tried, key), _number(best)
    below, above = [v for v in values if v < here][-1:], [v for v in values if v > here][:1]
    scores = {near: _find_score(tried, key, near) for near in below + above}
    for near in sorted(scores, key=lambda near: -scores[near]):
        middle = math.sqrt(here * near) if min(here, near) > 0 else (here + near) / 2
        low, high = sorted((here, near))
        if not _is_whole(space[key]):
            yield from _shorten(middle, low, high)
        elif low < round(middle) < high:
            yield round(middle)


def _list_numbers(tried: Sequence[Trial], key: str) -> list[float]:
    return sorted({_number(trial["point"][key]) for trial in tried})


def _list_movable(space: Space) -> list[str]:
    """Keys with numbers to choose from; of one alone, nobody knows how long a step is."""
    return [key for key, values in space.items() if is_numeric(values) and len(values) > 1]


def is_numeric(values: Sequence[Value]) -> bool:
    """Whether these are all numbers, so that there are others between and beyond them."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _is_whole(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int) for value in values)


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value


def _shorten(value: float, low: float, high: float) -> Iterator[float]:
    """The value in few digits, but above one and below another; nothing if there is none between them."""
    written = (float(f"{value:.{digits}g}") for digits in range(DIGITS, 18))
    yield from islice((each for each in written if low < each < high), 1)


def _list_product(space: Space) -> Iterator[Point]:
    return (dict(zip(space, values, strict=True)) for values in product(*space.values()))


def _list_rarest(taken: Sequence[int], size: int) -> list[int]:
    times = Counter(taken)
    least = min(times[i] for i in range(size))
    return [i for i in range(size) if times[i] == least]


def _measure(one: Sequence[int], other: Sequence[int], sizes: Sequence[int]) -> float:
    """How far two points lie apart: a key's first and last value have distance 1."""
    return fmean(abs(a - b) / max(1, size - 1) for a, b, size in zip(one, other, sizes, strict=True))


def _spell(point: Point) -> str:
    """Points that are alike read alike: 1 and 1.0 are one rate."""
    return json.dumps({
        key: float(v) if isinstance(v, int) and not isinstance(v, bool) else v for key, v in point.items()
    })  # fmt: skip
