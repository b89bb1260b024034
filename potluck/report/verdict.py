"""One sentence: who won, and at what cost; or that nobody did, where seeds don't tell algorithms apart."""

from potluck import metrics
from potluck.core.units import duration, percent
from potluck.experiment import Comparison
from potluck.experiment.compared import Row
from potluck.report.columns import tell_points

ALIKE = 0.05  # costs that differ by less are called the same
CLOSE = 0.01  # so is accuracy where seeds are too few for an interval: seeds alone differ by more


def tell_verdict(comparison: Comparison) -> str:
    """Empty when there is nothing to compare."""
    rows = [row for row in comparison.rows if row.accuracy.mean is not None]
    if len(rows) < 2:
        return ""
    waiting = [run.name for run in comparison.runs if not run.finished]
    if waiting:
        return f"No verdict yet: {join_names(waiting)} {'is' if len(waiting) == 1 else 'are'} unfinished."
    best, *others = sorted(rows, key=lambda row: -(row.accuracy.mean or 0.0))
    rival = others[0] if best is rows[0] else rows[0]  # the first is what the others are measured against
    seeds = min(len(comparison.of(row.algorithm)) for row in rows)
    if seeds < metrics.FEWEST_SEEDS:
        few = "one seed" if seeds == 1 else f"{seeds} seeds"
        level = [row for row in rows if (best.accuracy.mean or 0.0) - (row.accuracy.mean or 0.0) < CLOSE]
        if len(level) > 1:
            names, first = join_names([row.algorithm for row in level]), _tell_first(comparison, level)
            tie = f"{names} end within a point of {percent(best.accuracy.mean)}"
            return f"No clear winner: {tie}, with {few} (--seeds 1,2,3 would tell){first}."
        lead = f"{best.algorithm} came out ahead: {_compare_two(comparison, best, rival)}"
        return f"{lead}; {few} only, so this may be chance (--seeds 1,2,3 would tell)."
    close = [row for row in others if not _is_above(comparison, best, row)]
    if not close:
        return f"{best.algorithm} won: {_compare_two(comparison, best, rival)}."
    nearest = close[0]
    apart = _measure_difference(comparison, best, nearest)
    gap = f" (paired difference {tell_points(apart)} points over {seeds} seeds, a 95 % interval)"
    first = _tell_first(comparison, [best, *close])
    also = f", nor can {join_names([row.algorithm for row in close[1:]])}" if close[1:] else ""
    return (
        f"No clear winner: {best.algorithm}'s {percent(best.accuracy.mean)} and {nearest.algorithm}'s "
        f"{percent(nearest.accuracy.mean)} can't be told apart{gap}{also}{first}."
    )


def _compare_two(comparison: Comparison, best: Row, rival: Row) -> str:
    """Accuracies, time and traffic of the best against another."""
    parts = [f"{percent(best.accuracy.mean)} against {rival.algorithm}'s {percent(rival.accuracy.mean)}"]
    goal, own, other = _tell_goal(comparison), best.seconds_to_target.mean, rival.seconds_to_target.mean
    if own is not None and other is not None:
        parts.append(_tell_speed(other, own, goal))
    elif own is not None and other is None:
        parts.append(
            f"at {goal} after {duration(own)}, which {rival.algorithm} missed"
            f"{_count_missed(comparison, rival)}"
        )
    elif other is not None:
        parts.append(f"though it missed {goal}{_count_missed(comparison, best)}")
    sent, theirs = best.bytes.mean, rival.bytes.mean
    if sent and theirs:
        parts.append(f"with {_tell_ratio(sent / theirs)} traffic")
    return ", ".join(parts)


def _count_missed(comparison: Comparison, row: Row) -> str:
    """In how many of its runs an algorithm missed the target, unless in all."""
    runs = comparison.of(row.algorithm)
    missed = sum(comparison.time(run) is None for run in runs)
    return "" if missed == len(runs) else f" with {missed} of {len(runs)} seeds"


def _tell_speed(other: float, own: float, goal: str) -> str:
    if abs(other - own) <= ALIKE * own:
        return f"as soon to {goal}"
    if min(other, own) == 0:  # before anything was trained
        return f"at {goal} {'sooner' if own < other else 'later'}"
    factor = other / own
    return f"{factor:.1f} times sooner to {goal}" if factor > 1 else f"{1 / factor:.1f} times later to {goal}"


def _tell_ratio(factor: float) -> str:
    return "the same" if abs(factor - 1) < ALIKE else f"{factor:.2g} times the"


def _tell_first(comparison: Comparison, rows: list[Row]) -> str:
    """Among those that can't be told apart by accuracy: who is first at the target, and by how much."""
    times = ((row.seconds_to_target.mean, row.algorithm) for row in rows)
    there = sorted((mean, name) for mean, name in times if mean is not None)
    if len(there) < 2 or there[1][0] <= there[0][0] * (1 + ALIKE):
        return ""
    (first, name), (second, _) = there[:2]
    apart = f"after {duration(first)} against {duration(second)}"
    return f"; of these, {name} was first at {_tell_goal(comparison)}, {apart}"


def _is_above(comparison: Comparison, best: Row, other: Row) -> bool:
    """Whether the interval of the paired difference leaves no doubt."""
    apart = _measure_difference(comparison, best, other)
    return apart.mean is not None and apart.half is not None and apart.mean - apart.half > 0


def _measure_difference(comparison: Comparison, one: Row, other: Row) -> metrics.Estimate:
    mine, theirs = (
        {run.summary["seed"]: run.summary["accuracy_mean"] for run in comparison.of(row.algorithm)}
        for row in (one, other)
    )
    common = [seed for seed in mine if seed in theirs]
    return metrics.paired_difference([mine[seed] for seed in common], [theirs[seed] for seed in common])


def _tell_goal(comparison: Comparison) -> str:
    return percent(comparison.target).replace(".0 %", " %")


def join_names(names: list[str]) -> str:
    """Names in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
