"""Oort by hand: scores, clip, preferred time, pacer, draws, what is learnt, and the losses that it needs."""

from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf, log, sqrt
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, SIZES, STACKED, finished, small, weights
from support import SPEC, Desk, Line, answer, batches, close, fit, local, numbers, tasks

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.oort.selection import Oort, draw_by_weight, find_preferred
from potluck.algorithms.oort.state import Observation, OortState, count_rows, find_mean
from potluck.algorithms.qfedavg.device import Appraise
from potluck.core import codec
from potluck.core.errors import ConfigError, JobError
from potluck.core.messages import Lost, Reply, Spent, Task
from potluck.core.rule import Got
from potluck.engine.schedule import StopAt
from potluck.jobs import SGD, CrossEntropy, Objective, Prox, Tally, Train
from potluck.rules import Rounds

JOB = Train(SPEC, Tally(), optim=SGD(0.1), batch=4)


@dataclass
class Crowd(Desk):
    """A desk at which devices claim how many ms a sample takes them; links are equal."""

    ms: dict = field(default_factory=dict)

    def profiles(self, nodes):
        ones = np.ones(len(nodes))
        ms = np.array([self.ms.get(n, 1.0) for n in nodes])
        return SimpleNamespace(compute=ms, up=ones, down=ones, latency=0 * ones, memory=ones)


def heard(utility, seconds=1.0, last=1):
    return Observation(utility, Spent(compute=seconds), last)


def told(node, square, rows=10.0, seconds=1.0, job=JOB):
    """A reply of a device whose losses had this mean square."""
    metrics = {"squares": 4.0 * square, "rows": 4.0}
    return Reply(Task(node, job, {}), {"delta": numbers()}, rows, metrics, Spent(0.0, seconds, 0.0))


