"""Most devices send malformed updates: what is left is what is left of a run in which these were lost."""

import functools
from dataclasses import replace

from federations import LOCAL, SIZES, simulate, small, weights
from interrupted import PLANS, same
from refused import drop_reasons, lost

from potluck import algorithms, fleet
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.fleet import FLAWS
from potluck.jobs import SGD

TITLE = "updates that are malformed, of one flaw or any; three algorithms, two executors"
AT_ONCE = 100  # updates that one run refuses
KINDS = [
    (name, plan, what)
    for name in ("fedavg", "fedasync", "scaffold")
    for plan in ("loop", "stacked")
    for what in (None, *FLAWS)
]
TIMES = 5  # that every kind is tried, with other seeds
COUNT, QUICK = AT_ONCE * TIMES * len(KINDS), 4
ATTACKERS = [0, 1, 2, 4, 5, 6, 8, 9]  # of ten devices


def settings(name, what):
    """Most devices send malformed updates, of one flaw (None: any); and an algorithm."""
    federation = small(compute=1e5)
    federation = replace(
        federation,
        fleet=fleet.place_attackers(federation.fleet, 0, kind="malformed", what=what, nodes=ATTACKERS),
    )
    local = replace(LOCAL, optim=SGD(0.1)) if name == "scaffold" else LOCAL
    return federation, algorithms.make(name, replace(local, steps=1), clients=5)


def outcome(name, plan, what, updates, seed=0):
    """All that is left after so many updates were refused: models, memories, records but for the reasons."""
    stop, often = StopAt(seconds=1e12), EvaluateAt(rounds=100)
    sim = simulate(*settings(name, what), seed=seed, stop=stop, often=often, plan=PLANS[plan])
    try:
        sim.start()
        while sim.accounts.lost.get("bad", 0) < updates:
            assert sim.step()
        assert not sim.accounts.took_part[ATTACKERS].any()
        assert sim.accounts.took_part[[3, 7]].all()
        return {
            "weights": weights(sim),
            "kept": {node: sim.memories.get(node, None) for node in range(len(SIZES))},
            "records": drop_reasons(sim.records),
            "time": sim.now,
            "round": sim.round,
        }
    finally:
        sim.close()


@functools.lru_cache(maxsize=TIMES)
def expect(name, plan, seed):
    with lost():
        return outcome(name, plan, None, AT_ONCE, seed)


@functools.lru_cache(maxsize=2)
def find_fault(run):
    """What is wrong with a run that refuses so many updates."""
    (name, plan, what), seed = KINDS[run // TIMES], run % TIMES
    wanted, found = expect(name, plan, seed), outcome(name, plan, what, AT_ONCE, seed)
    return "" if same(found, wanted) else f"{name}, {plan}, {what or 'any flaw'}, seed {seed}: different"


def attempt(number, folder):
    """One update of those that a run refuses."""
    fault = find_fault(number // AT_ONCE)
    assert not fault, fault
