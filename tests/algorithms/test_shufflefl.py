"""ShuffleFL: who is told which alpha, what a hub does for one task, and that rows only ever change hands."""

import gc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, SIZES, chained, finished, pool, simulate, small, values, weights
from support import SPEC, Desk, Line, answer, local, notes, numbers, tasks

from potluck import algorithms
from potluck.algorithms.shufflefl import PUBLISHED
from potluck.algorithms.shufflefl.algorithm import shufflefl
from potluck.algorithms.shufflefl.device import DeviceGauge, Gauge, read_gauge
from potluck.algorithms.shufflefl.gateway import Group, Solve, pose_question
from potluck.algorithms.shufflefl.hub_state import HubState
from potluck.algorithms.shufflefl.overseer import Round
from potluck.algorithms.shufflefl.past import Past
from potluck.algorithms.shufflefl.planner.fill import Fill
from potluck.algorithms.shufflefl.planner.relaxed import Slsqp
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.times import slsqp_seconds, step_seconds
from potluck.core import codec
from potluck.core.errors import ConfigError
from potluck.core.messages import Answer, Lost, Move, Reply, Spent, Task
from potluck.core.rule import Got
from potluck.core.trees import nbytes
from potluck.data import StoredPartition, reserve_rows
from potluck.engine.kept_records import KeptRecords
from potluck.engine.schedule import StopAt
from potluck.fleet import REFERENCE_OPS, Intervals, Jitter
from potluck.jobs import Private, Train
from potluck.rules import Rounds, as_algorithm

pytestmark = pytest.mark.slow

ME, CLOUD = 100, 99


def published(*given, **more):
    """As in the paper; what is Potluck's own has a file beside."""
    return shufflefl(*given, **PUBLISHED, **more)


class TwoClasses(Line):
    classes = 2


NETS = {SPEC: TwoClasses()}
JOB = Train(SPEC)
USERS = [101, 102, 103]  # hubs follow the cloud


def closed(replies, lost=()):
    return Got(list(replies), list(lost))


def at_hub(**more):
    return Desk(NETS, children=range(2), me=ME, here=ME, parent=CLOUD, **more)


def told(compute, rate, counts=(40, 0)):
    return DeviceGauge(counts, 1000, compute, rate, rate)


def said(task, counts, compute, up, down, row_bytes=1000, latency=1.0):
    """What a device of this pace answers; Desk's claims have a latency of 1 s."""
    body = {"counts": torch.tensor(counts), "row_bytes": row_bytes, "ballast": task.send["ballast"]}
    spent = Spent(
        latency + 8 * nbytes(task.send) / down, compute * task.job.passes, latency + 8 * nbytes(body) / up
    )
    return Reply(task, body, float(sum(counts)), {}, spent)


# ------------------------------------------------------------------------------------------------- gauging


def test_a_gauge_tells_rows_and_pace():
    here = local([1.0, 2.0, 3.0], [0, 1, 1], {"ballast": bytes(1000)}, models=NETS)
    job = Gauge(SPEC, passes=4)
    cost, result = job.cost(here), job.run(here)
    assert cost.ops == 4 * TwoClasses.ops
    assert result.body["counts"].tolist() == [1, 2]
    assert result.body["row_bytes"] == 8 + 8  # one double and the label
    assert nbytes(result.body) == nbytes(cost.sends) == 2 * 8 + 8 + 1000
    task = Task(0, job, here.inbox)
    # 1000 bytes down at 1e6 bit/s take .008 s, 1024 up at 2e6 .004096 s, beside a latency of .1 s each.
    reply = Reply(task, result.body, 3.0, {}, Spent(0.108, 0.2, 0.104096))
    found = read_gauge(reply, 0.1)
    assert found.counts == (1, 2)
    assert (found.compute, found.down, found.up) == pytest.approx((0.05, 1e6, 2e6))
    # A latency that can't be true isn't believed.
    assert read_gauge(reply, 0.5).down == pytest.approx(8000 / 0.108)


