"""ShuffleFL's work cap: what a user needs, whom the limit holds, and what a capped device weighs."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from federations import LOCAL, finished, pool, small, values
from support import SPEC, Desk, answer, cancelled, local, notes, numbers, tasks
from test_shufflefl import CLOUD, NETS, USERS, Spy, closed, said

from potluck import algorithms
from potluck.algorithms.shufflefl.algorithm import shufflefl
from potluck.algorithms.shufflefl.cap import (
    Course,
    cap_job,
    count_spared,
    expect_seconds,
    find_limit,
    follow_moves,
)
from potluck.algorithms.shufflefl.device import DeviceGauge, Gauge
from potluck.algorithms.shufflefl.gateway import Group, Solve
from potluck.algorithms.shufflefl.own import Own
from potluck.core.errors import ConfigError
from potluck.core.messages import Answer, Move, Reply, Spent, Task, Until, Wake
from potluck.core.trees import nbytes
from potluck.data import reserve_rows
from potluck.fleet import Jitter
from potluck.jobs import InPart, Shuffled, Train
from potluck.jobs.sampling import Asked, count_batches, count_passes
from potluck.rules import Rounds, Uniform

JOB = Train(SPEC, batch=4)


class Last(Uniform):
    """The last ones."""

    def pick(self, picks, count, ctx):
        return ctx.ready([*ctx.children])[-count:], picks


def holding(rows):
    return local(np.arange(rows), np.arange(rows) % 2, {}, seed=5, models=NETS)


# ------------------------------------------------------------------------------------------------- sampling


def test_a_part_of_the_training_weighs_what_was_drawn():
    at = holding(10)  # 3 batches of 4 an epoch, the last of 2
    for batches, passes in ((1, 4), (2, 8), (3, 10), (4, 14), (6, 20), (9, 20)):
        part = InPart(Shuffled(), batches)
        rows = part.draw(at, 4, 2, None)
        assert part.passes(at, 4, 2, None) == passes == rows.weight.sum()
        assert rows.count == passes / 2
        assert rows.count <= part.most(at, 4) == min(10, 4 * batches)
        whole = Shuffled().draw(at, 4, 2, None)
        assert np.array_equal(rows.index, whole.index[: len(rows.index)])  # the same batches, but fewer
        assert np.array_equal(part.draw_all(Asked.alone(part, at, 4, 2, None)).rows(0).index, rows.index)


def test_batches_are_counted_as_passes_are():
    for rows in (1, 4, 7, 10):
        for batches in range(12):
            assert count_batches(count_passes(rows, 4, 9, batches), rows, 4) == batches
    assert count_batches(13, 10, 4) == 3  # an epoch of 3 batches, and 3 rows of the next
    assert count_batches(9, 0, 4) == 2


# ---------------------------------------------------------------------------------------------- what it needs


def test_what_a_user_needs_at_least():
    """t - 1 seconds of one device and t - 2 of the other train on 30 rows: t (10 + 10/3) = 30 + 10 + 20/3."""
    fast, slow = Course(20, 0.0, 0.0, 1.0, 0.1), Course(10, 0.0, 0.0, 2.0, 0.3)
    assert expect_seconds([slow, fast], 1, True) == pytest.approx(3.5)
    assert expect_seconds([slow, fast, Course(0, 0.0, 0.0, 3.6, 0.01)], 1, True) == pytest.approx(3.5)
    assert expect_seconds([slow, fast], 2, True) == pytest.approx(3.5 + 30 / (40 / 3))
    assert expect_seconds([slow, fast], 1, False) == pytest.approx(2 + 10 * 0.3)  # no row moves
    assert expect_seconds([], 1, True) == expect_seconds([Course(0, 0.0, 0.0, 1.0, 0.1)], 1, True) == 0.0
    assert find_limit([10.0, 40.0, 0.0, 20.0]) == 20.0
    assert find_limit([10.0, 0.0]) is None


def test_moves_wait_for_each_other():
    """8,000 bits a row: 1 s up and 0.5 s down, 0.1 s of latency at each end."""
    found = {n: DeviceGauge((10, 10), 1000, 0.01, 8e3, 16e3, 0.1) for n in range(3)}
    moves = [Move(0, 1, ((0, 2),)), Move(2, 1, ((1, 1), (0, 1))), Move(0, 2, ((1, 4),))]
    courses = follow_moves(found, moves, 2000)
    # 2 x 1.5 + 0.2 = 3.2 s; the second move waits for 1 until 3.2; the third for 2 until 6.4, and takes 6.2.
    assert [courses[n].moved for n in range(3)] == pytest.approx([12.6, 6.4, 12.6])
    assert [courses[n].moving for n in range(3)] == pytest.approx([9.4, 6.4, 9.4])
    assert [courses[n].rows for n in range(3)] == [14, 24, 22]
    assert courses[0].link == pytest.approx(2 + 1 + 0.2)
    assert courses[0].row == pytest.approx(0.03)


def test_moves_and_the_models_ways_leave_less():
    course = Course(40, 0.0, 3.0, 2.0, 0.25)  # 40 rows, batches of 4: 1 s each
    for limit, batches in ((5.0, 1), (7.99, 2), (8.0, 3), (15.0, 10), (1e6, 4_000_000), (0.0, 1)):
        job = cap_job(JOB, course, limit)
        at = holding(40)
        assert job.sampler.passes(at, 4, 1, None) == min(40, 4 * batches)
    assert cap_job(JOB, course, None) is JOB


# ------------------------------------------------------------------------------------------------- by hand


def at_hub(owed, **more):
    return Desk(NETS, children=range(1), me=owed.to, here=owed.to, parent=CLOUD, owed=owed, **more)


def test_three_users_of_10_20_and_40_seconds():
    """All train for 20 s: the slow one on half of its rows, for which it weighs half as much."""
    rule = shufflefl(JOB, users=3)
    row = dict(zip(USERS, (0.25, 0.5, 1.0), strict=True))  # seconds of training on one of 40 rows
    pull = dict(zip(USERS, (1.0, 2.0, 4.0), strict=True))  # what its rows make of the model
    desk = Desk(NETS, children=USERS, me=CLOUD, here=CLOUD)
    cloud, states = rule.cloud.start(desk), {n: rule.at("user").start(desk) for n in USERS}
    cloud, commands = rule.cloud.plan(cloud, None, desk)
    told = []
    for task in tasks(commands):
        assert isinstance(task.job, Gauge)
        ctx = at_hub(task)
        m = rule.at("user").adopt(states[task.to], task, ctx)
        m, asked = rule.at("user").plan(m, None, ctx)
        heard = [said(t, (20, 20), row[task.to] / 3, 1e12, 1e12, latency=0.0) for t in tasks(asked)]
        states[task.to], _ = rule.at("user").merge(m, None, closed(heard), ctx)
        body, weight, *_ = rule.at("user").report(states[task.to], task, ctx)
        assert body["least"] == pytest.approx(40 * row[task.to])
        told.append(Reply(task, body, weight, {}, Spent(compute=3.0)))
    cloud, remarks = rule.cloud.merge(cloud, None, closed(told), desk)
    assert not notes(remarks)  # nobody has taken part before: there is no beta
    cloud, commands = rule.cloud.plan(cloud, None, desk.later(busy=set()))
    assert notes(commands) == [("limit", pytest.approx(20.0))]
    told, drawn = [], {}
    for task in tasks(commands):
        ctx = at_hub(task)
        m = rule.at("user").adopt(states[task.to], task, ctx)
        m, asked = rule.at("user").plan(m, None, ctx)
        (own,) = tasks(asked)
        rows = own.job.draw(holding(40))
        drawn[task.to] = (len(rows.weight), rows.count)
        spent = Spent(compute=row[task.to] * float(rows.weight.sum()))
        heard = replace(answer(own, pull[task.to], weight=rows.count), spent=spent)
        m, remarks = rule.at("user").merge(m, None, closed([heard]), ctx)
        assert ("trained", rows.count / 40) in notes(remarks)
        body, weight, *_ = rule.at("user").report(m, task, ctx)
        assert weight == rows.count
        told.append(Reply(task, body, weight, {}, spent))
    assert drawn == {101: (10, 40.0), 102: (10, 40.0), 103: (5, 20.0)}
    cloud, _ = rule.cloud.merge(cloud, None, closed(told), desk)
    # (40 x 1 + 40 x 2 + 20 x 4) / 100
    assert float(cloud.inner.params["w"]) == pytest.approx(2.0)
    # What they would have taken without a limit, and 3 s of asking: the slow one isn't fast by its cap.
    assert cloud.took == pytest.approx({101: 13.0, 102: 23.0, 103: 43.0})


def test_what_a_limit_spares_is_known():
    task = Task(0, JOB, {})
    courses = {0: Course(40, 2.0, 3.0, 1.0, 0.5), 1: Course(10, 0.0, 0.0, 1.0, 0.5)}
    capped = Reply(task, {}, 10.0, {}, Spent(0.5, 5.0, 0.5))  # a quarter: 15 s more; ends at 9
    other = Reply(replace(task, to=1), {}, 10.0, {}, Spent(0.5, 11.0, 0.5))  # ends at 12
    assert count_spared(courses, [capped]) == pytest.approx(15.0)
    assert count_spared(courses, [capped, other]) == pytest.approx(24.0 - 12.0)
    assert count_spared(courses, [other]) == count_spared(courses, []) == 0.0


def test_who_planned_for_long_may_train_as_long():
    hub, task = shufflefl(JOB).at("user"), Task(101, JOB, {"params": numbers(), "limit": 5.5})
    ctx = at_hub(task)
    m = hub.adopt(hub.start(ctx), task, ctx)
    m, asked = hub.plan(m, None, ctx)
    heard = [said(t, (20, 20), 0.25 / 3, 1e12, 1e12, latency=0.0) for t in tasks(asked)]
    m, _ = hub.merge(m, None, closed(heard), ctx)
    for now, batches in ((4.0, 5), (7.5, 7)):
        (own,) = tasks(hub.plan(m, None, replace(ctx, now=now))[1])
        assert own.job.sampler.batches == batches


# ---------------------------------------------------------------------------------------------------- runs


def crowd():
    where = small(users=4, compute=4e7)  # training takes long, planning doesn't
    return replace(where, fleet=replace(where.fleet, jitter=Jitter(3, every=1.0, rates=0.3, compute=0.5)))


def test_rounds_are_shorter_and_everybody_is_heard():
    plain = finished(crowd(), shufflefl(LOCAL, users=4, cap=False), rounds=4)
    for how in ({}, {"shuffle": False}):
        sim = finished(crowd(), shufflefl(LOCAL, users=4, **how), rounds=4)
        trained = values(sim, "trained")
        assert len(trained) == 4 * 4
        assert min(trained) < 0.8 < max(trained) <= 1
        assert len(values(sim, "limit")) == 4
        assert bool(how) or sim.now < 0.8 * plain.now


def test_devices_without_a_user_are_capped_by_their_claims():
    where, listed = small(users=3, compute=4e7), []
    user = where.fleet.user.copy()
    user[[2, 7, 9]] = -1
    _, user[user >= 0] = np.unique(user[user >= 0], return_inverse=True)
    where = replace(where, fleet=replace(where.fleet, user=user))
    sim = finished(where, Spy(shufflefl(LOCAL), listed), rounds=2)
    asked = [c for _, c in listed if isinstance(c, Task) and c.to in (2, 7, 9)]
    assert Counter(c.to for c in asked) == {2: 2, 7: 2, 9: 2}
    heard = [c for _, c in listed if isinstance(c, Reply) and c.task.to in (2, 7, 9)]
    limits = values(sim, "limit")
    for reply, limit in zip(heard, np.repeat(limits, 3), strict=True):
        rows, batches = len(sim.devices.rows(reply.task.to)), reply.task.job.sampler.batches
        passes = reply.weight * LOCAL.epochs
        assert passes == count_passes(rows, LOCAL.batch, LOCAL.epochs, min(batches, 10**6)) or passes == rows
        assert reply.spent.total <= limit or batches == 1


def test_where_a_users_time_goes():
    listed = []
    sim = finished(small(users=1, compute=4e5), Spy(shufflefl(LOCAL), listed), rounds=1)
    kinds = ("computing_seconds", "communication_seconds", "planning_seconds", "waiting_seconds")
    parts = [values(sim, kind) for kind in kinds]
    (heard,) = [c for me, c in listed if isinstance(c, Reply) and me == sim.root and c.task.to > sim.root]
    assert sum(sum(part) for part in parts) == pytest.approx(heard.spent.compute)
    assert all(part[0] > 0 for part in parts)
    assert nbytes(heard.body) > 0


# ------------------------------------------------------------------------------------------------ a deadline


def test_at_a_deadline_a_hub_answers_with_who_is_done():
    rule = Rounds(shufflefl(JOB, cap=False, shuffle=False).at("user"))
    ctx = Desk(NETS, children=range(2), me=101, here=101, parent=CLOUD, now=5.0)
    s, _ = rule.init(ctx)
    asked = Task(101, JOB, {"params": numbers(), "deadline": 8.0}, id=("up", 1, 0))
    s, commands = rule.receive(s, asked, ctx)
    alarm = next(c for c in commands if isinstance(c, Wake))
    assert alarm.at == 13.0
    first, second = tasks(commands)
    s, commands = rule.receive(s, answer(first, 3.0, weight=20.0), ctx.later(now=12.0))
    assert not commands
    s, commands = rule.receive(s, alarm, ctx.later(now=13.0, busy=set()))
    assert cancelled(commands) == [second.id]
    (told,) = [c for c in commands if isinstance(c, Answer)]
    assert told.weight == 20.0
    assert float(told.body["delta"]["w"]) == 3.0


def test_a_device_trains_what_fits_before_the_deadline():
    """8 s of 10 are left when training begins, the limit is 15 s: not quite 8 batches of 1 s."""
    hub = shufflefl(JOB).at("user")
    task = Task(101, JOB, {"params": numbers(), "limit": 15.0, "deadline": 10.0})
    ctx = at_hub(task)
    m = hub.adopt(hub.start(ctx), task, ctx)
    m, asked = hub.plan(m, None, ctx)
    assert Until(10.0) in asked
    heard = [said(t, (20, 20), 0.25 / 3, 1e12, 1e12, latency=0.0) for t in tasks(asked)]
    m, _ = hub.merge(m, None, closed(heard), ctx)
    _, commands = hub.plan(m, None, replace(ctx, now=2.0))
    assert Until(8.0) in commands
    assert tasks(commands)[0].job.sampler.batches == 7
    assert hub.adopt(m, Task(101, Gauge(SPEC), {}), ctx).until is None  # asked anew


@pytest.mark.parametrize("cap", [False, True])
def test_no_round_is_longer_than_the_deadline(cap):
    plain = finished(crowd(), shufflefl(LOCAL, users=4, cap=cap), rounds=3)
    seconds = 0.7 * plain.now / 3
    sim = finished(crowd(), shufflefl(LOCAL, users=4, cap=cap, deadline=seconds), rounds=3)
    assert sim.now <= 3 * seconds * (1 + 1e-9)
    assert sim.accounts.took_part.any()
    assert cap or sim.accounts.lost["late"] > 0


# ------------------------------------------------------------------------------------------- user by user


def test_users_have_gateways_and_merged_classes_of_their_own():
    """Half of four classes for the first and the third of three users, planned on a Nano: two groups."""
    where = small(users=3, compute=4e5, data=reserve_rows(pool(), 0.2, 1))
    rule = shufflefl(LOCAL, users=3, gateway=["nano-1", "pi4"], gamma=[0.5, 1.0])
    listed = []
    sim = finished(where, Spy(rule, listed), rounds=1)
    solves = {me - sim.root - 1: c for me, c in listed if isinstance(c, Task) and isinstance(c.job, Solve)}
    assert {place: c.job.gateway for place, c in solves.items()} == {0: "nano-1", 1: "pi4", 2: "nano-1"}
    assert {place: c.send["problem"].classes for place, c in solves.items()} == {0: 2, 1: 4, 2: 2}
    assert sum(isinstance(c, Task) and isinstance(c.job, Group) for _, c in listed) == 1
    for each in (0.5, 0.75):
        own = Own(("pi4",), (0.5, 0.75))
        groups = {0.5: np.array([0, 0, 1, 1]), 0.75: np.array([0, 1, 2, 2])}
        at = Desk(NETS, children=[3, 101, 102], me=CLOUD, here=CLOUD)
        told = own.choose(101 if each == 0.5 else 102, groups, at)
        assert set(told) == {"groups"}
        assert told["groups"] is groups[each]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"select": "Oort"}, "select = 'Oort'.*work of its own.*Uniform"),
        ({"select": "Flame"}, "select = 'Flame'"),
        ({"select": "Pyramid"}, "select = 'Pyramid'"),
        ({"gateway": []}, "gateway = "),
        ({"gateway": ["pi4", "pi5"]}, "gateway = 'pi5'"),
        ({"gamma": [0.5, 2.0]}, r"gamma = 2\.0"),
        ({"deadline": 0.0}, "deadline = 0"),
    ],
)
def test_wrong_parameters_are_named(wrong, named):
    with pytest.raises(ConfigError, match=named):
        algorithms.make("shufflefl", LOCAL, **wrong)


def test_who_takes_part_may_be_chosen_otherwise():
    rule = shufflefl(JOB, users=2, select=Last())
    ctx = Desk(NETS, children=USERS, me=CLOUD, here=CLOUD)
    m, commands = rule.cloud.plan(rule.cloud.start(ctx), None, ctx)
    assert [t.to for t in tasks(commands)] == USERS[-2:]
    assert m.inner.picks is None
