"""Let devices send malformed updates by the thousand, and compare with runs in which these were lost.

`python tests/malformed_many.py --updates 10000` does so for every algorithm named and every flaw: so many
updates of one flaw a run, and as many whose flaws are drawn by hash.
"""

import argparse
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

from federations import LOCAL, SIZES, simulate, small, weights
from interrupted import PLANS, same

from potluck import algorithms, fleet
from potluck.core.job import Result
from potluck.engine import checks
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.fleet import FLAWS
from potluck.jobs import SGD

ATTACKERS = [0, 1, 2, 4, 5, 6, 8, 9]  # of ten devices
NOTHING = Result(None)


def settings(name, what):
    """Most devices send malformed updates, of one flaw (None: any); and an algorithm."""
    federation = small(compute=1e5)
    federation = replace(
        federation,
        fleet=fleet.place_attackers(federation.fleet, 0, kind="malformed", what=what, nodes=ATTACKERS),
    )
    local = replace(LOCAL, optim=SGD(0.1)) if name == "scaffold" else LOCAL
    return federation, algorithms.make(name, replace(local, steps=1), clients=5)


@contextmanager
def lost():
    """Attackers' tasks are lost, whatever their answers would have been: nobody makes or reads these."""

    def outright(result, cost, trusted):
        return "lost" if result is NOTHING else checks.find_problem(result, cost, trusted=trusted)

    with ExitStack() as patches:
        patches.enter_context(patch("potluck.simulate.devices.falsify", lambda *_: NOTHING))
        patches.enter_context(patch("potluck.simulate.devices.find_problem", outright))
        yield


def outcome(name, plan, what, updates):
    """All that is left after so many updates were refused: models, memories, records but for the reasons."""
    sim = simulate(
        *settings(name, what), stop=StopAt(seconds=1e12), often=EvaluateAt(rounds=100), plan=PLANS[plan]
    )
    try:
        sim.start()
        while sim.accounts.lost.get("bad", 0) < updates:
            assert sim.step()
        assert not sim.accounts.took_part[ATTACKERS].any()
        assert sim.accounts.took_part[[3, 7]].all()
        records = [r | {"value": ""} if r["metric"] == "bad_update" else r for r in sim.records]
        kept = {node: sim.memories.get(node, None) for node in range(len(SIZES))}
        return {
            "weights": weights(sim),
            "kept": kept,
            "records": records,
            "time": sim.now,
            "round": sim.round,
        }
    finally:
        sim.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=10_000, help="malformed ones of each run")
    parser.add_argument("--algorithms", nargs="+", default=["fedavg", "fedasync", "scaffold"])
    parser.add_argument("--executors", nargs="+", default=["loop"])
    parser.add_argument("--flaws", nargs="+", default=["any", *FLAWS])
    given, bad = parser.parse_args(), 0
    for name in given.algorithms:
        for plan in given.executors:
            with lost():
                expected = outcome(name, plan, None, given.updates)
            for what in given.flaws:
                begun = time.monotonic()
                found = outcome(name, plan, None if what == "any" else what, given.updates)
                good = same(found, expected)
                bad += not good
                print(
                    f"{name:10} {plan:8} {what:8} {given.updates:,} refused in {found['round']:,} rounds, "
                    f"{time.monotonic() - begun:5.1f} s: " + ("the same" if good else "DIFFERENT"),
                    flush=True,
                )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
