"""What is shown of a comparison and its experiment, for a terminal and for pages alike."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from potluck.core.units import NONE, duration, percent, size
from potluck.experiment import Comparison, Experiment
from potluck.experiment.compared import Row
from potluck.experiment.remarks import Remark
from potluck.metrics import FEWEST_SEEDS, Estimate
from potluck.report.choices import name_choices, tell_chosen

GLOBAL_TEST = "global test"
ALARM = "!"  # marks what something is remarked of


class Column(NamedTuple):
    """A heading, one text for each algorithm, and which of them are best (none: nothing to win)."""

    name: str
    texts: list[str]
    best: set[int]


def list_columns(comparison: Comparison) -> list[Column]:
    """What is shown of every algorithm; where there is little room, the last columns are left out."""
    rows, tuning = comparison.rows, comparison.tuning
    chosen = (
        []
        if tuning is None
        else [Column(name_choices(tuning), [tell_chosen(tuning, r.algorithm) for r in rows], set())]
    )
    apart = [tell_points(r.difference) for r in rows]
    versus = [Column(f"vs {rows[0].algorithm}", apart, set())] if any(r.difference for r in rows) else []
    told = [NONE if r.speed_up is None else f"{r.speed_up:.1f}x" for r in rows]
    speed_ups = [Column("speed-up", told, set())] if any(each != NONE for each in told[1:]) else []
    sent = [NONE if r.bytes.mean is None else size(r.bytes.mean) for r in rows]
    return [
        *chosen,
        _mark_winners("accuracy", rows, lambda r: r.accuracy, tell_percents, max),
        *versus,
        _mark_winners(GLOBAL_TEST, rows, lambda r: r.everywhere, tell_percents, max),
        _mark_winners(
            f"time to {tell_whole(comparison.target)}",
            rows,
            lambda r: r.seconds_to_target,
            _tell_durations,
            min,
        ),
        *speed_ups,
        _mark_winners("worst 10 %", rows, lambda r: r.worst, tell_percents, max),
        Column("traffic", sent, set()),
        Column("rounds", [NONE if r.rounds.mean is None else f"{r.rounds.mean:,.0f}" for r in rows], set()),
        Column("device time", [duration(r.device_seconds.mean) for r in rows], set()),
    ]


def tell_global_test(tested: Mapping[str, str]) -> str:
    """Which models the global test is of, method by method where they differ (`summary.tell_tested`)."""
    whose: dict[str, list[str]] = {}
    for name, text in tested.items():
        if text:
            whose.setdefault(text, []).append(name)
    told = (f"{', '.join(names)}: {text}" for text, names in whose.items())
    how = next(iter(whose), "") if len(whose) == 1 else "; ".join(told)
    return f"{GLOBAL_TEST}: on rows that no device holds, {how}" if whose else f"no {GLOBAL_TEST}"


def list_remarks(comparison: Comparison) -> list[str]:
    """What went wrong, algorithm by algorithm: in the words of the first seed, with the seeds that it was."""
    found: dict[tuple[str, str, int], list[tuple[int, Remark]]] = {}
    for run in comparison.runs:
        kinds: Counter[str] = Counter()
        for remark in run.summary["remarks"]:
            key = (run.summary["algorithm"], remark["kind"], kinds[remark["kind"]])
            found.setdefault(key, []).append((run.summary["seed"], remark))
            kinds[remark["kind"]] += 1
    several = len(comparison.experiment.seeds) > 1
    lines = []
    for (algorithm, *_), same in found.items():
        (first, remark), *more = same
        also = f", and alike with {', '.join(str(seed) for seed, _ in more)}" if more else ""
        lines.append(f"{algorithm}{f' (seed {first}{also})' if several else ''}: {tell_remark(remark)}")
    return lines


def tell_remark(remark: Remark) -> str:
    """What went wrong, and by what."""
    return f"{remark['text']}. Likeliest cause: {remark['cause']}."


def describe_federation(e: Experiment) -> str:
    """Data, who holds them, devices and model of a resolved experiment."""
    clients = "the devices of a " if e.data.clients is None else f"{e.data.clients:,} devices of a "
    skew = f"dirichlet({e.data.alpha:g})" if e.data.partition == "dirichlet" else e.data.partition
    rows = "" if e.data.limit is None else f" ({e.data.limit:,} rows)"
    divided = f"divided by {skew} among {clients}{e.fleet.source} fleet"
    return f"{e.data.source}{rows}, {divided}; model {e.model.name}"


def describe_end(e: Experiment) -> str:
    """When a run ends."""
    s = e.stop
    limits = [
        "" if s.rounds is None else f"{s.rounds} rounds",
        "" if s.seconds is None else f"{duration(s.seconds)} of virtual time",
        "" if s.device_seconds is None else f"{duration(s.device_seconds)} of device time",
        "" if s.target is None else f"{s.target:.0%} accuracy",
    ]
    return " or ".join(limit for limit in limits if limit)


def tell_estimate(
    found: Estimate | None, tell_mean: Callable[[float], str], tell_half: Callable[[float], str]
) -> str:
    """A mean over seeds, and half of its 95 % interval where seeds suffice for one: `95.6 ± 0.4`."""
    if found is None or found.mean is None:
        return NONE
    return tell_mean(found.mean) + ("" if found.half is None else f" ± {tell_half(found.half)}")


def tell_percents(shares: Estimate) -> str:
    """A mean share: `95.6 ± 0.4 %`."""
    told = tell_estimate(shares, lambda mean: f"{100 * mean:.1f}", lambda half: f"{100 * half:.1f}")
    return told if told == NONE else f"{told} %"


def tell_points(difference: Estimate | None) -> str:
    """A difference of shares, in percentage points: `+1.2 ± 0.4`."""
    return tell_estimate(difference, lambda mean: f"{100 * mean:+.1f}", lambda half: f"{100 * half:.1f}")


def explain_intervals(seeds: int) -> str:
    """What ± means, or why there is none; empty for one seed, which has no mean over seeds."""
    if seeds >= FEWEST_SEEDS:
        return f"± is half of the 95 % interval of the mean over {seeds} seeds (Student's t)"
    return f"{seeds} seeds: too few for intervals ({FEWEST_SEEDS} have them)" if seeds > 1 else ""


def _mark_winners(
    name: str,
    rows: list[Row],
    value: Callable[[Row], Estimate],
    text: Callable[[Estimate], str],
    best: Callable[[list[float]], float],
) -> Column:
    means = [value(row).mean for row in rows]
    known = [mean for mean in means if mean is not None]
    won = {i for i, mean in enumerate(means) if mean is not None and mean == best(known)}
    return Column(name, [text(value(row)) for row in rows], won if len(rows) > 1 else set())


def tell_whole(share: float | None) -> str:
    """A share that is likely to be round: `80 %`."""
    return percent(share).replace(".0 %", " %")


def _tell_durations(times: Estimate) -> str:
    return duration(times.mean) if times.mean is not None else "not reached"