def near(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


# --------------------------------------------------------------------------------------------------- formulas


def test_scores():
    three = [heard(100.0, 5.0, 2), heard(50.0, 20.0, 4), heard(10.0, 40.0, 8)]
    # low = 9.99, range = 90.01, ln 8 = 2.0794415
    plain = np.array([1 + 0.3224470, 0.4445062 + 0.2280045, 0.000111099 + 0.1612235])
    near(Oort().scores(three, 8, inf), plain)
    near(Oort().scores(three, 8, 10.0), plain * [1, 0.25, 0.0625])
    near(Oort(penalty=1.0).scores(three, 8, 10.0), plain * [1, 0.5, 0.25])
    near(Oort(doubt=0.0).scores(three, 8, inf), plain - [0.3224470, 0.2280045, 0.1612235])


def test_outliers_are_clipped():
    ten = [heard(float(u), last=1) for u in (1, 2, 3, 4, 5, 6, 7, 8, 9, 100)]
    scores = Oort(clip=0.5).scores(ten, 1, inf)  # ln 1 = 0: no bonus
    near(scores[5:], np.full(5, (6 - 0.999) / (100 - 0.999)))
    assert (np.diff(scores[:6]) > 0).all()


def test_a_device_of_no_use_never_scores_below_zero_or_high():
    scores = Oort().scores([heard(0.0), heard(50.0), heard(51.0)], 3, inf)
    assert np.argmin(scores) == 0
    near(scores[0], sqrt(0.1 * log(3)))
    near(Oort().scores([heard(0.0)], 3, inf), [sqrt(0.1 * log(3))])


def test_preferred_time_is_a_percentile():
    seconds = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert [find_preferred(seconds, p) for p in (1, 30, 50, 99)] == [1, 2, 3, 5]
    assert find_preferred(seconds, 100) == inf
    assert find_preferred([], 30) == inf
    assert find_preferred([float("nan"), 7.0], 99) == 7


@pytest.mark.parametrize(
    ("gains", "round", "pace"),
    [
        ((5.0, 5.0, 5.5, 5.5), 4, 35),  # a change of 1 <= 10 % of 10
        ((5.0, 5.0, 5.6, 5.5), 4, 30),
        ((1.0, 1.0, 6.0, 6.0), 4, 25),  # a change of 10 >= 5 times 2
        ((1.0, 1.0, 5.9, 6.0), 4, 30),
        ((0.0, 0.0, 0.0, 0.0), 4, 35),
        ((5.0, 5.0, 5.0, 5.0), 5, 30),  # not its turn
        ((5.0, 5.0), 2, 30),  # too early
    ],
)
def test_pacer(gains, round, pace):
    assert Oort(pace_every=2).set_pace(OortState(0.9, 30.0, round, gains=gains)).pace == pace


def test_pacer_stays_within_bounds():
    flat, sharp = (5.0,) * 4, (1.0, 1.0, 9.0, 9.0)
    select = Oort(pace_every=2)
    assert select.set_pace(OortState(0.9, 98.0, 4, gains=flat)).pace == 100
    assert select.set_pace(OortState(0.9, 7.0, 4, gains=sharp)).pace == 5


def shares(draw, times=4000):
    counts = Counter(i for _ in range(times) for i in draw())
    return np.array([counts[i] / times for i in range(4)])


def test_known_devices_are_drawn_by_score_above_the_cut_off():
    rng, scores = np.random.default_rng(0), np.array([3.0, 6.0, 0.29, 1.0])
    one = shares(lambda: Oort(cutoff=0.05).draw_known(scores, 1, rng))  # 0.29 < 0.05 x 6
    np.testing.assert_allclose(one, [0.3, 0.6, 0, 0.1], atol=0.03)
    two = shares(lambda: Oort(cutoff=0.5).draw_known(scores, 2, rng))  # 1 < 0.5 x 3
    assert two.tolist() == [1, 1, 0, 0]
    assert Oort(cutoff=1.0).draw_known(scores, 1, rng) == [1]
    assert Oort().draw_known(scores, 0, rng) == []
    assert sorted(Oort().draw_known(np.zeros(4), 4, rng)) == [0, 1, 2, 3]


def test_new_devices_are_drawn_by_weight_in_a_window_of_the_fastest():
    rng, speed = np.random.default_rng(0), np.array([0.25, 1.0, 0.01, 0.5])
    assert Oort(window=1.0).draw_new(speed, 1, rng) == [1]
    two = shares(lambda: Oort(window=2.0).draw_new(speed, 1, rng))
    np.testing.assert_allclose(two, [0, 2 / 3, 0, 1 / 3], atol=0.03)
    equal = shares(lambda: Oort(window=1.0).draw_new(np.ones(4), 1, rng))
    np.testing.assert_allclose(equal, np.full(4, 0.25), atol=0.03)


def test_draws_have_no_repeats_and_are_those_of_their_seed():
    wide = np.array([5.0, 1.0, 0.0, 2.0])
    once, again = (draw_by_weight(wide, 3, np.random.default_rng(7)).tolist() for _ in range(2))
    assert once == again
    assert sorted(once) == [0, 1, 3]  # what weighs nothing comes last


# ------------------------------------------------------------------------------------------ picking, learning


def test_utility_of_a_reply():
    assert find_mean(told(0, 9.0), "squares") == 9
    assert count_rows(told(0, 9.0, rows=8.0)) == 8
    steps = replace(JOB, steps=2, batch=3)
    assert count_rows(told(0, 9.0, rows=8.0, job=steps)) == 6  # no more than it trained on
    learnt = Oort().learn(OortState(0.9, 30.0, 5), Got([told(3, 9.0, rows=8.0, seconds=2.5)], []), Desk())
    assert learnt.heard[3].utility == 24
    assert (learnt.heard[3].spent.total, learnt.heard[3].last) == (2.5, 5)


def test_replies_without_rows_or_losses():
    nothing = replace(told(0, 1.0), weight=0.0, metrics={})
    assert find_mean(nothing, "squares") == 0
    assert find_mean(told(0, inf), "squares") == 0
    with pytest.raises(JobError, match="device 4: its reply tells no losses"):
        find_mean(replace(told(4, 1.0), metrics={}), "squares")


def test_the_first_round_is_uniform_and_the_share_of_new_devices_falls_to_its_floor():
    select, desk = Oort(explore_decay=0.5, explore_least=0.3), Crowd(children=range(400), ms={1: 1e9})
    picks, new = select.start(), []
    for round in range(1, 7):
        nodes, picks = select.pick(picks, 20, desk)
        assert len(set(nodes)) == 20
        new.append(sum(n not in picks.heard for n in nodes))
        picks = select.learn(picks, Got([told(n, 1.0) for n in nodes], []), desk)
        assert picks.round == round
        assert not picks.asked
        desk = desk.later(busy=set())
    assert new == [20, 6, 6, 6, 6, 6]  # nobody is known at first; then 0.9 / 4 is below the floor
    assert len(picks.heard) == sum(new)


def test_a_share_of_less_than_one_device_is_kept_in_the_mean():
    select, desk = Oort(explore=0.3, explore_decay=1.0), Desk(children=range(20))
    picks = OortState(0.3, 30.0, 3, {n: heard(1.0) for n in range(10)})
    new = 0
    for _ in range(300):
        (node,), _ = select.pick(picks, 1, desk)
        new, desk = new + (node >= 10), desk.later(busy=set())
    assert 70 <= new <= 110


def test_known_devices_fill_up_and_nobody_means_nobody():
    select = Oort()
    picks = OortState(0.9, 30.0, 3, {n: heard(1.0) for n in range(8)})
    nodes, _ = select.pick(picks, 6, Desk(children=range(9)))
    assert len(nodes) == 6
    assert 8 in nodes
    assert select.pick(picks, 6, Desk(children=[], busy=set())) == ([], picks)
    nodes, after = select.pick(picks, 6, Desk(children=range(9), busy=set(range(1, 9))))
    assert nodes == [0]
    assert after.asked == {0: (0.0, True)}


def test_who_is_picked_is_taken():
    desk = Desk(children=range(6))
    first, picks = Oort().pick(Oort().start(), 4, desk)
    second, _ = Oort().pick(picks, 4, desk)
    assert sorted(first + second) == list(range(6))


def test_speed_of_new_devices_comes_from_claims_as_they_proved_true():
    desk = Crowd(children=range(6), ms={0: 2.0, 1: 4.0, 2: 3.0, 3: 1.0, 4: 100.0})
    replies = [told(0, 1.0, seconds=8.0), told(1, 1.0, seconds=16.0)]
    known = Oort().learn(OortState(0.9, 30.0, 1), Got(replies, []), desk)
    near(known.expect([2, 3], desk).sum(1), [12, 4])  # 24 seconds for 6 claimed: 4 each
    select = Oort(window=1.0, explore=1.0, explore_decay=1.0, pace=40.0)
    seen = Counter()
    for _ in range(60):
        nodes, _ = select.pick(replace(known, explore=1.0), 1, desk)
        seen.update(nodes)
        desk = desk.later(busy=set())
    assert seen[4] == 0
    assert min(seen[3], seen[5]) >= 10  # both within the preferred time: alike


def drawn_first(select, picks, desk, times=2000):
    seen = Counter()
    for _ in range(times):
        desk = desk.later(busy=set())
        nodes, _ = select.pick(picks, 1, desk)
        seen.update(nodes)
    return [seen[n] / times for n in (1, 2, 3)]


def test_new_devices_are_drawn_by_rows_and_speed():
    # Device 0 took 1 s for 1 ms a sample, so the others will take 1, 1 and 2. Preferred is place int(0.5 x 4)
    # of 1 1 1 2: 1 s. Rewards are 10, 30 and 80 x (1 / 2)^2 = 20 rows.
    desk = Crowd(children=range(4), ms={3: 2.0}, sizes={1: 10, 2: 30, 3: 80})
    new = Oort(explore=1.0, explore_decay=1.0, pace=50.0)
    picks = new.learn(OortState(1.0, 50.0, 1), Got([told(0, 1.0)], []), desk)
    np.testing.assert_allclose(drawn_first(new, picks, desk), [1 / 6, 1 / 2, 1 / 3], atol=0.04)
    assert drawn_first(replace(new, window=1.0), picks, desk, 20) == [0, 1, 0]  # the one that counts most
    # Without a penalty rows alone count: 10, 30 and 80 of 120.
    plain = replace(new, penalty=0.0)
    np.testing.assert_allclose(drawn_first(plain, picks, desk), [1 / 12, 1 / 4, 2 / 3], atol=0.04)


def test_rows_have_no_say_in_the_first_round():
    desk = Crowd(children=[1, 2, 3], sizes={1: 1, 2: 1, 3: 1000})
    np.testing.assert_allclose(drawn_first(Oort(), Oort().start(), desk), np.full(3, 1 / 3), atol=0.04)


def test_devices_without_rows_come_last():
    desk = Crowd(children=range(4), sizes={1: 0, 2: 5, 3: 0})
    new = Oort(explore=1.0, explore_decay=1.0)
    picks = new.learn(OortState(1.0, 50.0, 1), Got([told(0, 1.0)], []), desk)
    assert drawn_first(new, picks, desk, 20) == [0, 1, 0]
    nodes, _ = new.pick(picks, 3, desk.later(busy=set()))
    assert sorted(nodes) == [1, 2, 3]


def test_slow_devices_are_left_out_until_the_pacer_lets_them_in():
    known = {n: heard(10.0 + n / 100, seconds=50.0 if n < 5 else 1.0) for n in range(10)}

    def slow(pace):
        select, desk, seen = Oort(explore_least=0.0, cutoff=0.5), Desk(), 0
        for _ in range(50):
            nodes, _ = select.pick(OortState(0.0, pace, 1, known), 3, desk)
            seen, desk = seen + sum(n < 5 for n in nodes), desk.later(busy=set())
        return seen

    assert slow(30.0) == 0
    assert slow(100.0) >= 20


def test_what_is_lost():
    select = Oort()
    picks = OortState(0.9, 30.0, 4, {1: heard(9.0, 2.0), 2: heard(8.0, 6.0)})
    picks = replace(picks, asked=dict.fromkeys(range(5), (10.0, True)))
    lost = [Lost(Task(n, JOB, {}), w) for n, w in ((1, "late"), (2, "bad"), (3, "late"), (4, "gone"))]
    after = select.learn(picks, Got([told(0, 4.0, rows=3.0)], lost), Desk(now=15.0))
    assert after.heard[1] == Observation(6.0, after.heard[1].spent, 4)  # as useful as the one that came
    assert after.heard[1].spent.total == 5  # it has taken so long already
    assert (after.heard[2].utility, after.heard[2].spent.total) == (0, 6)
    assert (after.heard[3].utility, after.heard[3].spent.total) == (6, 5)
    assert 4 not in after.heard
    assert after.asked == {}
    assert picks.heard.keys() == {1, 2}  # the state before is as it was
    assert after.gains == (6.0,)


def test_cohorts_share_what_was_known_and_go_their_own_ways():
    select, desk = Oort(), Desk(children=range(20))
    nodes, picks = select.pick(select.start(), 10, desk)
    picks = select.learn(picks, Got([told(n, 1.0 + n) for n in nodes], []), desk)
    stored = codec.encode(picks)
    sides = [select.pick(picks, 6, desk.later(busy=set()).only(range(k, 20, 2))) for k in (0, 1)]
    for k, (chosen, after) in enumerate(sides):
        assert len(chosen) == 6
        assert all(n % 2 == k for n in chosen)
        assert after.asked.keys() == set(chosen)
    moved, _ = select.pick(sides[0][1], 4, desk.later(busy=set()).only([1, 3, 5, 7, 9]))
    assert len(moved) == 4
    assert codec.encode(picks) == stored


def test_a_large_crowd_is_looked_at_in_part():
    select, desk = Oort(reach=50), Desk(children=range(1_000_000))
    asked = []
    desk.ready = lambda nodes: asked.append(len(nodes)) or list(nodes)
    desk.only = lambda nodes: desk
    desk.sample = lambda count: []
    nodes, _ = select.pick(select.start(), 10, desk)
    assert len(nodes) == 10
    assert sum(asked) <= 50


# ------------------------------------------------------------------------------------------------- the losses


class Split(Objective):
    """Uses features and head rather than the whole net, and another model besides."""

    def loss(self, net, params, batch, held):
        net(numbers(50.0), batch.x)
        logits = net.head(params, net.features(params, batch.x, batch.key))
        return logits.square().mean(), {}


class Blind(Objective):
    """Has no use for logits at all."""

    def loss(self, net, params, batch, held):
        return sum((p**2).sum() for p in params.values()), {}


@pytest.mark.parametrize("inner", [CrossEntropy(), Prox(3.0), Split(), Blind()])
def test_losses_are_told_whatever_is_minimised(inner):
    at = local([1.0, -2.0, 0.5], [1, 0, 0], {"params": numbers(2.0, 1.0)})
    job, plain = (Train(SPEC, o, optim=SGD(0.1), batch=2, epochs=2) for o in (Tally(inner), inner))
    params, held = job.begin(Line(), at.inbox, None, None)
    shown = next(batches(job, at))
    loss, means = job.loss(Line(), params, shown, held)
    assert torch.equal(loss, plain.loss(Line(), params, shown, held)[0])
    margins = [
        2 * x + 1 if y == 0 else -(2 * x + 1)
        for x, y in zip(shown.x[:, 0].tolist(), shown.y.tolist(), strict=True)
    ]
    near(means["squares"], sum(log(1 + np.exp(m)) ** 2 for m in margins))
    near(means["losses"], sum(log(1 + np.exp(m)) for m in margins))
    assert means["rows"] == 2
    assert close(fit(job, at)[0], fit(plain, at)[0], 0.0)
    assert job.cost(at).ops == plain.cost(at).ops


def test_padding_tells_nothing_and_small_batches_count_by_rows():
    at = local([0.0, 0.0, 0.0], [0, 1, 0], {"params": numbers()})
    job = Train(SPEC, Tally(), batch=2)
    params, held = job.begin(Line(), at.inbox, None, None)
    sums = [job.loss(Line(), params, b, held)[1] for b in batches(job, at)]
    assert [float(s["rows"]) for s in sums] == [2, 1]
    near(sum(float(s["squares"]) for s in sums), 3 * log(2) ** 2)


def test_the_inner_objective_still_looks_keeps_and_sends():
    tally = Tally(Appraise())
    assert tally.looks
    assert not Tally().looks
    at = local([1.0], [1], {"params": numbers()})
    assert Train(SPEC, tally).cost(at).ops == Train(SPEC, Appraise()).cost(at).ops
    assert hash(Train(SPEC, Tally(Prox(0.2))).shape()) == hash(Train(SPEC, Tally(Prox(0.2))).shape())


# ------------------------------------------------------------------------------------------------------ whole


def test_a_round_of_fedavg_by_hand():
    rule = Rounds(FedAvg(2, Train(SPEC), Oort(explore=0.5, explore_decay=1.0)))
    desk = Desk(children=range(2))
    run, commands = rule.init(desk)
    asked = tasks(commands)
    assert {t.to for t in asked} == {0, 1}
    assert all(t.job.objective == Tally(CrossEntropy()) for t in asked)
    metrics = {"squares": 8.0, "rows": 2.0}
    for t in asked:
        run, _ = rule.receive(
            run, replace(answer(t, 1.0, weight=5.0), metrics=metrics), desk.later(busy=set())
        )
    assert {n: h.utility for n, h in run.model.picks.heard.items()} == {0: 10, 1: 10}


MANY = ("fedavg", "fedprox", "fedyogi", "ftfa", "qfedavg", "scaffold", "fedasync", "fedbuff")


@pytest.mark.parametrize("name", MANY)
def test_it_selects_for_any_algorithm(name):
    """From a file, in an algorithm with an objective, a server or a loop of its own."""
    plain = replace(LOCAL, optim=SGD(0.1))
    rule = algorithms.make(
        name, plain, clients=3, select={"kind": "Oort", "explore_least": 0.1, "cutoff": 0.5}
    )
    stop = StopAt(rounds=5)
    loop, stacked = (finished(small(compute=4e5), rule, stop=stop, plan=p) for p in (LOOP, STACKED))
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    model = loop.points[loop.root].own.state.model
    picks = getattr(model, "inner", model).picks
    assert len(picks.heard) >= 3
    assert all(h.utility > 0 and h.spent.total > 0 for h in picks.heard.values())


@pytest.mark.parametrize("name", ["oort", "pyramidfl"])
def test_it_selects_inside_cohorts_that_split(name):
    inner = algorithms.make(name, replace(LOCAL, optim=SGD(0.1)))
    rule = algorithms.find("auxo")(inner=inner, clients=6, cohorts=2, force=(6,), waiting=1.5)
    where, stop = small(SIZES * 2, compute=4e5), StopAt(rounds=14)
    loop, stacked = (finished(where, rule, stop=stop, plan=p) for p in (LOOP, STACKED))
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    parts = loop.points[loop.root].own.state.model.cohorts
    assert len(parts) == 2
    for part in parts.values():  # each has gone on with what was known
        picks = getattr(part.inner.picks, "known", part.inner.picks)
        assert picks.round > 6
        assert len(picks.heard) > 6


def test_algorithm_is_fedavg_with_this_selector():
    made = algorithms.make("oort", LOCAL, clients=7, cutoff=0.5, server={"kind": "Adaptive", "lr": 0.02})
    assert made.select == Oort(cutoff=0.5)
    assert (made.clients, made.server.rule, made.server.lr) == (7, "yogi", 0.02)
    assert made.resize(3, 0.5).select == made.select
    plain = algorithms.make("oort", LOCAL)
    assert plain.select == Oort()
    assert plain.overcommit == 1.3  # 13 are invited, and 10 waited for


@pytest.mark.parametrize(
    "wrong",
    [
        {"explore": 1.2},
        {"explore_decay": 0.0},
        {"explore_least": -0.1},
        {"window": 0.5},
        {"cutoff": 2.0},
        {"clip": -1.0},
        {"doubt": -1.0},
        {"penalty": -2.0},
        {"pace": 0.0},
        {"pace_every": 0},
        {"pace_step": -5.0},
    ],
)
def test_wrong_values_are_named(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"{name} = .*must be"):
        algorithms.make("oort", LOCAL, **wrong)
    with pytest.raises(ConfigError, match=rf"{name} = .*must be"):
        algorithms.make("fedavg", LOCAL, select={"kind": "Oort", **wrong})
