"""What the pages of Fed-RAC's studies tell: performances over time, tiers, distillation."""

from collections.abc import Callable, Sequence
from statistics import fmean

from _fedrac import ALONE, TAUGHT, TIERS, mean, overall, tier_levels

from potluck.algorithms.fedrac.results import (
    count_rounds_to,
    count_tiers,
    count_total_rounds,
    list_device_accuracies,
)
from potluck.core.units import NONE, duration, percent
from potluck.experiment.runs import Run
from potluck.experiment.study import Results
from potluck.metrics import Estimate, Measurement
from potluck.report.columns import explain_intervals, tell_points
from potluck.report.reproduction import make_markdown_table, make_tables


def headline(wanted: Sequence[float]) -> Callable[[Results], str]:
    """All measures, then how soon performances were reached and how they grew."""

    def page(results: Results) -> str:
        return "\n\n".join(
            [
                make_tables(results),
                f"Rounds and time to a performance (Table VII):\n\n{goals(results, wanted)}",
                f"Performance on the way (Figure 3):\n\n{over_time(results)}",
            ]
        )

    return page


def goals(results: Results, wanted: Sequence[float], scenario: str = "") -> str:
    """Rounds and virtual time until performances are reached (Table VII), for every arm."""
    arms = [arm.name for arm in results.plan.arms]
    head, cells = [""], [arms]
    for goal in wanted:
        head += [f"rounds to {100 * goal:g} %", "time"]
        found = [[_first(overall(run), goal) for run in results.runs[scenario, arm]] for arm in arms]
        cells.append([_all(points, lambda p: p.round, "{:.0f}".format) for points in found])
        cells.append([_all(points, lambda p: p.time, duration) for points in found])
    return make_markdown_table(head, cells)


def over_time(results: Results, scenario: str = "", shares: Sequence[float] = (0.1, 0.25, 0.5, 1.0)) -> str:
    """Performance at shares of each arm's rounds (Figure 3)."""
    arms = [arm.name for arm in results.plan.arms]
    cells = [arms]
    for share in shares:
        found = [[_at(overall(run), share) for run in results.runs[scenario, arm]] for arm in arms]
        cells.append([percent(fmean(values)) for values in found])
    return make_markdown_table(["", *(f"{100 * share:g} % of rounds" for share in shares)], cells)


def per_tier(results: Results, of: Callable[[Run], Sequence[float | None]], scenario: str = "") -> str:
    """Something of every tier, a line an arm: means over seeds."""
    found = {arm.name: [of(run) for run in results.runs[scenario, arm.name]] for arm in results.plan.arms}
    most = max(len(values) for runs in found.values() for values in runs)
    cells = [list(found)]
    for tier in range(most):
        known = [[v[tier] for v in runs if tier < len(v)] for runs in found.values()]
        cells.append([percent(mean(values)) for values in known])
    return make_markdown_table(["", *(f"C{tier + 1}" for tier in range(most))], cells)


def scales(results: Results, scenario: str = "") -> str:
    """Widths of the tiers' models, and how many phones train them, at the first seed."""
    names, cells = list[str](), list[list[str]]()
    for arm in (arm.name for arm in results.plan.arms):
        lines = results.runs[scenario, arm][0].lines
        told = next(r["value"] for r in lines if r["metric"] == "tiers")
        names.append(arm)
        cells.append([f"{w:g} ({n})" for w, n in zip(told["scales"], told["members"], strict=True)])
    most = max(map(len, cells))
    filled = [line + [NONE] * (most - len(line)) for line in cells]
    columns = [list(column) for column in zip(*filled, strict=True)]
    return make_markdown_table(["", *(f"C{tier + 1} (phones)" for tier in range(most))], [names, *columns])


def _first(points: Sequence[Measurement], goal: float) -> Measurement | None:
    return next((p for p in points if p.value >= goal), None)


def _all(
    points: Sequence[Measurement | None], of: Callable[[Measurement], float], told: Callable[[float], str]
) -> str:
    there = [of(p) for p in points if p is not None]
    if not there:
        return "not reached"
    return told(fmean(there)) + ("" if len(there) == len(points) else f" ({len(there)} of {len(points)})")


def _at(points: Sequence[Measurement], share: float) -> float:
    """The last value seen by then."""
    until = share * points[-1].round
    return [p.value for p in points if p.round <= max(until, points[0].round)][-1]


# ---------------------------------------------------------------------------------------------- distillation


def lessons(results: Results) -> str:
    """All measures; then, in every scenario, tiers with and without distillation and rounds to goals."""
    parts, explained = [make_tables(results)], explain_intervals(len(results.plan.scale.seeds))
    ends = f"; {explained}" if explained else ""
    for scenario in results.plan.scenarios:
        parts += [f"Tiers, {scenario}; differences are paired by seed{ends}:",
                  taught(results, scenario), f"Rounds to a performance, {scenario} (Table VII):",
                  required(results, scenario, (0.8, 0.85, 0.9))]  # fmt: skip
    return "\n\n".join(parts)


def taught(results: Results, scenario: str) -> str:
    """Every tier's model on the test set, and its members' on their own test rows (Figure 2)."""
    both = [results.runs[scenario, name] for name in (ALONE, TAUGHT)]
    rows = []
    for tier in range(max(count_tiers(run) for runs in both for run in runs)):
        line = [f"C{tier + 1}"]
        for of in (tier_levels, list_device_accuracies):
            found = [[of(run)[tier] if tier < count_tiers(run) else None for run in runs] for runs in both]
            apart = [None if a is None or b is None else b - a for a, b in zip(*found, strict=True)]
            line += [
                percent(mean(found[0])),
                percent(mean(found[1])),
                tell_points(Estimate.of([d for d in apart if d is not None])),
            ]
        rows.append(line)
    head = ["", "without", "with", "difference", "on own rows: without", "with", "difference"]
    return make_markdown_table(head, [list(column) for column in zip(*rows, strict=True)])


def required(results: Results, scenario: str, wanted: Sequence[float]) -> str:
    """Each tier's rounds to a performance, and the leader's and the slowest follower's together: TRR."""
    rows = []
    for goal in wanted:
        for name in (ALONE, TAUGHT):
            runs = results.runs[scenario, name]
            found = [count_rounds_to(run, goal) for run in runs]
            each = [[rounds[f] if f < len(rounds) else None for rounds in found] for f in range(TIERS)]
            together = [count_total_rounds(run, goal) for run in runs]
            rows.append([f"{100 * goal:g} %, {name}", *map(_rounds, each), _rounds(together)])
    head = ["", *(f"C{f + 1}" for f in range(TIERS)), "TRR"]
    return make_markdown_table(head, [list(column) for column in zip(*rows, strict=True)])


def _rounds(found: Sequence[int | None]) -> str:
    there = [rounds for rounds in found if rounds is not None]
    if not there:
        return NONE
    return f"{fmean(there):.0f}" + ("" if len(there) == len(found) else f" ({len(there)} of {len(found)})")