def test_a_plan_is_made_of_what_is_true_at_the_time():
    where, listed = small(users=1, compute=4e5), []
    for jitter in (None, Jitter(3, every=1e6, rates=0.3, compute=0.5)):
        where = replace(where, fleet=replace(where.fleet, jitter=jitter))
        finished(where, Spy(published(LOCAL), listed), rounds=1)
        solves = [c for _, c in listed if isinstance(c, Task) and isinstance(c.job, Solve)]
        problem = solves[-1].send["problem"]
        true, devices = where.fleet.true, range(len(SIZES))
        factors = np.array([(1.0, 1.0) if jitter is None else jitter.factors(n, 0.0) for n in devices]).T
        one = where.models[LOCAL.model].ops / REFERENCE_OPS / 1000
        np.testing.assert_allclose(problem.compute, one * true.compute * factors[0], rtol=1e-9)
        np.testing.assert_allclose(problem.up, true.up * factors[1], rtol=1e-9)
        np.testing.assert_allclose(problem.down, true.down * factors[1], rtol=1e-9)
        assert problem.row_bits == 8 * where.row_bytes()
        rows = [where.partition.rows(n, "train") for n in devices]
        labels = [where.pool.y[torch.tensor(r)] for r in rows]
        assert problem.counts.tolist() == [torch.bincount(y, minlength=4).tolist() for y in labels]


# ------------------------------------------------------------------------------------------------- scaling


def test_a_hub_tells_how_much_slower_it_has_become():
    hub = published(JOB).at("user")
    then = {0: told(0.02, 1e6), 1: told(0.02, 1e6)}
    m = HubState(past=Past(then, rows=80, went=20))
    task = Task(ME, Gauge(SPEC), {}, id=("up", 1, 0))
    ctx = at_hub(owed=task)
    m = hub.adopt(m, task, ctx)
    assert hub.report(m, task, ctx) is None
    m, commands = hub.plan(m, None, ctx)
    heard = [said(t, (40, 0), 0.03, 2e6, 2e6) for t in tasks(commands)]
    m, _ = hub.merge(m, None, closed(heard), ctx)
    # kappa = 240 / (240 + 20); beta = 12/13 * .03/.02 + 1/13 * 1e6/2e6 = 1.423077
    assert hub.report(m, task, ctx)[0]["beta"] == pytest.approx(1.423077, abs=1e-6)
    # What was measured for this serves the plan too: nobody is gauged twice.
    work = Task(ME, JOB, {"params": numbers(), "alpha": 5.0})
    m = hub.adopt(m, work, at_hub(owed=work))
    assert m.doing == "solve"
    # Once trained, it is out of date.
    assert hub.adopt(replace(m, doing="done", found={}), work, ctx).doing == "gauge"


def scaled(took, betas, alpha=6.0, **how):
    """What a cloud that knows its users tells each of them, and what it asked them before."""
    cloud = published(JOB, users=3, alpha=alpha, **how).cloud
    ctx = Desk(NETS, children=USERS, me=ME, here=ME)
    m = replace(cloud.start(ctx), took=took)
    m, commands = cloud.plan(m, None, ctx)
    asked = tasks(commands)
    if any(isinstance(t.job, Gauge) for t in asked):
        replies = [Reply(t, {"beta": betas[t.to]}, 1.0, {}, Spent(1.0)) for t in asked]
        m, _ = cloud.merge(m, None, closed(replies), ctx)
        m, commands = cloud.plan(m, None, ctx.later(busy=set()))
    return {t.to: t.send["alpha"] for t in tasks(commands)}, asked


def test_alphas_by_expected_time():
    # h~ = 10, 20, 30 on average 20: 2, 1 and 2/3 of alpha.
    each, asked = scaled({101: 5.0, 102: 20.0, 103: 60.0}, {101: 2.0, 102: 1.0, 103: 0.5})
    assert each == pytest.approx({101: 12.0, 102: 6.0, 103: 4.0})
    assert sorted(t.to for t in asked) == USERS
    # Who is new is like the mean of the others: (10 + 30) / 2 = 20; and isn't asked.
    each, asked = scaled({101: 10.0, 103: 30.0}, {101: 1.0, 103: 1.0})
    assert each == pytest.approx({101: 12.0, 102: 6.0, 103: 4.0})
    assert sorted(t.to for t in asked) == [101, 103]
    # With nobody to compare with, nobody is asked.
    each, asked = scaled({101: 10.0}, {})
    assert each == dict.fromkeys(USERS, 6.0)
    assert not any(isinstance(t.job, Gauge) for t in asked)
    each, asked = scaled({101: 10.0, 103: 30.0}, {}, adaptive=False)
    assert each == dict.fromkeys(USERS, 6.0)


