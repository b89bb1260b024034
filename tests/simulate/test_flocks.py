"""Flocks: tasks that start together are one table, and nothing of a run tells."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, WORKERS, chained, finished, lines, one_by_one, small, weights
from hypothesis import given
from hypothesis import strategies as st
from support import SPEC, Desk, Line, answer, numbers

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.core.codec import value
from potluck.core.columns import Draws, Places, Results, costs_together
from potluck.core.job import Cost, Local
from potluck.core.messages import Lost, Task
from potluck.core.replies import Replies, Sheet, list_weights, stack_entry
from potluck.engine.checks import MOST_METRIC, find_first_problem, find_problem
from potluck.engine.context import Glimpse
from potluck.engine.flight import count_all_bytes, count_bytes
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import ExecutionPlan
from potluck.fleet import Attack, Jitter, OnOff, slow_all_by_swapping, slow_by_swapping
from potluck.jobs import SGD, Private, Shuffled, Train
from potluck.jobs.sampling import Asked, AtMost, InPart
from potluck.rules import Rounds
from potluck.rules.fold import fold
from potluck.rules.guard import guard
from potluck.rules.robust import Median, MultiKrum
from potluck.simulate import flocks

pytestmark = pytest.mark.slow

FEDAVG = FedAvg(clients=8, local=replace(LOCAL, batch=3))
CAPTURED = replace(STACKED, graphs=True, chunk=20)


def crowd(**more):
    return small(compute=4e5, **more)


def attacked(kind):
    federation = crowd()
    attack = Attack(kind, start=1e-3) if kind == "malformed" else Attack(kind, 1.0, start=1e-3)
    liars = np.isin(np.arange(len(federation.fleet)), [1, 4, 5])
    return replace(federation, fleet=replace(federation.fleet, attack=attack, attackers=liars))


def fleet_with(**changes):
    federation = crowd()
    return replace(federation, fleet=replace(federation.fleet, **changes))


# Federation, rule, and settings of the run: what flocks must take.
CASES = {
    "plain": (crowd, FEDAVG, {}),
    "deadline": (crowd, replace(FEDAVG, deadline=3.0), {}),
    "over-commitment": (crowd, replace(FEDAVG, clients=5, overcommit=1.8), {}),
    "several epochs": (crowd, replace(FEDAVG, local=replace(FEDAVG.local, epochs=3)), {}),
    "so many steps": (crowd, replace(FEDAVG, local=replace(FEDAVG.local, steps=4)), {}),
    "swapping": (lambda: crowd(memory=(1_000, 9_000)), FEDAVG, {}),
    "jitter": (lambda: fleet_with(jitter=Jitter(7, 0.3, 0.3, 0.4)), FEDAVG, {}),
    "availability": (lambda: crowd(availability=OnOff(3, 10.0, 0.8)), FEDAVG, {}),
    "keeps": (crowd, algorithms.make("scaffold", replace(LOCAL, optim=SGD(0.1)), clients=8), {}),
    "keeps, forgotten": (
        lambda: fleet_with(forget=0.4),
        algorithms.make("scaffold", replace(LOCAL, optim=SGD(0.1)), clients=8),
        {},
    ),
    "packed": (crowd, algorithms.make("fedpvr", LOCAL, clients=8), {}),
    "privacy": (crowd, replace(FEDAVG, local=replace(LOCAL, privacy=Private(0.5, 0.1))), {}),
    "attackers": (lambda: attacked("sign_flip"), FEDAVG, {}),
    "malformed": (lambda: attacked("malformed"), FEDAVG, {}),
    "robust": (lambda: attacked("scaling"), guard(FEDAVG, MultiKrum()), {}),
    "robust in groups": (
        lambda: attacked("scaling"),
        guard(algorithms.make("ifca", LOCAL, clients=8), Median()),
        {},
    ),
    "evaluated between": (crowd, FEDAVG, {"often": EvaluateAt(seconds=0.05)}),
    "seconds": (crowd, FEDAVG, {"stop": StopAt(seconds=1.3)}),
    "device-seconds": (crowd, FEDAVG, {"stop": StopAt(device_seconds=3.7)}),
    "edges": (lambda: crowd(edges=2), algorithms.make("hierfl", LOCAL, clients=4), {}),
    "adaptive": (crowd, algorithms.make("fedyogi", LOCAL, clients=8), {}),
    "groups": (crowd, algorithms.make("ifca", LOCAL, clients=8), {}),
}
PLANS = {"loop": LOOP, "chunks of three": STACKED, "captured": CAPTURED}


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    """Two tasks are a flock here, so that many are met."""
    monkeypatch.setattr(flocks, "FEW", 2)


def watch(monkeypatch):
    """How many replies are heard as tables, and the largest number heard at once."""
    heard, end = [], flocks.Flocks.end

    def watched(self, flock, rows, seconds):
        replies = end(self, flock, rows, seconds)
        heard.append(0 if replies is None else len(replies))
        return replies

    monkeypatch.setattr(flocks.Flocks, "end", watched)
    return heard


def tell(sim):
    """All that is left of a run."""
    accounts, state = sim.accounts, sim.devices.queues.state
    assert not state.flocks
    return (
        lines(sim),
        [*sim.devices.timeline],
        (sim.now, sim.cloud.own.tick, state.serial, state.accepted),
        (accounts.seconds, accounts.tasks, accounts.up, accounts.down, accounts.lost, accounts.private),
        accounts.took_part.tolist(),
        sim.links.state.most,
    )


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", CASES)
def test_nothing_tells_that_tasks_were_a_flock(name, plan, monkeypatch):
    make, rule, settings = CASES[name]
    settings = {"rounds": 4, "often": EvaluateAt(rounds=2), "plan": PLANS[plan]} | settings
    heard = watch(monkeypatch)
    together = finished(make(), rule, **settings)
    assert sum(heard) >= 3
    assert max(heard) > 1 or name == "evaluated between"
    with one_by_one():
        between = finished(make(), rule, **settings)
    heard.clear()
    monkeypatch.setattr(flocks, "FEW", 10**9)
    alone = finished(make(), rule, **settings)
    assert heard == []
    assert tell(together) == tell(alone) == tell(between)
    assert torch.equal(weights(together), weights(alone))
    assert torch.equal(weights(between), weights(alone))


@value(name="tests.flocks.Shapes")
class Shapes(FedAvg):
    """Every barrier trains in two ways, which can't be computed together."""

    def plan(self, m, lane, ctx):
        send, jobs = {"params": m.params}, [self.local] * 4 + [replace(self.local, batch=2)] * 4
        return m, [Task(n, job, send) for n, job in enumerate(jobs)]


