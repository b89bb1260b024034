"""The table of a comparison, for a terminal and for a page alike."""

from collections.abc import Callable
from typing import NamedTuple

from potluck.experiment import Comparison
from potluck.experiment.comparison import Row
from potluck.metrics import Spread
from potluck.report.grid import rate
from potluck.report.units import NONE, duration, percent, percents, points, size


class Column(NamedTuple):
    """A heading, one text for each algorithm, and which of them are best (none: nothing to win)."""

    name: str
    texts: list[str]
    best: set[int]


def columns(comparison: Comparison) -> list[Column]:
    """What is told of every algorithm; where there is little room, the last columns are left out."""
    rows, tuning = comparison.rows, comparison.tuning
    rates = [] if tuning is None else [Column("lr", [rate(tuning, r.algorithm) for r in rows], set())]
    apart = [points(r.difference) for r in rows]
    versus = [Column(f"vs {rows[0].algorithm}", apart, set())] if any(r.difference for r in rows) else []
    sent = [NONE if r.bytes.mean is None else size(r.bytes.mean) for r in rows]
    return [
        *rates,
        _won("accuracy", rows, lambda r: r.accuracy, percents, max),
        *versus,
        _won("global test", rows, lambda r: r.everywhere, percents, max),
        _won(f"time to {_whole(comparison.target)}", rows, lambda r: r.seconds_to_target, _durations, min),
        Column("speed-up", [NONE if r.speed_up is None else f"{r.speed_up:.1f}x" for r in rows], set()),
        _won("worst 10 %", rows, lambda r: r.worst, percents, max),
        Column("traffic", sent, set()),
        Column("rounds", [NONE if r.rounds.mean is None else f"{r.rounds.mean:,.0f}" for r in rows], set()),
        Column("device time", [duration(r.device_seconds.mean) for r in rows], set()),
    ]


def _won(
    name: str,
    rows: list[Row],
    value: Callable[[Row], Spread],
    text: Callable[[Spread], str],
    best: Callable[[list[float]], float],
) -> Column:
    means = [value(row).mean for row in rows]
    known = [mean for mean in means if mean is not None]
    won = {i for i, mean in enumerate(means) if mean is not None and mean == best(known)}
    return Column(name, [text(value(row)) for row in rows], won if len(rows) > 1 else set())


def _whole(share: float | None) -> str:
    return percent(share).replace(".0 %", " %")


def _durations(times: Spread) -> str:
    return duration(times.mean) if times.mean is not None else "not reached"