def test_alpha_comes_from_the_first_round():
    cloud = published(JOB, users=3).cloud
    ctx = Desk(NETS, children=[3, 101, 102], me=ME, here=ME)  # 3 is a device
    m, commands = cloud.plan(cloud.start(ctx), None, ctx)
    assert all("alpha" not in t.send for t in tasks(commands))
    levels = {3: {}, 101: {"level": 4.0}, 102: {"level": 8.0}}
    replies = [replace(answer(t, 1.0, **levels[t.to]), spent=Spent(7.0)) for t in tasks(commands)]
    m, _ = cloud.merge(m, None, closed(replies), ctx)
    assert (m.alpha, m.took, m.round) == (6.0, {101: 7.0, 102: 7.0}, 1)
    m, _ = cloud.merge(replace(m, open={None: Round("train", asking={101: 2.0})}), None, closed(replies), ctx)
    assert (m.alpha, m.took) == (6.0, {101: 9.0, 102: 7.0})  # alpha stays; asking counts
    # Users in balance, or without rows, have no say.
    silent = [answer(t, level=0.0) for t in tasks(commands) if t.to != 3]
    assert cloud.merge(cloud.start(ctx), None, closed(silent), ctx)[0].alpha is None


def worked(alpha, planner=Search()):
    """A hub's moves in the two-device example: 40 rows of one class each, .01 and .03 s a row."""
    hub = published(JOB, planner=planner).at("user")
    task = Task(ME, JOB, {"params": numbers()} | ({} if alpha is None else {"alpha": alpha}))
    ctx = at_hub(owed=task)
    m = hub.adopt(hub.start(ctx), task, ctx)
    m, commands = hub.plan(m, None, ctx)
    pace = {0: ((40, 0), 0.01), 1: ((0, 40), 0.03)}
    replies = [said(t, *pace[t.to], 1e6, 2e6) for t in tasks(commands)]
    m, _ = hub.merge(m, None, closed(replies), ctx)
    m, (solve,) = hub.plan(m, None, ctx)
    assert solve.to == ctx.here
    here = local([], [], solve.send)
    cost = solve.job.cost(here)
    m, remarks = hub.merge(m, None, closed([Reply(solve, solve.job.run(here).body, 1.0, {}, Spent())]), ctx)
    _, commands = hub.plan(m, None, ctx)
    moves = {(c.src, c.dst): c.take for c in commands if isinstance(c, Move)}
    return moves, [t.to for t in tasks(commands)], dict(notes(remarks)), cost, m


def test_moves_of_the_two_device_example():
    moves, trained, remarks, cost, _ = worked(5.0)
    assert moves == {(0, 1): ((0, 8),), (1, 0): ((1, 28),)}
    assert trained == [0, 1]
    assert remarks["objective_before"] == pytest.approx(5.878808, abs=1e-6)
    assert remarks["objective_after"] == pytest.approx(2.257297, abs=1e-6)
    assert cost.seconds > 0
    assert worked(1.0)[0] == {(0, 1): ((0, 3),), (1, 0): ((1, 23),)}
    assert worked(20.0)[0] == {(0, 1): ((0, 10),), (1, 0): ((1, 30),)}