@pytest.mark.parametrize("rule", [FEDAVG, Shapes(local=LOCAL)], ids=["one shape", "two shapes"])
@pytest.mark.parametrize("kind", ["ipm", "alie"])
def test_colluders_start_in_a_flock_and_answer_by_themselves(kind, rule, monkeypatch):
    federation = attacked("sign_flip")
    federation = replace(federation, fleet=replace(federation.fleet, attack=Attack(kind)))
    together = finished(federation, rule)
    monkeypatch.setattr(flocks, "FEW", 10**9)
    alone = finished(federation, rule)
    assert tell(together) == tell(alone)
    assert torch.equal(weights(together), weights(alone))


@pytest.mark.parametrize(
    "name", ["deadline", "over-commitment", "availability", "keeps", "attackers", "edges"]
)
@pytest.mark.parametrize("plan", [CAPTURED, STACKED, WORKERS], ids=["captured", "chunks", "workers"])
def test_a_run_that_is_stored_within_flocks_goes_on_where_it_was(name, plan):
    make, rule, settings = CASES[name]
    settings = {"rounds": 2, "plan": plan} | settings
    straight = finished(make(), rule, **settings)
    again, events = chained(make(), rule, **settings)
    assert events > 8
    assert tell(again) == tell(straight)
    assert torch.equal(weights(again), weights(straight))


def test_processes_and_a_flock_agree_with_the_loop(monkeypatch):
    heard = watch(monkeypatch)
    one, other = (finished(crowd(), FEDAVG, plan=plan) for plan in (LOOP, ExecutionPlan("workers", 2)))
    assert max(heard) > 1
    assert tell(one) == tell(other)
    assert torch.equal(weights(one), weights(other))


