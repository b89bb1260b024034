"""FedGS: whose batches add up, batches that are told before they are trained, and the steps of groups."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import sqrt

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, SIZES, STACKED, finished, small, weights
from support import SPEC, Desk, Line, answer, close, local, numbers, tasks

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedgs.algorithm import Cloud, Group, GroupState, fedgs
from potluck.algorithms.fedgs.device import NextCounts, OneBatch, next_rows
from potluck.algorithms.fedgs.selection import distance, find_nearest_sum
from potluck.core.errors import ConfigError
from potluck.core.messages import Answer, Lost, Reply, Spent, Task
from potluck.core.trees import nbytes
from potluck.engine.schedule import StopAt
from potluck.jobs import SGD, LabelCounts, Private, Train
from potluck.rules import Rounds, as_algorithm

ME, CLOUD = 100, 99


class TwoClasses(Line):
    classes = 2


NETS = {SPEC: TwoClasses()}
JOB = Train(SPEC, sampler=OneBatch(), optim=SGD(0.1), batch=4, steps=1)


# ----------------------------------------------------------------------------------------------- the solver


def table(*columns):
    return np.array(columns, float).T


def test_one_exchange():
    four, target = table((2, 1), (2, 2), (3, 3), (1, 1)), np.array([3.0, 2.0])
    # A A' = [[18, 16], [16, 15]], of determinant 14. So pinv(A) y = (14, 2, 3, 1) / 14: begin with 0 and 2.
    # They come to (5, 4), off by (2, 2). Slopes are 6, 8, 12 and 4: 2 goes, 3 comes: (3, 2), exactly.
    assert distance(four, target, np.array([0, 2])) == sqrt(8)
    assert find_nearest_sum(four, target, 2).tolist() == [0, 3]


def test_two_exchanges_and_of_equals_the_first():
    four, target = table((0, 2), (1, 1), (2, 2), (0, 1)), np.array([1.0, 2.0])
    # pinv(A) y = (.4, .2, .4, .2): begin with 0 and 2, off by (1, 2). Slopes 4, 3, 6, 2: 3 for 2, off by
    # (-1, 1), which is nearer. Slopes 2, 0, 0, 1: 1 for 0 (2 would be as good), and nothing is left to mend.
    assert find_nearest_sum(four, target, 2).tolist() == [1, 3]


def test_it_stays_where_the_steepest_exchange_does_not_help():
    four, target = table((4, 0), (0, 4), (2, 2), (3, 1)), np.array([4.0, 4.0])
    # pinv(A) y = (14, 22, 18, 16) / 35: begin with 1 and 2, off by (-2, 2). Slopes -8, 8, 0, -4: with 0 for 1
    # it would be off by (2, -2), as far. That 0 and 1 would fit exactly isn't seen.
    assert find_nearest_sum(four, target, 2).tolist() == [1, 2]


def test_all_one_or_none():
    three = table((1, 0), (0, 1), (5, 5))
    assert find_nearest_sum(three, np.ones(2), 3).tolist() == [0, 1, 2]
    assert find_nearest_sum(three, np.ones(2), 9).tolist() == [0, 1, 2]
    assert find_nearest_sum(three, np.ones(2), 0).tolist() == []
    assert find_nearest_sum(three, np.array([4.0, 5.0]), 1).tolist() == [2]
    assert find_nearest_sum(np.zeros((2, 3)), np.ones(2), 2).tolist() == [0, 1]


def test_against_all_choices():
    found, best, blind = [], [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mixed = [rng.multinomial(32, rng.dirichlet(np.full(6, 0.3))) for _ in range(8)]
        eight, target = table(*mixed), np.full(6, 4 * 32 / 6)
        chosen = find_nearest_sum(eight, target, 4)
        assert len(set(chosen.tolist())) == 4
        every = [distance(eight, target, np.array(c)) for c in combinations(range(8), 4)]
        found.append(distance(eight, target, chosen))
        best.append(min(every))
        blind.append(np.mean(every))
    found, best, blind = np.array(found), np.array(best), np.array(blind)
    assert (found >= best - 1e-9).all()
    assert (found <= best + 1e-9).mean() > 0.25  # often the best there is
    assert found.mean() < best.mean() + 0.25 * (blind.mean() - best.mean())  # else near it
    assert (found < blind).all()


# ------------------------------------------------------------------------------------------------ the batch


def at(rows=10, key=7, place=0, node=3):
    found = local(np.arange(rows), [i % 2 for i in range(rows)], {"next": torch.tensor([key, place])})
    found.inbox["params"], found.node, found.models = numbers(), node, NETS
    return found


def test_what_is_told_is_what_is_trained():
    for place in range(7):
        here = at(place=place)
        rows = JOB.draw(here)
        used = rows.index[rows.weight > 0]
        told = NextCounts(2, 4).run(here)
        assert told.body["counts"].tolist() == np.bincount(here.y[used], minlength=2).tolist()
        assert told.weight == rows.count == len(used) == (2 if place % 3 == 2 else 4)
        assert rows.index.shape == (1, 4)
        assert JOB.cost(here).ops == 3 * len(used) * TwoClasses.ops
        assert nbytes(NextCounts(2, 4).cost(here).sends) == 16
        assert JOB.cost(here).weight == NextCounts(2, 4).cost(here).weight == 4.0
    assert JOB.cost(at(rows=3)).weight == 3.0


def test_every_row_has_its_turn_before_any_comes_again():
    turns = [np.concatenate([next_rows(at(place=3 * t + i), 4) for i in range(3)]).tolist() for t in range(3)]
    assert [sorted(turn) for turn in turns] == [list(range(10))] * 3
    assert turns[0] != turns[1] != turns[2]
    assert next_rows(at(), 10).tolist() != next_rows(at(node=4), 10).tolist()
    assert next_rows(at(), 10).tolist() != next_rows(at(key=8), 10).tolist()


def test_no_rows_no_batch():
    here = at(rows=0, place=5)
    rows = JOB.draw(here)
    assert (len(rows.index), rows.count, JOB.cost(here).ops) == (0, 0, 0)
    told = NextCounts(2, 4).run(here)
    assert (told.body["counts"].tolist(), told.weight) == ([0, 0], 0)


# ------------------------------------------------------------------------------------------------ the group


def said(task, *counts):
    return Reply(task, {"counts": torch.tensor(counts)}, float(sum(counts)), {}, Spent())


class Bench:
    """A group at work: what it says to what it hears."""

    def __init__(self, clients=2, syncs=2, devices=4):
        self.loop = Rounds(Group(JOB, clients, syncs))
        self.desk = Desk(NETS, range(devices), me=ME, here=ME, parent=CLOUD)
        self.run, _ = self.loop.init(self.desk)

    def hear(self, *events):
        out = []
        for event in events:
            self.desk = self.desk.later()
            self.run, commands = self.loop.receive(self.run, event, self.desk)
            out += commands
        return out


def begun(share=(0.5, 0.5), **more):
    """A group that has been sent a model; and what it asks for."""
    bench = Bench(**more)
    send = {"params": numbers(1.0), "share": torch.tensor(share, dtype=torch.float64)}
    return bench, tasks(bench.hear(Task(ME, Train(SPEC), send, id=(None, 2, 0))))


def test_labels_are_counted_when_they_are_asked_for():
    bench = Bench()
    asked = tasks(bench.hear(Task(ME, LabelCounts(2), {}, id=(None, 1, 0))))
    assert [(t.to, t.job) for t in asked] == [(n, LabelCounts(2)) for n in range(4)]
    first, second, third, last = asked
    out = bench.hear(said(first, 5, 1), said(second, 0, 2), Lost(third, "gone"), said(last, 0, 0))
    (told,) = (c for c in out if isinstance(c, Answer))
    assert told.body["counts"].tolist() == [5, 3]
    assert not tasks(out)


def test_a_round_of_two_steps():
    bench, asked = begun()
    assert [(t.to, t.job) for t in asked] == [(n, NextCounts(2, 4)) for n in range(4)]
    assert [t.send["next"][1] for t in asked] == [0] * 4
    told = dict(zip(range(4), [(4, 0), (4, 0), (1, 3), (0, 4)], strict=True))
    trained = tasks(bench.hear(*(said(t, *told[t.to]) for t in asked)))
    # 16 rows in 4 batches, two of them wanted: the target is (4, 4). A A' = [[33, 3], [3, 25]], so pinv(A) y
    # goes as 88, 88, 22 + 90, 120: begin with 3 and 2, off by (-3, 3). Slopes are -12, -12, 6, 12: with 0 for
    # 3 it is off by (1, -1), which is nearer. Slopes 4, 4, -2, -4: 3 for 0 would lead back.
    assert [t.to for t in trained] == [0, 2]
    assert all(t.job == JOB and close(t.send["params"], numbers(1.0)) for t in trained)
    places = {t.to: t.send["next"].tolist() for t in asked}
    assert all(t.send["next"].tolist() == places[t.to] for t in trained)  # the batch that was told
    out = bench.hear(answer(trained[0], 4.0, weight=3.0), answer(trained[1], 0.0, weight=1.0))
    again = tasks(out)
    assert close(bench.run.model.params, numbers(4.0))  # 1 + (3 x 4 + 1 x 0) / 4
    assert not [c for c in out if isinstance(c, Answer)]
    # Only who has trained has a new batch to tell of.
    assert [(t.to, t.send["next"][1]) for t in again] == [(0, 1), (2, 1)]
    second = tasks(bench.hear(said(again[0], 4, 0), said(again[1], 4, 0)))
    # Three times (4, 0), and (0, 4): pinv(A) y = (1, 1, 1, 3) / 3, so 3 and 0, which fit.
    assert [t.to for t in second] == [0, 3]
    assert [t.send["next"][1] for t in second] == [1, 0]
    (report,) = (c for c in bench.hear(*(answer(t, 1.0) for t in second)) if isinstance(c, Answer))
    assert close(report.body["delta"], numbers(4.0))  # from 1 to 5
    assert report.weight == 4  # updates behind it


def test_what_is_lost_stays_next_and_what_is_bad_does_not():
    bench, asked = begun(devices=2)
    first, second = tasks(bench.hear(said(asked[0], 4, 0), said(asked[1], 0, 4)))
    again = tasks(bench.hear(Lost(first, "gone"), Lost(second, "bad")))
    assert [(t.to, t.send["next"][1], type(t.job)) for t in again] == [(1, 1, NextCounts)]
    assert close(bench.run.model.params, numbers(1.0))
    both = tasks(bench.hear(said(again[0], 2, 2)))
    assert [(t.to, t.send["next"][1]) for t in both] == [(0, 0), (1, 1)]


def test_a_group_without_rows_answers_all_the_same():
    bench, asked = begun(devices=2)
    out = bench.hear(*(said(t, 0, 0) for t in asked))
    asked = tasks(out)
    assert [t.to for t in asked] == [0, 1]  # perhaps they have some by now
    (report,) = (c for c in bench.hear(said(asked[0], 0, 0), Lost(asked[1], "gone")) if isinstance(c, Answer))
    assert close(report.body["delta"], numbers())
    assert report.weight == 0


def test_who_comes_late_is_heard_before_the_next_step():
    bench = Bench(devices=3)
    bench.desk.busy.add(2)
    send = {"params": numbers(), "share": torch.tensor([0.5, 0.5])}
    asked = tasks(bench.hear(Task(ME, Train(SPEC), send, id=(None, 2, 0))))
    assert [t.to for t in asked] == [0, 1]
    trained = tasks(bench.hear(*(said(t, 2, 2) for t in asked)))
    assert [t.to for t in trained] == [0, 1]
    bench.desk.busy.clear()
    asked = tasks(bench.hear(*(answer(t) for t in trained)))
    assert [(t.to, type(t.job)) for t in asked] == [(n, NextCounts) for n in (0, 1, 2)]


# ------------------------------------------------------------------------------------------------ the cloud


def test_the_cloud_learns_the_labels_first():
    rule, desk = Rounds(Cloud(FedAvg(1000, Train(SPEC)))), Desk(NETS, [0, 101, 102])  # 0: without a group
    run, commands = rule.init(desk)
    asked = tasks(commands)
    assert sorted(t.to for t in asked) == [101, 102]
    assert all(t.send == {} for t in asked)
    for t in asked:  # nobody was heard
        run, commands = rule.receive(run, said(t, 0, 0), desk.later(busy=set()))
    asked = tasks(commands)
    for t in asked:
        run, commands = rule.receive(run, said(t, *{101: (6, 0), 102: (3, 3)}[t.to]), desk.later(busy=set()))
    work = tasks(commands)
    assert sorted(t.to for t in work) == [101, 102]
    assert all(t.send["share"].tolist() == [0.75, 0.25] for t in work)
    assert run.model.round == 0
    for t in work:
        updates = {101: 3.0, 102: 1.0}[t.to]
        run, _ = rule.receive(run, answer(t, updates, weight=updates), desk.later(busy=set()))
    assert run.model.round == 1
    assert close(run.model.inner.params, numbers(2.5))  # (3 x 3 + 1 x 1) / 4


# -------------------------------------------------------------------------------------------------- whole


class Spy:
    """An algorithm whose tasks are listed."""

    def __init__(self, inner, listed):
        self.inner, self.listed, self.tiers = inner, listed, getattr(inner, "tiers", ())

    def at(self, tier):
        return Spy(as_algorithm(self.inner.at(tier)), self.listed)

    def init(self, ctx):
        return self.inner.init(ctx)

    def receive(self, s, e, ctx):
        s, commands = self.inner.receive(s, e, ctx)
        self.listed += [c for c in tasks(commands) if c.to < len(SIZES)]
        return s, commands

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.mark.parametrize("group", ["edge", "user"])
def test_batches_are_told_then_trained_and_all_is_paid_for(group):
    listed = []
    rule = Spy(fedgs(LOCAL, 2, 3, group), listed)
    sim = finished(small(users=3, edges=2, compute=4e5), rule, stop=StopAt(rounds=4), plan=STACKED)
    assert sim.round == 4
    told, times = set(), Counter()
    for t in listed:
        kind = type(t.job).__name__
        times[kind] += 1
        if kind == "NextCounts":
            told.add((t.to, *t.send["next"].tolist()))
        elif kind == "Train":
            assert (t.to, *t.send["next"].tolist()) in told
            told.remove((t.to, *t.send["next"].tolist()))  # none is trained twice
    groups = {"edge": 2, "user": 3}[group]
    assert times["LabelCounts"] == len(SIZES)
    assert times["Train"] == 4 * 3 * 2 * groups  # rounds, steps, devices
    up = (times["LabelCounts"] + times["NextCounts"]) * 4 * 8 + times["Train"] * nbytes(
        listed[-1].send["params"]
    )
    assert sim.accounts.up["device"] == up


def test_executors_agree_and_it_learns():
    where = small(edges=2, compute=4e5)
    rule = algorithms.make("fedgs", replace(LOCAL, optim=SGD(0.3)), clients=4, syncs=10)
    loop, stacked = (finished(where, rule, stop=StopAt(rounds=6), plan=plan) for plan in (LOOP, STACKED))
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    first, last = ([r["value"] for r in loop.records if r["metric"] == "global_accuracy"][i] for i in (0, -1))
    assert last > first + 0.1


def test_some_are_drawn_by_chance_and_the_others_make_up_for_them():
    # Labels of the next batches; the federation has both alike, so two devices aim at (4, 4).
    labels = {0: (4, 0), 1: (0, 4), 2: (4, 0), 3: (4, 0)}
    state = GroupState(numbers(), 0, torch.tensor([0.5, 0.5]), next_labels=labels)
    seen, rng = Counter(), np.random.default_rng(0)
    for _ in range(800):
        seen.update([tuple(Group(JOB, 2, 1, chance=1).choose(state, [0, 1, 2, 3], rng))])
    # Device 1 balances whoever is drawn; if it is drawn itself, 0 is the first that balances it.
    assert seen.keys() == {(0, 1), (1, 2), (1, 3)}
    assert abs(seen[0, 1] / 800 - 1 / 2) < 0.06
    assert abs(seen[1, 2] / 800 - 1 / 4) < 0.06
    assert all(Group(JOB, 2, 1).choose(state, [0, 1, 2, 3], rng) == [0, 1] for _ in range(9))
    assert Group(JOB, 4, 1, chance=2).choose(state, [3], rng) == [3]
    assert Group(JOB, 3, 1, chance=3).choose(state, [0, 2, 3], rng) == [0, 2, 3]


def test_parameters():
    assert algorithms.make("fedgs", LOCAL).at("edge").chance == 2  # of 10, as the authors have it
    made = algorithms.make("fedgs", LOCAL, clients=3, group="user")
    assert (made.tiers, made.at("user").clients, made.at("user").syncs) == (("user",), 3, 50)
    assert made.at("user").local.batch == LOCAL.batch
    for wrong in ({"clients": 0}, {"syncs": 0}, {"group": "factory"}, {"chance": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            algorithms.make("fedgs", LOCAL, **wrong)
    with pytest.raises(ConfigError, match=r"train\.privacy = .*labels"):
        algorithms.make("fedgs", replace(LOCAL, privacy=Private(1.0, 1.0)))
    with pytest.raises(ConfigError, match=r"set fleet\.edges"):
        finished(small(), fedgs(LOCAL))