def test_beta_changes_what_moves():
    took = {101: 20.0, 102: 20.0, 103: 20.0}
    plain, _ = scaled(took, dict.fromkeys(USERS, 1.0), alpha=5.0)
    assert plain[101] == 5.0
    # The others now take 30 times as long: h~ = 20, 600, 600, mean 1220/3; alpha 5 * 20.33 and 5 * .678.
    after, _ = scaled(took, {101: 1.0, 102: 30.0, 103: 30.0}, alpha=5.0)
    assert after[101] == pytest.approx(5 * 1220 / 60)
    assert after[102] == pytest.approx(5 * 1220 / 1800)
    rows = {alpha: sum(n for take in worked(alpha)[0].values() for _, n in take) for alpha in after.values()}
    assert rows[after[101]] == 40 > 36 > rows[after[102]]  # fast: balance at any price; slow: spare the links


def test_without_an_alpha_a_hub_takes_its_own():
    *_, m = worked(None)
    # Identity: 3.6 s at the slower device, .2157616 nats.
    assert m.level == pytest.approx(3.6 / 0.2157616, rel=1e-6)
    hub, task = published(JOB).at("user"), Task(ME, JOB, {"params": numbers()})
    body, *_ = hub.report(replace(m, doing="done"), task, at_hub())
    assert body["level"] == m.level
    assert "level" not in hub.report(replace(m, doing="done", alpha=1.0), task, at_hub())[0]


# ------------------------------------------------------------------------------------------- what goes wrong


def test_a_move_that_is_lost_is_noted_and_does_not_count():
    *_, m = worked(5.0)
    hub, ctx = published(JOB).at("user"), at_hub(owed=Task(ME, JOB, {"params": numbers()}))
    lost = Lost(m.moves[0], "gone")
    replies = [answer(Task(n, JOB, {}), 1.0, weight=w) for n, w in ((0, 68.0), (1, 12.0))]
    m, commands = hub.merge(m, None, closed(replies, [lost]), ctx)
    assert notes(commands)[-2:] == [("rows_moved", 28), ("not moved", "gone")]
    assert (m.past.rows, m.past.went, m.weight, m.found) == (80, 28, 80.0, {})
    assert float(m.told["delta"]["w"]) == pytest.approx(1.0)


def test_a_hub_nobody_answers_goes_on():
    rule = Rounds(published(JOB).at("user"))
    s, _ = rule.init(at_hub())
    task = Task(ME, JOB, {"params": numbers(1.0)}, id=("up", 1, 0))
    s, commands = rule.receive(s, task, at_hub())
    for t in tasks(commands):
        s, commands = rule.receive(s, Lost(t, "gone"), at_hub())
    (said,) = [c for c in commands if isinstance(c, Answer)]
    assert (said.weight, said.body["level"], float(said.body["delta"]["w"])) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"users": 0}, "users = 0"),
        ({"alpha": -1.0}, r"alpha = -1\.0"),
        ({"gamma": 0.0}, r"gamma = 0\.0"),
        ({"gamma": 1.5}, r"gamma = 1\.5"),
        ({"gateway": "pi5"}, "gateway = 'pi5'.*pi4"),
        ({"planner": "serch"}, "planner.kind = 'serch'.*Search"),
    ],
)
def test_wrong_parameters_are_named(wrong, named):
    with pytest.raises(ConfigError, match=named):
        algorithms.make("shufflefl", LOCAL, **wrong)


def test_what_it_can_not_run_with():
    for local_, named in (
        (replace(LOCAL, steps=3), r"train\.steps = 3"),
        (replace(LOCAL, privacy=Private(1.0, 1.0)), r"train\.privacy"),
        (replace(LOCAL, epochs=0), r"train\.epochs = 0"),
    ):
        with pytest.raises(ConfigError, match=named):
            published(local_)
        assert published(local_, shuffle=False)
    for local_, named in (
        (replace(LOCAL, steps=3), r"cap = false"),
        (replace(LOCAL, epochs=0), r"cap = false"),
    ):
        with pytest.raises(ConfigError, match=named):
            shufflefl(local_, shuffle=False)
    with pytest.raises(ConfigError, match=r"fleet\.users"):
        finished(small(), published(LOCAL))
    with pytest.raises(ConfigError, match=r"gamma = 0\.5: .*data\.server"):
        finished(small(users=5), published(LOCAL, gamma=0.5))
    idle = said(Task(0, Gauge(SPEC), {"ballast": bytes(9)}), (1, 1), 0.0, 1e6, 1e6)
    hub, task = published(JOB).at("user"), Task(ME, JOB, {"params": numbers()})
    ctx = at_hub(owed=task)
    with pytest.raises(ConfigError, match="compute = "):
        hub.merge(hub.adopt(hub.start(ctx), task, ctx), None, closed([idle]), ctx)
    halted = replace(idle, spent=Spent(np.inf, 0.1, 0.1))
    with pytest.raises(ConfigError, match="down = "):
        hub.merge(hub.adopt(hub.start(ctx), task, ctx), None, closed([halted]), ctx)


