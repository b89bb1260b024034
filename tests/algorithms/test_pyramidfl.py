"""PyramidFL by hand: shares that are dropped, what travels of an update, and who trains longer."""

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, SIZES, STACKED, finished, small, weights
from support import SPEC, Desk, Line, close, local, numbers, tasks

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.oort.selection import Oort
from potluck.algorithms.oort.state import Observation, OortState
from potluck.algorithms.pyramidfl.algorithm import SparseUpdates
from potluck.algorithms.pyramidfl.device import Thin
from potluck.algorithms.pyramidfl.selection import Part, Pyramid, PyramidState
from potluck.core import codec
from potluck.core.errors import ConfigError
from potluck.core.job import Trace
from potluck.core.messages import Lost, Reply, Spent, Task
from potluck.core.rule import Got
from potluck.core.trees import nbytes, same_form
from potluck.engine.schedule import StopAt
from potluck.jobs import SGD, Correct, Prox, Tally, Train
from potluck.rules import Average, Rounds

TRACE = Trace({}, torch.tensor(1.0), torch.tensor(0.1))
TEN = {"w": torch.arange(1.0, 7.0).reshape(2, 3), "b": torch.arange(7.0, 11.0)}  # 1 to 10


def near(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def packed(thin, mask):
    body, _ = thin.finish(TEN, {"mask": torch.tensor(mask)}, None, None, TRACE)
    return body["delta"]


def flat(params):
    return torch.cat([p.reshape(-1) for p in params.values()])


# --------------------------------------------------------------------------------------------------- formulas


def test_shares_that_are_dropped():
    near(Pyramid().drops([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    near(Pyramid().drops([1.0, 9.0, 4.0]), [0.6, 0.1, 0.3])  # 0.35 is between two levels: to the even one
    near(Pyramid(levels=11).drops([1.0, 9.0, 4.0]), [0.6, 0.1, 0.35])
    near(Pyramid().drops([inf, 2.0, inf]), [0.1, 0.6, 0.1])  # who was never heard drops least
    near(Pyramid().drops([3.0]), [0.1])
    near(Pyramid(drop_least=0.0, drop_most=0.5, levels=2).drops([1.0, 2.0]), [0.5, 0.0])
    near(Pyramid(levels=1).drops([1.0, 2.0]), [0.1, 0.1])


def test_time_that_is_left():
    times = np.array([[1.0, 4.0, 2.0], [1.0, 2.0, 1.0], [2.0, 10.0, 4.0]])
    drops = np.array([0.5, 0.0, 0.25])  # they end at 6, 4 and 15
    near(Pyramid().spare(times, drops), [9 / 4, 11 / 2, 0])
    near(Pyramid(wait=2 / 3).spare(times, drops), [0, 1, 0])
    near(Pyramid(wait=1 / 1.3).spare(times, drops), [9 / 4, 11 / 2, 0])
    near(Pyramid().spare(np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]), np.zeros(2)), [0, 0])


@pytest.mark.parametrize(
    ("settings", "usual", "spare", "expected"),
    [
        ({}, 5, 9 / 4, 16),  # 11 epochs of a fifth fit into 2.25
        ({"more": 0.5}, 5, 9 / 4, 10),
        ({"most": 1.0}, 5, 9 / 4, 10),
        ({}, 1, 0.9, 1),  # no whole epoch
        ({}, 1, 3.0, 4),
        ({}, 2, 100.0, 22),
        ({"more": 0.0}, 5, 9.0, 5),
        ({}, 10, 0.3, 13),  # though 0.3 x 10 is a little less than 3 in binary
    ],
)
def test_longer_training(settings, usual, spare, expected):
    assert Pyramid(**settings).lengthen(usual, spare) == expected


def test_longer_training_still_ends_with_the_round():
    rng, plan = np.random.default_rng(3), Pyramid()
    times, drops = rng.uniform(0.1, 20, (50, 3)), rng.uniform(0, 0.6, 50)
    down, compute, up = times.T
    ends = down + compute + up * (1 - drops)
    longer = [plan.lengthen(5, s) for s in plan.spare(times, drops)]
    assert (down + compute * np.array(longer) / 5 + up * (1 - drops) <= ends.max() + 1e-9).all()
    assert max(longer) > 10


# -------------------------------------------------------------------------------------------- what is dropped


@pytest.mark.parametrize(("drop", "kept"), [(0.0, 10), (0.1, 9), (0.34, 7), (0.6, 4), (0.99, 1)])
def test_only_what_is_kept_travels(drop, kept):
    thin = Thin(Prox(0.1), drop)
    sends = thin.sends(TEN)
    assert nbytes(sends) == 4 * kept
    vector = packed(thin, 3)
    assert same_form({"delta": vector}, sends)
    assert vector.unique().numel() == kept  # entries of the change, none twice
    assert set(vector.tolist()) <= set(range(1, 11))


def test_what_is_dropped_counts_as_no_change():
    thin = Thin(drop=0.6)
    opened = thin.unpack({"delta": packed(thin, 8), "more": 1}, {"mask": torch.tensor(8)}, TEN)
    assert same_form(opened["delta"], TEN)
    assert opened["more"] == 1
    there = flat(opened["delta"])
    assert torch.equal(there, torch.where(there != 0, flat(TEN), 0.0))
    assert (there != 0).sum() == 4
    whole = Thin(drop=0.0)
    assert close(whole.unpack({"delta": packed(whole, 7)}, {"mask": torch.tensor(7)}, TEN)["delta"], TEN, 0.0)


def test_all_entries_have_the_same_chance():
    thin, often = Thin(drop=0.6), torch.zeros(10)
    for mask in range(10):
        sent = {"mask": torch.tensor(mask + (1 << 62) // 10 * 10)}
        often += flat(thin.unpack({"delta": packed(thin, int(sent["mask"]))}, sent, TEN)["delta"]) != 0
    assert often.tolist() == [4] * 10


def test_costs_of_a_thin_task():
    at = local([1.0], [1], {"params": numbers(), "control": numbers(), "mask": torch.tensor(5)})
    plain, thin = Train(SPEC, Correct()), Train(SPEC, Thin(Tally(Correct()), 0.5))
    assert nbytes(plain.cost(at).sends) == 32
    assert nbytes(thin.cost(at).sends) == 24  # the control variate travels whole
    assert thin.cost(at).ops == plain.cost(at).ops
    assert thin.shape() != replace(thin, objective=Thin(Tally(Correct()), 0.25)).shape()


def test_a_head_alone_can_be_thin():
    job = Train(SPEC, Thin(drop=0.0), part="head")
    models, sent = {SPEC: Line()}, {"params": numbers(2.0, 1.0), "mask": torch.tensor(5)}
    opened = job.unpack({"delta": torch.tensor([3.0])}, sent, models)
    assert opened == {"delta": {"b": torch.tensor([3.0])}}
    body = {"delta": numbers()}
    assert Train(SPEC).unpack(body, sent, models) is body


# ------------------------------------------------------------------------------------------------- selection


def known(spent, round=3):
    return OortState(0.9, 100.0, round, {n: Observation(1.0, Spent(*s), round - 1) for n, s in spent.items()})


def test_plan_of_a_round():
    picks = PyramidState(known({0: (1, 4, 2), 1: (1, 2, 1), 2: (2, 10, 4)}), {0: 5.0, 1: 1.0, 2: 9.0})
    select = Pyramid()
    nodes, after = select.pick(picks, 3, Desk(children=range(3)))
    assert sorted(nodes) == [0, 1, 2]
    near([after.parts[n].drop for n in range(3)], [0.3, 0.6, 0.1])
    # they end at 1 + 4 + 1.4, 1 + 2 + 0.4 and 2 + 10 + 3.6
    near([after.parts[n].spare for n in range(3)], [9.2 / 4, 12.2 / 2, 0])
    jobs = dict(zip(nodes, select.jobs(Train(SPEC, Prox(0.1), epochs=2), nodes, after), strict=True))
    assert [jobs[n].epochs for n in range(3)] == [6, 14, 2]
    assert all(job.objective == Tally(Prox(0.1), 2) for job in jobs.values())
    steps = select.jobs(Train(SPEC, steps=10), [0, 1, 2], after)
    assert [job.steps for job in steps] == [33, 71, 10]
    same = select.jobs(Train(SPEC), [0, 7, 8], replace(after, parts={0: Part(0.1, 0.5)}))
    assert same[0] is same[1] is same[2]


def test_the_first_round_is_as_usual():
    select = Pyramid()
    nodes, picks = select.pick(select.start(), 4, Desk())
    assert len(nodes) == 4
    assert picks.parts == {}
    assert {job.epochs for job in select.jobs(Train(SPEC), nodes, picks)} == {1}
    assert select.pick(picks, 4, Desk(children=[]))[0] == []


def test_what_is_learnt_is_of_usual_training_and_whole_updates():
    job = Train(SPEC, Thin(Tally(usual=2), 0.36), epochs=6)
    body, metrics = {"delta": numbers(0.6, 0.8)}, {"squares": 4.0, "rows": 1.0}
    thin = Reply(Task(5, job, {}), body, 10.0, metrics, Spent(3.0, 9.0, 1.0 + 0.64))
    plain = Reply(Task(6, Train(SPEC, Tally(usual=1)), {}), body, 2.0, metrics, Spent(1.0, 2.0, 3.0))
    got = Got([thin, plain], [Lost(Task(7, job, {}), "gone")])
    after = Pyramid().learn(PyramidState(known({}, 4)), got, Desk())  # everybody claims a latency of 1 s
    spent = after.known.heard[5].spent
    near([spent.down, spent.compute, spent.up], [3, 3, 2])
    assert after.known.heard[5].utility == 20
    assert after.known.heard[6].spent.total == 6
    near([after.norms[5], after.norms[6]], [10 * 1.0 / sqrt(0.64), 2.0])


# ------------------------------------------------------------------------------------------------------ whole


def test_a_round_by_hand():
    model = algorithms.make("pyramidfl", Train(SPEC), clients=2)
    rule, desk = Rounds(model), Desk(children=range(2))
    run, commands = rule.init(desk)
    metrics = {"squares": 4.0, "rows": 1.0}
    for t in tasks(commands):
        assert t.send.keys() == {"params"}
        delta = numbers(1.0, 1.0) if t.to else numbers(4.0, 4.0)
        reply = Reply(t, {"delta": delta}, 5.0, metrics, Spent(1.0, 2.0, 1.0))
        run, commands = rule.receive(run, reply, desk.later(busy=set()))
    assert close(run.model.params, numbers(2.5, 2.5))
    second = {t.to: t for t in tasks(commands)}
    assert [second[n].job.objective.drop for n in (0, 1)] == [0.1, 0.6]
    # both take 4 s, less 0.1 and 0.6 of the upload: half a second is no whole epoch
    assert [second[n].job.epochs for n in (0, 1)] == [1, 1]
    for t in second.values():
        sent = t.job.objective.count_kept(2)
        assert sent == (2 if t.to == 0 else 1)
        reply = Reply(t, {"delta": torch.ones(sent, dtype=torch.float64)}, 5.0, metrics, Spent(1.0, 2.0, 1.0))
        run, commands = rule.receive(run, reply, desk.later(busy=set()))
    assert sorted(flat(run.model.params).tolist()) == [3.0, 3.5]  # one entry came from one device only


def federation():
    return small(compute=4e5)


def run(name, plan=LOOP, rounds=8, **params):
    rule = algorithms.make(name, replace(LOCAL, optim=SGD(0.1)), clients=4, **params)
    return finished(federation(), rule, stop=StopAt(rounds=rounds), plan=plan)


def test_bytes_are_saved():
    same = {"overcommit": 1.0}  # nobody is called off
    thin, whole = run("pyramidfl", **same), run("oort", cutoff=0.7, clip=0.98, pace=10.0, **same)
    assert thin.accounts.tasks == whole.accounts.tasks == 32
    model = nbytes(whole.points[whole.root].own.state.model.params)
    assert whole.accounts.up["device"] == 32 * model
    assert 4 + 28 * 0.4 <= thin.accounts.up["device"] / model <= 4 + 28 * 0.9
    assert thin.accounts.down["device"] == 32 * model + 28 * 8  # a mask each, but for the first round


@pytest.mark.filterwarnings("error")
def test_stacks_train_thin_and_long_tasks():
    loop, stacked = run("pyramidfl"), run("pyramidfl", STACKED)
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    assert stacked.accounts.up == loop.accounts.up


def test_fast_devices_train_longer():
    sim = finished(federation(), Watching(), stop=StopAt(rounds=8))
    longer = [epochs for _, epochs in sim.algorithms[sim.root].rule.seen]
    assert min(longer) == 1
    assert 2 <= max(longer) <= 11


class Watching:
    """PyramidFL that lists what its devices are asked to do."""

    def __init__(self):
        self.inner = algorithms.make("pyramidfl", replace(LOCAL, optim=SGD(0.1)), clients=4)
        self.seen = []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def plan(self, m, lane, ctx):
        m, commands = self.inner.plan(m, lane, ctx)
        self.seen += [(t.to, t.job.epochs) for t in tasks(commands)]
        return m, commands


@pytest.mark.parametrize("name", ["fedavg", "fedyogi", "qfedavg", "fedasync"])
def test_the_selector_alone_works_in_other_algorithms(name):
    sim = run(name, select={"kind": "Pyramid", "rank": {"cutoff": 0.5}})
    picks = sim.points[sim.root].own.state.model.picks
    assert len(picks.known.heard) >= 4
    assert picks.norms.keys() <= set(range(len(SIZES)))
    assert codec.encode(codec.decode(codec.encode(picks))) == codec.encode(picks)


def test_algorithm_is_fedavg_with_this_selector():
    made = algorithms.make("pyramidfl", LOCAL, clients=7, overcommit=1.25, server={"kind": "Adaptive"})
    assert isinstance(made, SparseUpdates)
    assert isinstance(made.inner, FedAvg)
    assert made.inner.select == Pyramid(wait=0.8)
    assert made.inner.server.rule == "yogi"
    smaller = made.resize(3, 0.5).inner
    assert (smaller.clients, smaller.local.optim.lr) == (3, LOCAL.optim.lr / 2)
    plain = algorithms.make("pyramidfl", LOCAL).inner  # as the authors' arguments are
    assert plain == FedAvg(10, LOCAL, Pyramid(wait=1 / 1.3), Average(), 1.3)
    assert Pyramid().rank == Oort(explore_decay=0.95, explore_least=0.2, cutoff=0.7, clip=0.98, pace=10.0)


def test_exploration_falls_as_the_authors_have_it():
    select, desk = Pyramid(), Desk(children=range(40))
    picks, shares = select.start(), []
    for _ in range(31):
        _, picks = select.pick(picks, 1, desk)
        desk, shares = desk.later(busy=set()), [*shares, picks.known.explore]
    near(shares[:2], [0.9 * 0.95, 0.9 * 0.95**2])
    near(shares[29:], [0.2, 0.2])  # 0.9 x 0.95^30 = 0.193


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"drop_least": -0.1}, "drop_least"),
        ({"drop_most": 1.0}, "drop_most"),
        ({"drop_least": 0.5, "drop_most": 0.4}, "drop_most"),
        ({"more": 2.0}, "more"),
        ({"most": -1.0}, "most"),
        ({"explore": 3.0}, "explore"),
        ({"overcommit": 0.5}, "overcommit"),
    ],
)
def test_wrong_values_are_named(wrong, name):
    with pytest.raises(ConfigError, match=rf"{name} = .*must be"):
        algorithms.make("pyramidfl", LOCAL, **wrong)
