"""Devices answer any algorithm with what checks can refuse: what it serves is as if these had been lost."""

import functools
from dataclasses import replace

from every import EVERYONE, federation, make
from federations import LOOP, SIZES, STACKED, simulate
from interrupted import same
from refused import drop_reasons, lost

from potluck.core import codec
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.fleet import FLAWS, MISREPORTS, place_attackers

LIES = [*(("malformed", what) for what in FLAWS), *(("misreport", what) for what in MISREPORTS)]
TITLE = f"answers of {len(LIES)} kinds that can't be, to all algorithms, in both modes"
AT_ONCE = 16  # answers that one run refuses, at least
COUNT, QUICK = AT_ONCE * len(LIES) * len(EVERYONE), 8
LIARS = [node for node in range(len(SIZES)) if node % 3]  # the others are honest
EVENTS = 100_000  # a run of so many doesn't end


def begin(name, lie, start, plan, stop):
    kind, what = lie
    good = federation()
    crew = place_attackers(good.fleet, 0, kind=kind, what=what, nodes=LIARS, start=start)
    often = EvaluateAt(rounds=10)
    return simulate(replace(good, fleet=crew), make(name), stop=stop, often=often, plan=plan)


def finish(sim):
    """All that is left of a run that has ended, but for the reasons of refusals; and how many these were."""
    try:
        sim.start()
        events = 0
        while sim.step():
            events += 1
            assert events < EVENTS, "no end"
        refused = sim.accounts.lost["bad"]
        left = {
            "served": served(sim),
            "kept": {node: sim.memories.get(node, None) for node in range(len(SIZES))},
            "records": drop_reasons(sim.records),
            "took part": sim.accounts.took_part.tolist(),
            "refused": refused,
            "lost": sim.accounts.lost,
            "time": sim.now,
            "round": sim.round,
        }
        return left, refused
    finally:
        sim.close()


def served(sim):
    """What every device and the cloud would use, as bytes."""
    return codec.encode([
        {view: task.send for view, task in sim.serve(node).items()} for node in (*range(len(SIZES)), sim.root)
    ])  # fmt: skip


@functools.lru_cache(maxsize=8)
def expect(name, start, plan):
    """When enough answers were lost, and what is left of a run that stops then."""
    with lost():
        sim = begin(name, ("malformed", None), start, plan, StopAt(seconds=1e6))
        try:
            sim.start()
            while sim.accounts.lost.get("bad", 0) < AT_ONCE:
                assert sim.step()
            stop = StopAt(seconds=sim.now * (1 + 1e-9) + 1e-6)
        finally:
            sim.close()
        return stop, finish(begin(name, ("malformed", None), start, plan, stop))[0]


@functools.lru_cache(maxsize=2)
def find_fault(run):
    """What is wrong with a run of one algorithm and one kind of lies."""
    name, which = EVERYONE[run // len(LIES)], run % len(LIES)
    start, plan = (0.0, 2.0)[which % 2], (LOOP, STACKED)[which // 2 % 2]  # later: once they are known
    stop, wanted = expect(name, start, plan)
    found, refused = finish(begin(name, LIES[which], start, plan, stop))
    assert refused >= AT_ONCE
    wrong = [part for part in wanted if not same(found[part], wanted[part])]
    return f"{name}, {LIES[which]}: {', '.join(wrong)} differ" if wrong else ""


def attempt(number, folder):
    """One answer of those that a run refuses."""
    fault = find_fault(number // AT_ONCE)
    assert not fault, fault