# ---------------------------------------------------------------------------------------------------- runs


class Spy:
    """An algorithm whose commands are listed, and what came back."""

    def __init__(self, inner, listed):
        self.inner, self.listed, self.tiers = inner, listed, getattr(inner, "tiers", ())

    def at(self, tier):
        return Spy(as_algorithm(self.inner.at(tier)), self.listed)

    def receive(self, s, e, ctx):
        s, commands = self.inner.receive(s, e, ctx)
        self.listed += [(ctx.me, c) for c in (e, *commands)]
        return s, commands

    def init(self, ctx):
        s, commands = self.inner.init(ctx)
        self.listed += [(ctx.me, c) for c in commands]
        return s, commands

    def __getattr__(self, name):
        return getattr(self.inner, name)


def holdings(sim):
    """Rows by user, sorted; a device that belongs to nobody is a user of its own."""
    found = {}
    for node, user in enumerate(sim.federation.fleet.user):
        found.setdefault(("user", int(user)) if user >= 0 else node, []).append(sim.devices.rows(node))
    return {whose: np.sort(np.concatenate(rows)).tolist() for whose, rows in found.items()}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("make", [published, shufflefl])
def test_rows_only_change_hands_whatever_is_lost_and_resumed(make, seed):
    there = [[(t, t + 1.5) for t in np.arange(0, 90, 2.0)] if i % 2 else [(0.0, np.inf)] for i in range(10)]
    where = small(users=4, compute=4e5, availability=Intervals.of(there))
    where = replace(where, fleet=replace(where.fleet, jitter=Jitter(3, every=1.0, compute=0.3)))
    rule, settings = make(LOCAL, users=4), {"stop": StopAt(rounds=4), "seed": seed}
    sim = simulate(where, rule, **settings)
    sim.start()
    first, homes = holdings(sim), {n: set(sim.devices.rows(n).tolist()) for n in range(10)}
    steps = 0
    while True:
        # As a new process would find it, before every event.
        fresh = simulate(where, rule, **settings)
        fresh.logs.kept = KeptRecords(sim.logs.kept)
        fresh.restore(codec.decode(codec.encode(sim.make_state())))
        sim.close()
        sim, steps = fresh, steps + 1
        assert holdings(sim) == first
        if not sim.step():
            break
    sim.close()
    assert steps > 50
    assert values(sim, "not moved")  # some were lost on the way,
    assert any(set(sim.devices.rows(n).tolist()) != homes[n] for n in range(10))  # others weren't
    straight = finished(where, rule, **settings)
    assert torch.equal(weights(straight), weights(sim))
    assert holdings(straight) == first


def test_spoilt_rows_that_move_never_reach_the_model():
    where = small(users=5, compute=4e5)
    x = where.pool.x.clone()
    x[torch.tensor(where.partition.rows(0, "train"))] = float("nan")
    sim = finished(replace(where, pool=replace(where.pool, x=x)), published(LOCAL), rounds=4)
    assert sim.accounts.lost["bad"] >= 4  # every round those who hold them
    assert torch.isfinite(weights(sim)).all()
    assert sum(values(sim, "rows_moved")) > 0


def test_betas_follow_the_devices():
    where = small(users=4, compute=4e5)
    where = replace(where, fleet=replace(where.fleet, jitter=Jitter(3, every=1.0, rates=0.3, compute=0.5)))
    betas = values(finished(where, published(LOCAL), rounds=3), "beta")
    assert len(betas) == 2 * 4
    assert min(betas) < 0.9 < 1.1 < max(betas)


