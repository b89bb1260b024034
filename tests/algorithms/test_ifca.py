import dataclasses
import math

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, pool, small, values
from support import SPEC, Desk, Line, answer, close, local, notes, numbers, tasks

from potluck import algorithms, data
from potluck.algorithms.ifca.algorithm import stack_models
from potluck.algorithms.ifca.device import Pick, Prefer
from potluck.algorithms.ifca.draws import is_even, share_out_choices
from potluck.core.errors import ConfigError
from potluck.core.job import Local
from potluck.core.messages import Lost, Reply, Spent
from potluck.core.rule import Got
from potluck.core.trees import nbytes
from potluck.execute.reference import Item, train
from potluck.experiment import Experiment
from potluck.experiment.runs import run
from potluck.federation import Federation
from potluck.jobs import SGD, Train
from potluck.rules import Adaptive

UP, DOWN = numbers(2.0, 0.0), numbers(-2.0, 0.0)  # class 1 where x > 0, or where x < 0
JOB = Train(SPEC, Pick(2), optim=SGD(0.5), batch=4)


class Seeded(Line):
    """A line that starts elsewhere for every seed."""

    def init(self, key):
        return numbers(float(key % 97), float(key % 89))


def rule(**params):
    return algorithms.make("ifca", Train(SPEC, optim=SGD(0.5), batch=4), **params)


def at(x, y, **more):
    return local(x, y, {"models": stack_models([UP, DOWN])}, **more)


def chose(x, y):
    return train(Item(JOB, at(x, y)))


def test_the_device_trains_the_model_of_least_loss_and_says_which():
    ups, downs = chose([1.0, -1.0], [1, 0]), chose([1.0, -1.0], [0, 1])
    assert (int(ups.body["model"]), int(downs.body["model"])) == (0, 1)
    # One batch of both rows at w = 2, b = 0: each row's gradient for w is -(1 - s(2)), for b they cancel out.
    miss = 1 - 1 / (1 + math.exp(-2.0))
    assert close(ups.body["delta"], numbers(0.5 * miss, 0.0))
    assert close(downs.body["delta"], numbers(-0.5 * miss, 0.0))
    assert ups.weight == 2.0


def test_a_tie_and_no_rows_take_the_first():
    assert int(chose([0.0], [1]).body["model"]) == 0
    assert int(chose([], []).body["model"]) == 0


def test_all_losses_count_not_the_number_of_hits():
    # DOWN is right twice by little; UP is right once by much, and its loss is less.
    x, y = [3.0, -0.01, -0.01], [1, 1, 1]
    assert int(chose(x, y).body["model"]) == 0


def test_choosing_is_charged():
    here = at([1.0, -1.0, 0.5], [1, 0, 1])
    cost, plain = JOB.cost(here), Train(SPEC, optim=SGD(0.5), batch=4)
    alone = plain.cost(local([1.0, -1.0, 0.5], [1, 0, 1], {"params": UP}))
    assert cost.ops == alone.ops + 2 * 3 * Line.ops  # each model over each row
    assert nbytes(here.inbox) == 2 * 16
    assert nbytes(cost.sends) == 16 + 8  # the change, and which


def test_each_model_moves_by_those_who_chose_it():
    r, desk = rule(models=3, clients=4, restarts=0), Desk(models={SPEC: Seeded()})
    m = r.start(desk)
    before = [{n: p.clone() for n, p in params.items()} for params in m.params]
    m, commands = r.plan(m, None, desk)
    asked = tasks(commands)
    assert len(asked) == 4
    assert all(t.send["models"]["w"].shape == (3, 1) for t in asked)
    replies = [
        answer(asked[0], 1.0, 0.0, 1.0, model=torch.tensor(0)),
        answer(asked[1], 4.0, 2.0, 3.0, model=torch.tensor(0)),
        answer(asked[2], -1.0, 5.0, 9.0, model=torch.tensor(2)),
    ]
    m, commands = r.merge(m, None, Got(replies, [Lost(asked[3], "late")]), desk.later())
    moved = [{n: after[n] - first[n] for n in after} for after, first in zip(m.params, before, strict=True)]
    assert close(moved[0], numbers(3.25, 1.5))  # (1 x 1 + 3 x 4) / 4, (3 x 2) / 4
    assert close(moved[1], numbers(0.0, 0.0))
    assert close(moved[2], numbers(-1.0, 5.0))
    nodes = [t.to for t in asked]
    assert notes(commands) == [("chose", nodes[:2]), ("chose", []), ("chose", nodes[2:3])]
    assert m.round == 1


