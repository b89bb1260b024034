"""FLAME by hand: utility, time and energy, users that are completed, and whose a device is."""

from collections import Counter
from dataclasses import replace
from math import e, inf, log, nan, sqrt

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, SIZES, STACKED, finished, simulate, small, weights
from support import SPEC, Desk, numbers

from potluck import algorithms
from potluck.algorithms.flame.selection import Flame, FlameState
from potluck.algorithms.oort.selection import Oort
from potluck.algorithms.oort.state import Observation, OortState
from potluck.core.errors import ConfigError
from potluck.core.messages import Lost, Reply, Spent, Task
from potluck.core.rule import Got
from potluck.engine.context import EventContext
from potluck.engine.schedule import StopAt
from potluck.jobs import Tally, Train

JOB = Train(SPEC, Tally())
TRIOS = {n: n // 3 for n in range(12)}  # four users of three devices each
NEVER = Oort(explore=0.0, explore_least=0.0)


def known(utility, seconds=1.0, drain=None):
    """State in which these devices were heard."""
    took = seconds if isinstance(seconds, dict) else dict.fromkeys(utility, seconds)
    heard = {n: Observation(float(u), Spent(compute=took[n]), 1) for n, u in utility.items()}
    return FlameState(OortState(0.0, 30.0, 1, heard), drain or {})


def crowd(**more):
    return Desk(**{"children": range(12), "users": TRIOS, **more})


def told(node, loss, rows=10.0, seconds=1.0):
    metrics = {"losses": 4.0 * loss, "squares": 1e9, "rows": 4.0}
    return Reply(Task(node, JOB, {}), {"delta": numbers()}, rows, metrics, Spent(0.0, seconds, 0.0))


# ----------------------------------------------------------------------------------------------- formulas


def test_time():
    seconds = np.array([0.0, 30.0, 40.0, 60.0, np.nan])
    assert Flame().weigh_time(seconds, 30).tolist() == [1, 1, 0.375, 0.25, 1]  # 0.5 x 30 / 40, 0.5 x 30 / 60
    np.testing.assert_allclose(Flame(alpha=0.8).weigh_time(seconds, 30), [1, 1, 0.6, 0.4, 1])
    assert Flame(alpha=1.0).weigh_time(seconds, 20).tolist() == [1, 20 / 30, 0.5, 20 / 60, 1]
    assert Flame().weigh_time(seconds, inf).tolist() == [1] * 5


def test_what_a_task_should_take():
    times = [4.0, 1.0, 3.0, 2.0]
    assert Flame().find_limit(times) == 3  # of four, the one that two are faster than
    assert [Flame(quantile=q).find_limit(times) for q in (0.25, 0.75, 1.0)] == [2, 4, inf]
    assert Flame(seconds=30.0).find_limit(times) == 30
    assert Flame().find_limit([]) == Flame().find_limit([nan]) == inf  # before anybody was heard


def test_energy():
    drain = np.array([100 / e, 100 / e**2, 50.0, 100.0, 250.0])
    np.testing.assert_allclose(Flame(budget=100.0).weigh_energy(drain), [1, 2, log(2), 0, 0], atol=1e-12)
    assert np.isfinite(Flame(budget=100.0).weigh_energy(np.zeros(1))).all()
    assert Flame().weigh_energy(drain).tolist() == [1] * 5  # without a budget it doesn't count


def test_utility_is_a_product():
    picks = known({0: 8, 1: 8, 2: 6}, {0: 60.0, 1: 10.0, 2: 10.0}, {0: 50.0, 1: 100.0, 2: 100 / e})
    assert Flame().utilities([0, 1, 2], picks, 30.0).tolist() == [2, 8, 6]
    np.testing.assert_allclose(Flame(budget=100.0).utilities([0, 1, 2], picks, 30.0), [2 * log(2), 0, 6])


# ------------------------------------------------------------------------------------------------- picking


def chosen(select, picks, count, desk=None):
    return select.pick(picks, count, crowd() if desk is None else desk)[0]


def test_the_best_devices_bring_others_of_their_users():
    utility = {n: n for n in range(12)} | {0: 20, 6: 15}  # of users 0 to 3: 20 1 2, 3 4 5, 15 7 8, 9 10 11
    select = Flame(rank=NEVER)
    assert chosen(select, known(utility), 3) == [0, 2, 1]
    assert chosen(select, known(utility), 6) == [0, 2, 1, 6, 8, 7]  # 11 is third; all of user 2 come first
    assert chosen(select, known(utility), 8) == [0, 2, 1, 6, 8, 7, 11, 10]  # no room for 9
    assert chosen(replace(select, devices=2), known(utility), 6) == [0, 2, 6, 8, 11, 10]
    assert chosen(replace(select, devices=1), known(utility), 3) == [0, 6, 11]
    # No user gives more than its number, even if the round isn't full.
    assert chosen(replace(select, devices=1), known(utility), 10) == [0, 6, 11, 5]


def test_slow_devices_come_later():
    picks = known({n: n for n in range(11)} | {11: 24}, dict.fromkeys(range(12), 10.0) | {11: 40.0})
    select = Flame(rank=NEVER, devices=1, seconds=30.0)
    assert chosen(select, picks, 1) == [10]  # 24 x 0.375 = 9
    assert chosen(replace(select, alpha=1.0), picks, 1) == [11]  # 24 x 0.75 = 18
    assert chosen(replace(select, seconds=40.0), picks, 1) == [11]


def test_on_a_fast_fleet_time_counts_as_well():
    # All are far below 30 s. The median is 0.1 s, so 24 x 0.5 x 0.1 / 0.4 = 3 is less than 10.
    picks = known({n: n for n in range(11)} | {11: 24}, dict.fromkeys(range(12), 0.1) | {11: 0.4})
    select = Flame(rank=NEVER, devices=1)
    assert chosen(select, picks, 1) == [10]
    assert chosen(replace(select, seconds=30.0), picks, 1) == [11]
    assert chosen(replace(select, quantile=1.0), picks, 1) == [11]


def test_new_devices_are_drawn_by_the_root_of_their_rows():
    # Weights are 1 and 3 of 4, as roots of 1 and 9 rows; before anybody was heard, all are alike.
    first, desk = Counter(), crowd(children=[0, 1, 2], users={}, sizes={1: 1, 2: 9})
    select = Flame(rank=Oort(explore_decay=1.0), devices=1)
    picks = known({0: 1.0})
    for _ in range(2000):
        drawn, _ = select.pick(replace(picks, known=replace(picks.known, explore=1.0)), 1, desk)
        first.update(drawn)
        desk = desk.later(busy=set())
    assert first[0] == 0
    assert abs(first[2] / 2000 - 0.75) < 0.04


def test_exhausted_devices_come_last():
    utility, drain = {n: n + 1 for n in range(12)}, dict.fromkeys(range(12), 10.0) | {11: 100.0, 10: 100.0}
    select = Flame(rank=NEVER, devices=2, budget=100.0)
    assert chosen(select, known(utility, drain=drain), 8) == [9, 10, 8, 7, 5, 4, 2, 1]  # 9 leads its user
    assert chosen(replace(select, budget=None), known(utility, drain=drain), 2) == [11, 10]


def test_who_is_busy_stays_out_and_who_is_chosen_is_taken():
    utility, desk = {n: n for n in range(12)}, crowd(busy={11, 9})
    select = Flame(rank=NEVER)
    assert chosen(select, known(utility), 4, desk) == [10, 8, 7, 6]
    assert desk.busy == {6, 7, 8, 9, 10, 11}
    assert chosen(select, known(utility), 4, desk) == [5, 4, 3, 2]
    assert chosen(select, known(utility), 4, crowd(busy=set(range(12)))) == []


def test_devices_never_heard_lead_their_share():
    picks, desk, new = known(dict.fromkeys(range(6), 1)), crowd(), 0
    select = Flame(rank=Oort(explore_decay=1.0, explore_least=0.0))
    for _ in range(300):
        nodes, after = select.pick(replace(picks, known=replace(picks.known, explore=0.25)), 3, desk)
        assert len({TRIOS[n] for n in nodes}) == 1
        assert after.known.asked == {n: (0.0, n < 6) for n in nodes}
        new, desk = new + (nodes[0] >= 6), desk.later(busy=set())
    assert 50 <= new <= 100  # 75
    every = Flame(rank=Oort(explore=1.0, explore_decay=1.0, explore_least=1.0))
    assert all(n >= 6 for n in chosen(every, picks, 6))
    assert len(chosen(every, picks, 12)) == 12  # filled up with known ones


def test_of_a_user_the_known_devices_come_first():
    assert chosen(Flame(rank=NEVER), known({1: 5, 3: 4}), 3)[0] == 1
    assert set(chosen(Flame(rank=NEVER), known({1: 5, 3: 4}), 3)) == {0, 1, 2}
    nodes = chosen(Flame(devices=2, rank=NEVER), known({0: 5, 2: 6}), 2)
    assert nodes == [2, 0]


def test_the_share_of_new_devices_falls_and_rounds_are_counted():
    select, desk = Flame(rank=Oort(explore_decay=0.5, explore_least=0.3)), crowd()
    picks = select.start()
    for share in (0.45, 0.3, 0.3):
        nodes, picks = select.pick(picks, 3, desk)
        picks = select.learn(picks, Got([told(n, 1.0) for n in nodes], []), desk)
        assert picks.known.explore == share
        assert not picks.known.asked
        desk = desk.later(busy=set())
    assert picks.known.round == 3


def test_a_large_crowd_is_looked_at_in_part():
    select, seen = Flame(rank=Oort(reach=50)), []
    desk = crowd(children=range(1_000_000), users={})
    desk.ready = lambda nodes: seen.append(len(nodes)) or list(nodes)
    desk.only, desk.sample = lambda nodes: desk, lambda count: []
    nodes, _ = select.pick(known({5: 3.0}), 10, desk)
    assert len(set(nodes)) == 10
    assert sum(seen) <= 51 + 10


# ------------------------------------------------------------------------------------------------ learning


def test_what_is_learnt():
    select, picks = Flame(), FlameState(OortState(0.9, 30.0, 4, asked={2: (10.0, False)}), {0: 3.0})
    lost = [Lost(Task(2, JOB, {}), "late"), Lost(Task(3, JOB, {}), "gone")]
    after = select.learn(picks, Got([told(0, 3.0, 16.0, 2.0), told(1, 1.0, 5.0, 4.0)], lost), Desk(now=17.0))
    assert after.drain == {0: 5.0, 1: 4.0, 2: 7.0}
    assert after.known.heard[0].utility == 12  # 3 sqrt 16, where Oort would have 16 times the root of squares
    assert after.known.heard[1].utility == sqrt(5)
    assert picks.drain == {0: 3.0}  # the state before is as it was


# ------------------------------------------------------------------------------------------- whose it is


def context(algorithm="fedavg", **federation):
    sim = simulate(small(**federation), algorithms.make(algorithm, LOCAL))
    return sim, lambda node: EventContext(sim, node, (0,))


def test_devices_of_a_user():
    sim, ctx = context(users=3)
    user, cloud = sim.federation.fleet.user, ctx(sim.root)
    for node in range(len(SIZES)):
        assert cloud.siblings(node) == [n for n in range(len(SIZES)) if user[n] == user[node]]
    assert cloud.only([0, 1, 9]).siblings(0) == [0, 1]
    assert all(type(n) is int for n in cloud.siblings(5))


def test_devices_of_a_user_below_an_edge():
    sim, ctx = context("hierfl", users=5, edges=2)
    for edge in sim.topology.members("edge"):
        mine = list(sim.topology.children(edge))
        assert {n for node in mine for n in ctx(edge).siblings(node)} == set(mine)
        assert ctx(edge).siblings(next(n for n in range(len(SIZES)) if n not in mine)) == []


def test_devices_of_nobody():
    federation = small(users=3)
    user = federation.fleet.user.copy()
    user[4] = -1
    sim = simulate(
        replace(federation, fleet=replace(federation.fleet, user=user)), algorithms.make("fedavg", LOCAL)
    )
    assert EventContext(sim, sim.root, (0,)).siblings(4) == [4]
    with pytest.raises(ConfigError, match=r"fleet\.users is missing"):
        finished(small(), algorithms.make("flame", LOCAL))


# --------------------------------------------------------------------------------------------------- whole


def test_rounds_have_whole_users():
    where = small(SIZES * 2, users=7, compute=4e5)
    rule = algorithms.make("flame", LOCAL, clients=6, devices=3)
    sim = finished(where, rule, stop=StopAt(rounds=6), plan=STACKED)
    heard, user = sim.points[sim.root].own.state.model.picks.known.heard, where.fleet.user
    sizes = np.bincount(user)
    rounds = {r: [n for n, h in heard.items() if h.last == r] for r in range(1, 7)}
    last = np.bincount(user[rounds[6]], minlength=7)
    assert last.sum() == 6
    assert (last == np.minimum(sizes, 3))[last > 0].sum() >= (last > 0).sum() - 1  # the last may be cut short
    assert set(sim.points[sim.root].own.state.model.picks.drain) == set(heard)


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "hierfl"])
def test_it_selects_for_any_algorithm(name):
    rule = algorithms.make(name, LOCAL, clients=3, select={"kind": "Flame", "alpha": 0.4, "budget": 1e4})
    where = small(users=5, edges=2, compute=4e5)
    loop, stacked = (finished(where, rule, stop=StopAt(rounds=4), plan=plan) for plan in (LOOP, STACKED))
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)


def test_algorithm_is_fedavg_with_this_selector():
    made = algorithms.make("flame", LOCAL, clients=8, alpha=0.4, explore=0.5, budget=60.0)
    assert made.select == Flame(0.4, None, 0.5, 4, 60.0, Oort(explore=0.5))
    assert made.clients == 8
    assert algorithms.make("flame", LOCAL).select == Flame()


@pytest.mark.parametrize(
    "wrong",
    [{"alpha": 0.0}, {"alpha": 1.5}, {"seconds": 0.0}, {"quantile": 0.0}, {"devices": 0}, {"budget": 0.0}],
)
def test_wrong_values_are_named(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"{name} = .*must be"):
        algorithms.make("flame", LOCAL, **wrong)
