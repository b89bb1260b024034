"""Fed-RAC among devices that say what isn't true, or that change: where they end."""

import dataclasses

import numpy as np
import pytest
import torch
from federations import LOCAL, SPEC, finished, simulate, small, values

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedrac import results
from potluck.algorithms.fedrac.claims import Device, check_claims, count_late, measure_rate, read_claims
from potluck.algorithms.fedrac.device.trial import Trial
from potluck.core.job import ModelSpec
from potluck.core.messages import Lost, Reply, Spent, Task
from potluck.core.rule import Got
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.experiment.study import overlay
from potluck.fleet import Intervals, Profiles, slow_by_swapping
from potluck.jobs import SGD, Train
from potluck.models.footprint import training_bytes

MIB = 2.0**20
# So slow that computing decides (0.05 s of latency): a round of 12 rows of the widest model takes 1.6 s.
RICH = {"compute": 1e4, "down": 20e6, "memory": 90e3}
MIDDLE = {"compute": 4e4, "down": 8e6, "memory": 45e3}
POOR = {"compute": 1.2e5, "down": 2e6, "memory": 25e3}
PHONES = [RICH] * 4 + [MIDDLE] * 3 + [POOR] * 3
WIDE = Train(ModelSpec("mlp"), optim=SGD(0.1), batch=4)  # 200 hidden units: 16,032 bytes


def crowd(claims=(), phones=PHONES):
    return small((12,) * len(phones), source="table", rows=phones, claims=claims)


def rule(**params):
    few = {"mode": "published", "rounds": 5, "clustering": {"smallest": 1, "k": 3}}
    return algorithms.make("fedrac", WIDE, **overlay(few, params))


def run(federation, **params):
    sim = finished(federation, rule(**params), stop=StopAt(rounds=60), often=EvaluateAt(rounds=100))
    sim.lines = sim.records
    return sim


HONEST = {n: 0 if n < 4 else 1 if n < 7 else 2 for n in range(10)}


def test_nobody_lies():
    sim = run(crowd())
    assert results.find_members(sim) == HONEST
    assert not values(sim, "false_report")
    assert results.count_late(sim) == 0


def test_a_lie_about_the_rate_is_found_before_the_first_round():
    """A phone of the poorest kind that says to have five times the speed and sixty times the rate."""
    lie = [{"nodes": [9], "up": 60.0, "down": 60.0, "compute": 0.1}]
    sim = run(crowd(lie))
    assert results.find_members(sim) == HONEST
    (found,) = values(sim, "false_report")
    assert found["up"] == pytest.approx([60e6, 1e6])
    assert found["down"] == pytest.approx([120e6, 2e6])
    assert found["compute"] == pytest.approx([1.2e4, 1.2e5])
    assert results.count_late(sim) == 0
    fooled = run(crowd(lie), verification={"enabled": False})
    assert results.find_members(fooled)[9] < 2
    assert results.count_late(fooled) == 5  # in every round of that tier
    assert not values(fooled, "false_report")


def test_a_lie_about_memory_shows_in_being_late():
    """A rich phone with 30,000 bytes that claims 90,000. The widest model takes over 48,096 (3 times 16,032)
    and swaps: at least 1 + 19 (1 - 30/48) = 8 times longer. Half the width takes half of that and fits."""
    phones = [{**RICH, "memory": 30e3}, *PHONES[1:]]
    sim = run(crowd([{"nodes": [0], "memory": 3.0}], phones))
    moves = [move for move in results.list_moves(sim) if move.before is not None]
    (move,) = moves
    assert (move.node, move.before, move.tier) == (0, 0, 1)
    assert move.why == "late in 3 rounds in a row: less memory than said"
    told = [r for r in sim.records if r["metric"] == "tier" and "from" in r["value"]]
    assert told[0]["round"] <= 5
    assert results.count_late(sim) == 3
    assert results.find_members(sim) == {**HONEST, 0: 1}
    assert results.count_rounds_astray(sim, 0, 1) == 3  # those that it was late in
    assert results.count_rounds_astray(sim, 1, 0) == 0
    assert results.count_rounds_astray(sim, 0, 0) is None  # it isn't there in the end
    assert results.count_in_time(sim) == 10
    fooled = run(crowd([{"nodes": [0], "memory": 3.0}], phones), verification={"enabled": False})
    assert results.find_members(fooled)[0] == 0
    assert results.count_late(fooled) == 5


def test_swapping():
    assert slow_by_swapping(100.0, 100.0) == slow_by_swapping(0.0, 1.0) == 1.0
    assert slow_by_swapping(100.0, 50.0) == 10.5  # half of it from flash, 20 times slower
    job = dataclasses.replace(LOCAL, needs=1000.0)
    assert job.shape() == LOCAL.shape()  # no reason to train apart


def test_every_algorithm_feels_what_memory_lacks():
    """Half of the bytes that training takes: 10.5 times the time, whoever asked for it."""
    needs = training_bytes(small().models[LOCAL.model], LOCAL.optim, LOCAL.batch)
    took = {}
    for memory in (2.0 * needs, needs / 2):
        federation = small(source="uniform", compute=4e5, memory=memory)
        took[memory] = finished(federation, FedAvg(4, LOCAL), rounds=1).accounts.seconds
    links = finished(small(source="uniform", compute=1e-9), FedAvg(4, LOCAL), rounds=1).accounts
    rest = links.seconds
    assert took[needs / 2] - rest == pytest.approx(10.5 * (took[2.0 * needs] - rest), rel=1e-6)