def test_every_model_has_a_server_optimiser_of_its_own():
    r, desk = rule(models=2, clients=1, restarts=0, server=Adaptive("yogi")), Desk(models={SPEC: Seeded()})
    m, commands = r.plan(r.start(desk), None, desk)
    after, _ = r.merge(
        m, None, Got([answer(tasks(commands)[0], 1.0, model=torch.tensor(1))], []), desk.later()
    )
    assert after.opt[0] is m.opt[0]
    assert float(after.opt[1].mean["w"]) == pytest.approx(0.1)


def test_models_start_apart_by_their_separation():
    desk = Desk(models={SPEC: Seeded()})
    far, near = (rule(models=3, separation=s).start(desk).params for s in (1.0, 0.25))
    assert close(far[0], Seeded().init(desk.key))
    assert len({float(p["w"]) for p in far}) == 3
    for a, b in zip(far, near, strict=True):
        assert close({n: (a[n] - far[0][n]) / 4 for n in a}, {n: b[n] - near[0][n] for n in b})


@pytest.mark.parametrize(
    ("key", "number"), [("models", 1), ("clients", 0), ("separation", 0.0), ("least", 0.6), ("restarts", -1)]
)
def test_bad_parameters_are_named(key, number):
    with pytest.raises(ConfigError, match=rf"{key} = {number}"):
        rule(**{key: number})


# --------------------------------------------------------------------------------------------- first models


def test_every_first_model_needs_its_share_of_the_choices():
    assert is_even([0] * 7 + [1] * 13, 2, 0.35)  # 7 of 20 are exactly the authors' share
    assert not is_even([0] * 6 + [1] * 14, 2, 0.35)
    assert is_even([0] * 3 + [1] * 9 + [2] * 9 + [3] * 9, 4, 0.1)  # 3 of 30
    assert not is_even([0] * 2 + [1] * 9 + [2] * 9 + [3] * 10, 4, 0.1)
    assert is_even([0, 1, 1], 2, 0.35)  # a third: three devices can't part more evenly
    assert not is_even([1, 1, 1], 2, 0.35)
    assert not is_even([0, 1, 2], 4, 0.1)  # fewer devices than models
    assert not is_even([], 2, 0.35)
    assert share_out_choices([2, 0, 2, 2], 3) == (0.0, 0.25, 0.75)  # the least first, whichever it is
    assert share_out_choices([], 2) == (0.0, 0.0)


@pytest.mark.parametrize(("models", "least"), [(2, 0.35), (4, 0.1), (5, 0.08)])
def test_the_share_is_the_authors_unless_told(models, least):
    assert rule(models=models).least == pytest.approx(least)


def test_a_device_says_which_model_suits_it_without_training():
    job = Prefer(SPEC, 2)
    here = at([1.0, -1.0, 0.5], [1, 0, 1])
    assert job.cost(here).ops == 2 * 3 * Line.ops  # each model over each row, and nothing else
    assert nbytes(job.cost(here).sends) == 8
    up, down, nobody = (job.run(at(x, y)) for x, y in (([1.0], [1]), ([1.0], [0]), ([], [])))
    assert (up.body["model"], down.body["model"]) == (0, 1)
    assert (up.weight, down.weight, nobody.weight) == (1.0, 1.0, 0.0)


def choose(task, model, weight=1.0):
    return Reply(task, {"model": model}, weight, {}, Spent())


def ask(r, m, desk, choices, weight=1.0):
    """Plan, and let devices choose so."""
    m, commands = r.plan(m, None, desk)
    asked = tasks(commands)
    assert all(isinstance(t.job, Prefer) for t in asked)
    replies = [choose(t, c, weight) for t, c in zip(asked, choices, strict=True)]
    return r.merge(m, None, Got(replies, []), desk.later(busy=set()))


def begin(**params):
    r, desk = rule(clients=4, **params), Desk(models={SPEC: Seeded()})
    return r, r.start(desk), desk


def test_first_models_are_drawn_anew_until_each_is_chosen():
    r, m, desk = begin(models=2)
    first = m.params
    m, commands = ask(r, m, desk, [0, 0, 0, 1])  # a quarter, of 0.35
    assert notes(commands) == [("draw", {"number": 1, "least": 0.25})]
    second = m.params
    assert not any(close(a, b) for a, b in zip(first, second, strict=True))
    desk = desk.later(busy=set())
    m, commands = ask(r, m, desk, [1, 0, 1, 0])
    assert notes(commands) == [("draw", {"number": 2, "least": 0.5})]
    assert (m.tryout, m.round) == (None, 0)  # asking is no round
    assert m.params is second
    _, commands = r.plan(m, None, desk.later(busy=set()))
    assert all(isinstance(t.job, Train) for t in tasks(commands))