def test_processes_refuse_what_the_loop_refuses_while_other_training_waits():
    """Four updates are NaN and end while four others, of another shape, haven't begun to be computed."""

    @value(name="tests.flocks.Steep")
    class Steep(FedAvg):
        def plan(self, m, lane, ctx):
            steep = replace(self.local, optim=SGD(1e300), steps=3)
            slow = replace(self.local, batch=2, epochs=40)
            send, jobs = {"params": m.params}, [steep] * 4 + [slow] * 4
            return m, [Task(n, job, send) for n, job in enumerate(jobs)]

    one, other = (finished(crowd(), Steep(local=LOCAL), rounds=2, plan=plan) for plan in (LOOP, WORKERS))
    assert one.accounts.lost == {"bad": 8}
    assert tell(one) == tell(other)
    assert torch.equal(weights(one), weights(other))


def test_a_barrier_of_asynchronous_rules_is_no_flock(monkeypatch):
    heard = watch(monkeypatch)
    finished(crowd(), algorithms.make("fedbuff", LOCAL, clients=6, buffer=3))
    assert heard == []


# ---------------------------------------------------------------------------------------------- which tasks


@value(name="tests.flocks.Dear")
class Dear(Train):
    """Costs something else, but says nothing of many at once."""

    def cost(self, at):
        return replace(Train.cost(self, at), seconds=1.0)


def test_another_cost_isnt_hidden_by_what_was_inherited():
    assert costs_together(LOCAL)
    assert not costs_together(Dear())


@value(name="tests.flocks.Once")
class Once(Shuffled):
    """The first batch of an epoch alone, and says nothing of many at once."""

    def draw(self, at, batch, epochs, steps):
        return Shuffled.draw(self, at, batch, 1, 1)

    def passes(self, at, batch, epochs, steps):
        return min(batch, len(at.rows))


@value(name="tests.flocks.Short")
class Short(Train):
    """Trains for a step less than it would, and says nothing of many at once."""

    def draw(self, at):
        drawn = Train.draw(self, at)
        return replace(drawn, index=drawn.index[1:], weight=drawn.weight[1:])


@pytest.mark.parametrize("job", [replace(LOCAL, sampler=Once()), Short(SPEC, optim=LOCAL.optim, batch=4)])
def test_another_draw_isnt_hidden_by_what_was_inherited(job, monkeypatch):
    job = replace(job, optim=SGD(0.1))
    rule = FedAvg(clients=8, local=job)
    one, other = (finished(crowd(), rule, plan=plan) for plan in (LOOP, STACKED))
    assert torch.allclose(weights(one), weights(other), atol=1e-10)
    monkeypatch.setattr(flocks, "FEW", 10**9)
    alone = finished(crowd(), rule)
    assert tell(one) == tell(alone)
    assert torch.equal(weights(one), weights(alone))


def test_tasks_of_different_kinds_start_as_they_would_by_themselves(monkeypatch):
    """Every second device has a rate of its own, and some are asked twice."""

    @value(name="tests.flocks.Mixed")
    class Mixed(FedAvg):
        def plan(self, m, lane, ctx):
            send, other = {"params": m.params}, self.local.scale_rate(0.5)
            nodes = [0, 1, 2, 3, 4, 5, 6, 7, 1, 2, 8, 9, 0]
            jobs = [self.local] * 5 + [other] * 6 + [self.local, other]
            return m, [Task(n, job, send) for n, job in zip(nodes, jobs, strict=True)]

    rule = Mixed(local=LOCAL)
    together = finished(crowd(), rule)
    monkeypatch.setattr(flocks, "FEW", 10**9)
    alone = finished(crowd(), rule)
    assert tell(together) == tell(alone)
    assert torch.equal(weights(together), weights(alone))


def test_a_rule_that_looks_at_the_moment_hears_replies_one_by_one(monkeypatch):
    @value(name="tests.flocks.Impatient")
    class Impatient(FedAvg):
        def lanes(self, m, ctx):
            return (None,) if ctx.working and ctx.now < 1e9 else ()

    heard = watch(monkeypatch)
    sim = finished(crowd(), Impatient(clients=8, local=LOCAL))
    assert {*heard} == {1}
    assert torch.equal(weights(sim), weights(finished(crowd(), FedAvg(clients=8, local=LOCAL))))


def test_a_glimpse_notes_what_is_asked_of_this_moment():
    sim = finished(crowd(), FEDAVG, rounds=1)
    for ask, expected in (
        (lambda ctx: ctx.children, False),
        (lambda ctx: ctx.working, False),
        (lambda ctx: ctx.profiles([0]), False),
        (lambda ctx: ctx.now, True),
        (lambda ctx: ctx.key, True),
        (lambda ctx: ctx.rng, True),
        (lambda ctx: ctx.sample(1), True),
        (lambda ctx: ctx.ready([0]), True),
        (lambda ctx: ctx.rows([0]), True),
        (lambda ctx: ctx.only([0]), True),
    ):
        ctx = Glimpse(sim, sim.root, (1,))
        ask(ctx)
        assert ctx.asked == expected