def one_user():
    return small(users=1, compute=4e5)


def test_planning_takes_the_gateway_s_time():
    classes, devices = 4, len(SIZES)
    fixed = {"planner": Slsqp("smooth", most=3), "alpha": 1.0}
    slow, fast = (
        finished(one_user(), published(LOCAL, gateway=g, **fixed), rounds=1) for g in ("nano-2", "pi4")
    )
    charged = [slsqp_seconds(g, devices, classes) for g in ("nano-2", "pi4")]
    assert [values(sim, "planning_seconds") for sim in (slow, fast)] == [[charged[0]], [charged[1]]]
    assert slow.now - fast.now == pytest.approx(charged[0] - charged[1])
    assert charged[0] > charged[1] > 0
    # Other planners: steps times what one takes.
    counts = np.array([[40, 0], [0, 40]])
    paces = np.array([0.01, 0.03]), (np.full(2, 1e6), np.full(2, 2e6))
    sent = pose_question(counts, *paces, 1000, 1, 5.0, True, None)
    for planner in (Search(), Fill()):
        found = planner.solve(sent["problem"], 0)
        cost = Solve(planner, "tx2-1").cost(local([], [], sent))
        assert cost.seconds == pytest.approx(found.steps * step_seconds("tx2-1"))


def test_moves_are_paid_for_at_both_ends():
    listed, where = [], one_user()
    sim = finished(where, Spy(published(LOCAL), listed), rounds=1)
    moves = [c for _, c in listed if isinstance(c, Move)]
    replies = [c for _, c in listed if isinstance(c, Reply) and c.task.to < len(SIZES)]
    rows = [sum(n for _, n in move.take) for move in moves]
    assert sum(rows) == values(sim, "rows_moved")[0] > 0
    size, true = where.row_bytes(), where.fleet.true
    took = sum(
        true.latency[c.src]
        + 8 * size * n / true.up[c.src]
        + true.latency[c.dst]
        + 8 * size * n / true.down[c.dst]
        for c, n in zip(moves, rows, strict=True)
    )
    assert sim.accounts.seconds == pytest.approx(sum(r.spent.total for r in replies) + 2 * took)
    assert sim.accounts.up["device"] == sum(nbytes(r.body) for r in replies) + size * sum(rows)
    # Training waited for the moves: nobody trained on rows that it didn't have yet.
    weights_of = {r.task.to: r.weight for r in replies if isinstance(r.task.job, Train)}
    assert weights_of == {n: float(len(sim.devices.rows(n))) for n in weights_of}


def test_without_moves_it_is_hierfl():
    where = small(users=4, compute=4e5)
    where = replace(where, fleet=replace(where.fleet, edge=where.fleet.user))
    plain = finished(where, published(LOCAL, shuffle=False), rounds=4)
    edges = finished(where, algorithms.make("hierfl", LOCAL), rounds=4)
    assert torch.equal(weights(plain), weights(edges))
    assert not plain.devices.holdings.moved.rows
    assert plain.now == pytest.approx(edges.now)
    assert not torch.equal(weights(plain), weights(finished(where, published(LOCAL), rounds=4)))


def test_devices_without_a_user_train_as_in_fedavg():
    where, listed = small(users=3, compute=4e5), []
    user = where.fleet.user.copy()
    user[[2, 7, 9]] = -1
    _, user[user >= 0] = np.unique(user[user >= 0], return_inverse=True)
    where = replace(where, fleet=replace(where.fleet, user=user))
    sim = finished(where, Spy(published(LOCAL), listed), rounds=3)
    asked = Counter((c.to, type(c.job).__name__) for me, c in listed if isinstance(c, Task) and me != c.to)
    for lone in (2, 7, 9):
        assert asked[lone, "Train"] == 3
        assert asked[lone, "Gauge"] == 0
        assert lone not in sim.devices.holdings.moved.rows
        told = [c.send for _, c in listed if isinstance(c, Task) and c.to == lone]
        assert all(set(send) == {"params"} for send in told)
    assert sim.accounts.took_part[[2, 7, 9]].all()
    assert values(sim, "beta")
    assert sim.round == 3


