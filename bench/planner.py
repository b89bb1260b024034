"""ShuffleFL's planner: time and worth of each method for the same users, and what their gateways would need.

A user's devices differ in speed by up to 13 times and in links by up to 200, as in the paper; alpha makes
latency and imbalance count alike while nothing is moved. SLSQP in the form that the paper prints is called
off at a limit, and counts as staying then. Worth is relative to the best that any method found.
"""

import importlib.util
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import NoReturn

import numpy as np

from potluck.algorithms.shufflefl.planner.fill import Fill
from potluck.algorithms.shufflefl.planner.problem import Planner, Problem, Solution, choose_better, stay
from potluck.algorithms.shufflefl.planner.relaxed import Slsqp
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.scaling import find_level
from potluck.algorithms.shufflefl.times import slsqp_seconds, step_seconds

LIMIT = 45.0  # seconds for SLSQP
SIZES = ((3, 5), (5, 5), (7, 8), (3, 35), (4, 35), (6, 35), (3, 62), (4, 62), (6, 62), (4, 80), (6, 80))
ROWS = (60, 400)  # of a device
ROW_BITS = 8 * 784 * 4.0
PRINTED, POLISHED, SEARCH, COMPILED = "SLSQP", "SLSQP polished", "search", "compiled"
MANY = 35  # classes, from which the speed is compared


class OutOfTimeError(Exception):
    """The limit has passed."""


def user(devices: int, classes: int, seed: int) -> Problem:
    """A user whose devices differ in everything; shares of classes are drawn by Dirichlet of 0.5."""
    rng = np.random.default_rng((seed, devices, classes))
    counts = [
        rng.multinomial(rng.integers(*ROWS), rng.dirichlet(np.full(classes, 0.5))) for _ in range(devices)
    ]
    compute, up = 0.003 * 13 ** rng.uniform(size=devices), 1e5 * 200 ** rng.uniform(size=devices)
    found = Problem(np.array(counts), compute, up, 2 * up, ROW_BITS, epochs=5)
    return replace(found, alpha=find_level([found]))


def methods() -> dict[str, Planner]:
    """Those that can run here; numba's if it is installed."""
    found: dict[str, Planner] = {PRINTED: Slsqp(), "fill": Fill(), SEARCH: Search()}
    if importlib.util.find_spec("numba") is not None:
        found |= {COMPILED: Search(compiled=True), "kicked": Search(compiled=True, kicks=10)}
    return found


def timed(method: Planner, problem: Problem, limit: float) -> tuple[float, Solution]:
    """Seconds, and what was found by then."""

    def late(*_: int | FrameType | None) -> NoReturn:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    began = time.perf_counter()
    try:
        found = method.solve(problem, 1)
    except OutOfTimeError:
        found = replace(choose_better(problem, stay(problem.counts), 0), done=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    return time.perf_counter() - began, found


def compared(asked: dict[str, Planner], problem: Problem, limit: float) -> dict[str, tuple[float, Solution]]:
    """Every method's seconds and find; SLSQP's is also polished by the search."""
    got = {name: timed(method, problem, limit) for name, method in asked.items()}
    seconds, found = got[PRINTED]
    began = time.perf_counter()
    polished = Search().polish(problem, found.plan)
    got[POLISHED] = seconds + time.perf_counter() - began, replace(polished, done=found.done)
    return got


def main(
    limit: float = LIMIT, sizes: Sequence[tuple[int, int]] = SIZES, seeds: Sequence[int] = (1, 2, 3)
) -> None:
    asked = methods()
    for method in asked.values():  # compiles, where there is something to compile
        method.solve(user(2, 2, 0), 1)
    names = [*asked, POLISHED]
    print(f"worth over the best known / seconds; * called off after {limit:g} s, or given up by SLSQP itself")
    print(f"{'devices x classes':>17}" + "".join(f"{name:>18}" for name in names))
    over: dict[str, list[float]] = {name: [] for name in names}
    faster: dict[str, list[float]] = {name: [] for name in (SEARCH, COMPILED) if name in asked}
    beaten = dict.fromkeys(faster, 0)
    for devices, classes in sizes:
        for seed in seeds:
            got = compared(asked, user(devices, classes, seed), limit)
            best = min(found.worth for _, found in got.values())
            cells = []
            for name in names:
                seconds, found = got[name]
                over[name].append(found.worth / best)
                cells.append(f"{found.worth / best:8.3f} /{seconds:7.3f}{' ' if found.done else '*'}")
            print(f"{devices:>11d} x{classes:>3d} " + "".join(f"{cell:>18}" for cell in cells), flush=True)
            for name in faster:
                beaten[name] += got[name][1].worth <= got[PRINTED][1].worth * (1 + 1e-12)
                if classes >= MANY:
                    faster[name].append(got[PRINTED][0] / got[name][0])
        own, theirs = got[SEARCH][1].steps * step_seconds("pi4"), slsqp_seconds("pi4", devices, classes)
        print(
            f"{'':17}on a Raspberry Pi 4: search {own:.1f} s (by steps), SLSQP {theirs:.0f} s (the paper's)"
        )
    for name, ratios in over.items():
        print(f"{name:>12}: {statistics.median(ratios):.3f} of the best known, at worst {max(ratios):.3f}")
    for name, times in faster.items():
        print(f"{name:>12}: no worse than SLSQP for {beaten[name]} of {len(over[name])} users", end="")
        if times:
            low, middle = min(times), statistics.median(times)
            print(
                f"; {low:,.0f} times as fast or more at {MANY} classes and above, median {middle:,.0f}",
                end="",
            )
        print()