def test_the_loop_wants_as_many_replies_as_it_waits_for():
    class Two(FedAvg):
        def lanes(self, m, ctx):
            return (None, "parked")

        def plan(self, m, lane, ctx):
            return FedAvg.plan(self, m, lane, ctx) if lane is None else (m, [])

    for kind, wanted in ((Two, 1), (FedAvg, 4)):
        ctx = Desk(models={SPEC: Line()}, children=range(9))
        loop = Rounds(kind(clients=4, local=replace(LOCAL, model=SPEC), overcommit=1.5))
        s, _ = loop.init(ctx)
        assert loop.count_wanted(s, None, 1, ctx) == wanted
        assert loop.count_wanted(s, None, 2, ctx) == 0
        assert loop.count_wanted(s, "other", 1, ctx) == 0
    due = s.open[None].due
    assert len(due) == 6
    s, _ = loop.receive(s, answer(due[0]), ctx)
    assert loop.count_wanted(s, None, 1, ctx) == 3
    for task in due[1:4]:
        s, _ = loop.receive(s, Lost(task, "gone"), ctx)
    assert loop.count_wanted(s, None, 1, ctx) == 2


# ------------------------------------------------------------------------------------------------- columns


def table(count=5, **changes):
    """Results 0 to 4: deltas, weights and losses are their number."""
    body = {"delta": numbers(0.0, 0.0)}
    numbered = torch.arange(float(count), dtype=torch.float64)
    body = {"delta": {name: numbered.clone() for name in body["delta"]}}
    told = np.arange(float(count))
    columns = {"weights": told, "metrics": {"loss": told.copy()}, "finite": np.ones(count, np.bool_)}
    return Results(body, None, **columns | changes)


def sheet(results, rows):
    tasks = [Task(n, None, {}, id=(None, 1, n)) for n in range(len(rows))]
    seconds = [np.arange(float(len(rows))) + k for k in range(3)]
    return Sheet(tasks, *seconds, results, np.array(rows))


@pytest.mark.parametrize("apart", [False, True])
def test_replies_are_the_rows_of_a_table(apart):
    results = table()
    own = sheet(results.split() if apart else results, [4, 3, 2, 1, 0])
    replies = Replies(own, np.array([1, 3]))
    assert [r.task.to for r in replies] == [1, 3]
    assert [(r.weight, r.metrics, float(r.body["delta"]["w"])) for r in replies] == [
        (3.0, {"loss": 3.0}, 3.0),
        (1.0, {"loss": 1.0}, 1.0),
    ]
    spent = [(r.spent.down, r.spent.compute, r.spent.up) for r in replies]
    assert spent == [(1.0, 2.0, 3.0), (3.0, 4.0, 5.0)]
    assert replies[0] is replies[:1][0]
    assert list_weights(replies) == [3.0, 1.0]
    assert stack_entry(replies, "delta")["w"].tolist() == [3.0, 1.0]
    made = fold(replies)
    assert float(made["w"]) == (3 * 3 + 1 * 1) / 4
    assert torch.equal(made["w"], fold(list(replies))["w"])


def test_a_whole_table_is_folded_where_it_is():
    results = table()
    replies = Replies(sheet(results, [0, 1, 2, 3, 4]), np.arange(5))
    assert stack_entry(replies, "delta")["w"] is results.body["delta"]["w"]


def test_parts_of_a_batch_are_joined_by_their_places():
    whole = Results.join([([3, 0], table(2)), ([1, 2, 4], table(3))], 5)
    assert isinstance(whole, Results)
    assert whole.weights.tolist() == [1.0, 0.0, 1.0, 0.0, 2.0]
    assert whole.body["delta"]["w"].tolist() == [1.0, 0.0, 1.0, 0.0, 2.0]
    assert whole.metrics["loss"].tolist() == [1.0, 0.0, 1.0, 0.0, 2.0]
    other = replace(table(3), keep={"seen": torch.arange(3)})
    apart = Results.join([([3, 0], table(2)), ([1, 2, 4], other)], 5)
    assert [r.weight for r in apart] == [1.0, 0.0, 1.0, 0.0, 2.0]
    assert apart[3].keep is None
    assert int(apart[4].keep["seen"]) == 2