def test_merged_classes():
    where = small(users=4, compute=4e5, data=reserve_rows(pool(), 0.2, 1))
    listed = []
    sim = finished(where, Spy(published(LOCAL, gamma=0.5), listed), rounds=2)
    groups = {
        tuple(c.send["groups"].tolist())
        for me, c in listed
        if isinstance(c, Task) and "params" in c.send and "groups" in c.send
    }
    (found,) = groups
    assert sorted(set(found)) == [0, 1]  # half of four classes
    solves = [c for me, c in listed if isinstance(c, Task) and isinstance(c.job, Solve)]
    assert {c.send["problem"].classes for c in solves} == {2}
    assert sum(values(sim, "rows_moved")) > 0
    assert not values(sim, "not moved")  # what is drawn within a group is there
    assert sum(isinstance(c.job, Group) for me, c in listed if isinstance(c, Task) and me == sim.root) == 1
    again, _ = chained(where, published(LOCAL, gamma=0.5), stop=StopAt(rounds=2), plan=LOOP)
    assert torch.equal(weights(again), weights(sim))


def test_merged_classes_that_the_server_has_not_seen():
    """Of four classes the server has rows of 1 and 3: a group each, and 0 and 2 join them in this order."""
    where = small(users=4, compute=4e5, data=reserve_rows(pool(), 0.2, 1))

    def having(*labels):
        seen = where.pool.server & np.isin(where.pool.y.numpy(), labels)
        return replace(where, pool=replace(where.pool, server=seen))

    listed = []
    sim = finished(having(1, 3), Spy(published(LOCAL, gamma=0.5), listed), rounds=2)
    (found,) = {
        tuple(c.send["groups"].tolist())
        for _, c in listed
        if isinstance(c, Task) and c.send.get("groups") is not None
    }
    assert found == (0, 0, 1, 1)
    assert sum(values(sim, "rows_moved")) > 0
    assert not values(sim, "not moved")
    with pytest.raises(ConfigError, match=r"gamma = 0\.5: .*\[2\] alone.*raise data\.server"):
        finished(having(2), published(LOCAL, gamma=0.5), rounds=1)


def test_it_balances_and_learns():
    data = pool(1200)
    sizes, labels = (40, 20, 30, 10, 40, 20, 30, 10), data.y.numpy()[data.free]
    held = [data.free[labels == n % 4][n // 4 * 60 :][: size + 4] for n, size in enumerate(sizes)]
    cells = np.array([[n, 1, 3] for n in sizes]).reshape(-1)
    sorted_rows = StoredPartition(
        np.concatenate(held), np.concatenate([[0], np.cumsum(cells)])
    )  # one class each
    where = replace(small(sizes, data=data, users=2, compute=4e5), partition=sorted_rows)
    before = finished(where, published(LOCAL, shuffle=False), rounds=1)
    sim = finished(where, published(LOCAL), rounds=6)

    def classes(sim):
        held = [data.y[torch.tensor(sim.devices.rows(n))] for n in range(len(sizes))]
        return np.mean([len(set(y.tolist())) for y in held])

    assert classes(sim) > classes(before)
    worths = [values(sim, f"objective_{when}") for when in ("before", "after")]
    assert all(b >= a for b, a in zip(*worths, strict=True))
    assert sum(worths[1][:2]) < 0.8 * sum(worths[0][:2])
    assert sum(values(sim, "rows_moved")[:2]) > sum(values(sim, "rows_moved")[-2:])  # most in the first round
    assert sim.accuracy > before.accuracy


def test_rounds_leave_no_rings_of_references():
    """A run seldom looks for them (`tune_process`), so that they would stay for thousands of rounds."""
    sim = simulate(small(users=5, compute=4e5), published(LOCAL, users=5), rounds=9)
    sim.start()
    while sim.round < 2:
        sim.step()
    gc.collect()
    gc.disable()
    try:
        while sim.round < 8:
            sim.step()
        assert gc.collect() < 50  # once 80 a round
    finally:
        gc.enable()
        sim.close()
