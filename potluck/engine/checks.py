"""What is refused: results that must not reach an aggregate. A device asks this of its own results too."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from potluck.core.columns import Results
from potluck.core.job import Cost, Result
from potluck.core.trees import finite, is_dense, is_number, same_form, tmap, within

MOST_METRIC = 1e30  # what rules make of a metric, its square and sums of it, is still a number


def find_problem(result: Result, cost: Cost, *, trusted: bool) -> str | None:
    """Why a result must not reach an aggregate; `cost`: what its job promised.

    `trusted`: it comes straight from one of our own executors, whose word is taken that its numbers are
    finite. Whatever came over a wire, or was touched since, isn't.
    """
    body, sends = result.body, cost.sends
    if body is not None or sends:  # not by its truth: a body may be anything
        if sends is not None and not same_form(body, sends):
            return "keys, shapes or types differ from what the job promised"
        if not (trusted and result.finite):
            if not finite(body):
                known = sends is None or is_dense(body)  # of the form of ours: it can be walked through
                return "NaN or infinite numbers" if known else "tensors that are sparse or have no numbers"
            if sends is not None and not within(body, sends):
                return "whole numbers below 0 or above what the job promised"
    weight, told = result.weight, result.metrics  # every task comes by here: few comparisons, no calls
    if type(weight) is not float or not 0.0 <= weight <= cost.weight < inf:
        wrong = find_weight_problem(weight, cost.weight)
        if wrong is not None:
            return wrong
    if cost.metrics or type(told) is not dict or told:
        return _find_metrics_problem(result, cost.metrics)
    return None


def find_first_problem(
    results: Sequence[Result], rows: NDArray[np.int64], cost: Cost, weights: NDArray[np.float64]
) -> int | None:
    """Which of an executor's own results is the first with a problem; `weights`: the largest of each.

    Columns are looked at first: what passes there has none.
    """
    doubtful: list[int] = list(range(len(rows)))
    if isinstance(results, Results):
        told, good = results.weights[rows], results.finite[rows]
        good &= (told >= 0.0) & (told <= weights) & np.isfinite(weights)
        if not same_form(tmap(lambda t: t[0], results.body), cost.sends) and cost.sends is not None:
            good[:] = False
        if not results.metrics.keys() <= set(cost.metrics):
            good[:] = False
        for column in results.metrics.values():
            good &= np.abs(column[rows]) <= MOST_METRIC
        if len(results.metrics) < len(cost.metrics):
            good &= told <= 0.0
        doubtful = np.flatnonzero(~good).tolist()
    for i in doubtful:
        promised = replace(cost, weight=float(weights[i]))
        if find_problem(results[int(rows[i])], promised, trusted=True) is not None:
            return i
    return None


def find_weight_problem(weight: float, most: float) -> str | None:
    """Why a weight can't be: it isn't a number, or not one between 0 and the largest possible."""
    if is_number(weight) and 0 <= weight <= most:
        return None
    return (
        f"weight {weight if type(weight) is float else type(weight).__name__}; at most {most:g} is possible"
    )


def _find_metrics_problem(result: Result, names: tuple[str, ...]) -> str | None:
    told = result.metrics
    if not isinstance(told, dict):
        return f"metrics of type {type(told).__name__}"
    for name, number in told.items():
        if name not in names:
            return f"metric {name!r:.40}: the job tells {', '.join(names) or 'none'}"
        if (type(number) is float or is_number(number)) and -MOST_METRIC <= number <= MOST_METRIC:
            continue
        return f"metric {name} is no number between -{MOST_METRIC:g} and {MOST_METRIC:g}"
    if result.weight > 0 and len(told) < len(names):  # without a row nothing can be measured
        return f"without metrics {', '.join(name for name in names if name not in told)}"
    return None