def test_the_most_even_draw_is_kept_when_all_tries_are_used_up():
    r, m, desk = begin(models=2, restarts=2)
    for choices, weight in (([0, 0, 0, 0], 1.0), ([1, 1, 0, 1], 1.0), ([0, 1, 0, 1], 0.0)):
        if choices == [1, 1, 0, 1]:
            best = m.params
        m, commands = ask(r, m, desk, choices, weight)  # the last have no rows: they don't count
        desk = desk.later(busy=set())
    told = [("draw", {"number": 3, "least": 0.0}), ("uneven", {"number": 2, "least": 0.25, "wanted": 0.35})]
    assert notes(commands) == told
    assert m.tryout is None
    assert all(close(a, b) for a, b in zip(m.params, best, strict=True))


def test_a_try_that_nobody_answers_is_one_try():
    r, m, desk = begin(models=2, restarts=1)
    for _ in range(2):
        m, commands = r.plan(m, None, desk)
        m, _ = r.merge(m, None, Got([], [Lost(t, "late") for t in tasks(commands)]), desk.later(busy=set()))
        desk = desk.later(busy=set())
    assert m.tryout is None


def test_as_many_are_asked_as_there_are_models():
    r, desk = rule(models=6, clients=2), Desk(models={SPEC: Seeded()})
    _, commands = r.plan(r.start(desk), None, desk)
    assert len(tasks(commands)) == 6


# Without a second draw, two of these four groups share a model at seeds 2 and 10, and three at seed 11.
@pytest.mark.parametrize("seed", [2, 10, 11])
def test_four_groups_use_four_models(seed):
    tables = {
        "data": {"clients": 12, "partition": "iid", "groups": {"kind": "rotation", "count": 4}},
        "train": {"lr": 0.3, "batch": 10, "epochs": 2},
        "algorithms": {"ifca": {"clients": 12, "models": 4}},
        "evaluate": {"rounds": 25, "on": "validation"},
        "run": {"executor": "stacked", "graphs": False},
    }
    more = {"model": {"name": "linear"}, "stop": {"rounds": 25}}
    told = run(Experiment(name="four", algorithm="ifca", seed=seed, **tables, **more)).lines
    assert [len(line["value"]) for line in told if line["metric"] == "chose"][-4:] == [3, 3, 3, 3]
    assert not [line for line in told if line["metric"] == "uneven"]


# ------------------------------------------------------------------------------------------- in a federation


def two_groups():
    """Clients of two groups with opposite names for the classes."""
    base, clients = pool(600, 2, 5), 12
    plain = data.iid(base, clients, 1)
    laid = data.arrange(base, plain, 3, groups=data.Groups("permutation", 2))
    fleet = dataclasses.replace(small((3,) * clients, compute=4e5).fleet, group=laid.group)
    models = small(data=base).models
    return Federation(laid.pool, laid.phases[0].partition, fleet, models), laid.group


def test_hidden_groups_find_their_models_and_choices_differ_within_a_stack():
    where, group = two_groups()
    local = dataclasses.replace(LOCAL, optim=SGD(0.3), epochs=3)
    one, alone = (
        finished(where, algorithms.make("ifca", local, clients=12), rounds=6, seed=4, plan=plan)
        for plan in (STACKED, LOOP)
    )
    last = [sorted(v) for v in values(one, "chose")[-2:]]
    assert sorted(last) == sorted(np.flatnonzero(group == g).tolist() for g in (0, 1))
    assert values(one, "chose") == values(alone, "chose")
    shared = finished(where, algorithms.make("fedavg", local, clients=12), rounds=6, seed=4, plan=STACKED)
    assert one.accuracy > shared.accuracy + 0.2


def test_served_by_its_own_training_rows_not_by_the_test_labels():
    where, _ = two_groups()
    sim = finished(where, algorithms.make("ifca", LOCAL, clients=4), rounds=2, seed=4, plan=LOOP)
    labels = where.pool.y.clone()
    for node in range(12):  # as if every test row were of the other class
        labels[torch.tensor(where.partition.rows(node, "test"))] ^= 1
    turned = dataclasses.replace(where.pool, y=labels)
    for node in range(12):
        task, rows = sim.serve(node)["chosen"], where.partition.rows(node, "train")
        test = where.partition.rows(node, "test")
        right, wrong = (
            train(Item(task.job, Local(node, rows, task.send, None, 0, where.models, p, test))).metrics
            for p in (where.pool, turned)
        )
        assert right["accuracy"] + wrong["accuracy"] == pytest.approx(
            1.0
        )  # the same model, whatever the labels
    assert set(sim.serve(sim.root)) == {"model 0", "model 1"}