def test_in_the_last_tier_the_late_are_given_less_to_do():
    phones = [*PHONES[:9], {**POOR, "memory": 11e3}]
    local = dataclasses.replace(WIDE, epochs=2)
    lie = [{"nodes": [9], "memory": 25 / 11}]
    federation, few = (
        crowd(lie, phones),
        {"mode": "published", "rounds": 7, "clustering": {"smallest": 1, "k": 3}, "time": {"kappa": 0.9}},
    )
    sim = finished(federation, algorithms.make("fedrac", local, **few), stop=StopAt(rounds=60))
    told = [r["value"] for r in sim.records if r["metric"] == "tier" and r["group"] == 9]
    assert [t["epochs"] for t in told][:2] == [2, 1]
    assert {t["tier"] for t in told} == {2}
    assert told[1]["why"] == "late in 3 rounds in a row: less to do"


def test_who_changes_is_measured_again_and_moves():
    """In mid-run a rich phone becomes as slow as a poor one: the next trial shows it."""
    sim = simulate(
        crowd(),
        rule(rounds=6, verification={"remeasure": 2}),
        stop=StopAt(rounds=60),
        often=EvaluateAt(rounds=100),
    )
    sim.start()
    while sim.round < 1:
        sim.step()
    sim.devices.compute_ms[1] = 1.2e5
    while sim.step():
        pass
    sim.close()
    sim.lines = sim.records
    (move,) = [move for move in results.list_moves(sim) if move.before is not None]
    assert (move.node, move.before) == (1, 0)
    assert move.tier > 0
    assert move.why.startswith("compute 1.2e+05 instead of 1e+04")


# ------------------------------------------------------------------------------------------------ by hand


def reply(seconds, size=1000, job=None):
    body = {"ballast": torch.zeros(size, dtype=torch.uint8)}
    return Reply(Task(3, job or Trial(SPEC), body), body, 12.0, {}, Spent(*seconds))


def test_a_claim_within_tolerance_stays():
    said = Device(40.0, 1e5, 8e4, 0.1, MIB, 12)
    # 8,000 bits: up in 0.08 s at 1e5, down in 0.1 s at 8e4, after 0.1 s of latency
    after, off = check_claims(said, reply((0.2, 0.0, 0.18)), 0.2)
    assert off == {}
    assert after == said
    after, off = check_claims(said, reply((0.2, 0.0, 0.1 + 0.08 * 1.2)), 0.2)
    assert off == {}  # 8.3e4 is 17 per cent off
    after, off = check_claims(said, reply((0.2, 0.0, 0.1 + 0.08 * 2)), 0.2)
    assert off == {"up": (1e5, pytest.approx(5e4))}
    assert after == dataclasses.replace(said, up=pytest.approx(5e4))


def test_rates_and_resources():
    assert measure_rate(1000, 0.18, 0.1) == pytest.approx(1e5)
    assert measure_rate(1000, 0.08, 0.1) == pytest.approx(1e5)  # so much latency can't be true
    assert measure_rate(0, 0.1, 0.1) == float("inf")
    assert Device(40.0, 1e6, 3e6, 0.1, MIB, 1).rate == pytest.approx(1.5e6)  # there and back
    columns = [torch.tensor([1.0, 2.0]).double().numpy() for _ in range(5)]
    devices = read_claims([7, 5], Profiles(*columns), [3, 4])
    assert devices == {7: Device(1.0, 1.0, 1.0, 1.0, 1.0, 3), 5: Device(2.0, 2.0, 2.0, 2.0, 2.0, 4)}


def test_lateness_is_counted_in_a_row():
    late = Lost(Task(1, Trial(SPEC), {}), "late")
    gone = Lost(Task(2, Trial(SPEC), {}), "gone")
    once = count_late({2: 1, 3: 2}, Got([reply((0, 0, 0))], [late, gone]))
    assert once == {1: 1, 2: 1}  # 3 answered; who has gone isn't late
    assert count_late(once, Got([], [late])) == {1: 2, 2: 1}


# ------------------------------------------------------------------------------------- coming and forgetting


def test_who_comes_later_is_measured_and_placed():
    there, later = [(0.0, np.inf)], [(5.0, np.inf)]
    federation = small(
        (12,) * 10, source="table", rows=PHONES, availability=Intervals.of([there] * 9 + [later])
    )
    sim = run(federation, verification={"remeasure": 1})
    assert [(m.node, m.tier, m.before, m.why) for m in results.list_moves(sim)][-1] == (
        9,
        2,
        None,
        "newcomer",
    )
    assert results.find_members(sim) == HONEST
    assert results.count_in_time(sim) == 10


def test_who_has_forgotten_its_lesson_is_taught_again():
    """Before every task: taught in round 1, found out in round 2, taught again in round 3."""
    few = {"rounds": 3, "verification": {"enabled": False}}
    down = []
    for forget, teach in ((0.0, True), (1.0, True), (0.0, False)):
        federation = small((12,) * 10, source="table", rows=PHONES, forget=forget)
        down.append(values(run(federation, distillation={"enabled": teach}, **few), "bytes_down")[-1])
    lessons = 6 * 16_032  # six followers
    assert down[0] - down[2] == lessons
    assert down[1] - down[2] == 2 * lessons