FORM = {"delta": {name: torch.zeros((), dtype=torch.float64) for name in numbers(0.0, 0.0)}}


@pytest.mark.parametrize(
    ("results", "cost", "first"),
    [
        (table(), Cost(sends=FORM, metrics=("loss",)), None),
        (table(), Cost(sends={}, metrics=("loss",)), 0),
        (table(), Cost(sends=FORM, metrics=()), 0),
        (table(), Cost(sends=FORM, metrics=("loss", "more")), 1),  # who has no weight needn't tell
        (table(weights=np.array([0.0, 1.0, 9.0, 3.0, np.nan])), Cost(sends=FORM, metrics=("loss",)), 2),
        (
            table(metrics={"loss": np.array([0.0, 1.0, 2.0, 2 * MOST_METRIC, np.nan])}),
            Cost(sends=FORM, metrics=("loss",)),
            3,
        ),
        (table(finite=np.array([True, False, True, True, True])), Cost(sends=FORM, metrics=("loss",)), None),
    ],
)
def test_a_column_finds_what_a_look_at_each_finds(results, cost, first):
    rows, most = np.arange(5), np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    found = [
        find_problem(r, replace(cost, weight=w), trusted=True) for r, w in zip(results, most, strict=True)
    ]
    alone = next((i for i, problem in enumerate(found) if problem is not None), None)
    assert find_first_problem(results, rows, cost, most) == alone == first
    assert find_first_problem(results.split(), rows, cost, most) == first


SECONDS = st.floats(0, 1e6) | st.just(0.0)


@given(st.integers(0, 2**40), st.lists(st.tuples(st.floats(-10, 1e6), SECONDS), min_size=1, max_size=8))
def test_bytes_of_many_transfers_are_those_of_each(size, transfers):
    elapsed, seconds = (np.array(column) for column in zip(*transfers, strict=True))
    expected = [count_bytes(size, e, s) for e, s in transfers]
    assert count_all_bytes(size, elapsed, seconds).tolist() == expected


@given(
    st.floats(1, 1e12) | st.just(0.0), st.lists(st.floats(1, 1e12) | st.just(np.inf), min_size=1, max_size=5)
)
def test_many_devices_swap_as_each_does(needs, memory):
    assert slow_all_by_swapping(needs, np.array(memory)).tolist() == [
        slow_by_swapping(needs, each) for each in memory
    ]


SAMPLERS = (Shuffled(), Shuffled(7), AtMost(Shuffled(), 2), InPart(Shuffled(), 3))


@given(
    st.sampled_from(SAMPLERS),
    st.integers(1, 7),
    st.lists(
        st.tuples(
            st.integers(0, 20), st.integers(0, 3), st.none() | st.integers(0, 9), st.integers(0, 2**63)
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_what_is_drawn_together_is_what_each_draws(sampler, batch, asked):
    places = [
        Local(n, np.arange(rows) + n, {}, None, seed, {}, None) for n, (rows, _, _, seed) in enumerate(asked)
    ]
    epochs, steps = [e for _, e, _, _ in asked], [s for _, _, s, _ in asked]
    drawn = sampler.draw_all(Asked([sampler] * len(asked), Places.of(places), batch, epochs, steps))
    for i, (at, e, s) in enumerate(zip(places, epochs, steps, strict=True)):
        own, alone = drawn.rows(i), sampler.draw(at, batch, e, s)
        assert own.index.tolist() == alone.index.tolist()
        assert own.weight.tolist() == alone.weight.tolist()
        assert own.count == alone.count
        assert alone.weight.sum() == sampler.passes(at, batch, e, s)
    again = Draws.of([drawn.rows(i) for i in range(len(asked))])
    assert again.steps.tolist() == drawn.steps.tolist()


def test_one_who_has_many_rows_costs_the_others_no_memory():
    sizes = [5000, *[20] * 30]
    places = [Local(n, np.arange(rows), {}, None, n, {}, None) for n, rows in enumerate(sizes)]
    count = len(sizes)
    asked = Asked([Shuffled()] * count, Places.of(places), 10, [1] * count, [100] * count)
    tracemalloc.start()
    drawn = Shuffled.draw_all(asked)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 * (drawn.place.nbytes + drawn.weight.nbytes)
