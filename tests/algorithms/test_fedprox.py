"""FedProx by hand: under a deadline, what each device has time for, and that it counts."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, pool, small, weights
from support import SPEC, Desk, Line, close, local, numbers, tasks

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedprox import fedprox
from potluck.authoring import SGD, Got, Lost, Prox, Reply, Shuffled, Spent, Train
from potluck.core import codec
from potluck.data import StoredPartition
from potluck.federation import Federation
from potluck.fleet import Profiles
from potluck.jobs.sampling import Asked, AtMost
from potluck.models import Models

JOB = Train(SPEC, optim=SGD(0.1), batch=4, epochs=2)
ROW = 1000 * 416_520 / 6  # ms a sample of the reference model: a row of a Line, 3 x 2 operations, takes 1 s
SECONDS = (1.0, 5.0, 20.0)  # a row, of devices 0, 1, 2


@dataclass
class Shop(Desk):
    """A desk at which devices claim their seconds a row, and a second each way for a Line's 16 bytes."""

    children: object = range(3)
    seconds: tuple = SECONDS
    memory: float = 1e9

    def profiles(self, nodes):
        ones = np.ones(len(nodes))
        ms = np.array([self.seconds[n] * ROW for n in nodes])
        return SimpleNamespace(
            compute=ms, up=128 * ones, down=128 * ones, latency=0 * ones, memory=self.memory * ones
        )


def shop(**more):
    return Shop(models={SPEC: Line(w=1.0)}, **more)


def asked(commands):
    """Batches that each device is asked for at most."""
    return {t.to: t.job.sampler.batches for t in sorted(tasks(commands), key=lambda t: t.to)}


def done(task, seconds, rows=10.0, w=0.0, link=2.0):
    """A reply after training that took so long."""
    return Reply(task, {"delta": numbers(w)}, rows, {}, Spent(link / 2, seconds, link / 2))


# --------------------------------------------------------------------------------------------------- formulas


def test_each_device_is_asked_for_what_it_has_time_for_and_all_count():
    rule, ctx = fedprox(JOB, clients=3, mu=0.2, deadline=100.0), shop()
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    # 2 s for the link leave 98: 97 rows of 1 s, 19 of 5 s and 4 of 20 s end before the deadline.
    assert asked(commands) == {0: 24, 1: 4, 2: 1}
    # With 10 rows and 2 epochs of 3 batches (4, 4, 2): all 6; four of them; one.
    places = {t.to: local(np.zeros(10), np.zeros(10), t.send) for t in tasks(commands)}
    jobs = {t.to: t.job for t in tasks(commands)}
    assert [len(jobs[n].draw(places[n]).index) for n in range(3)] == [6, 4, 1]
    assert [jobs[n].cost(places[n]).ops / 6 for n in range(3)] == [20, 4 + 4 + 2 + 4, 4]
    assert all(job.objective == Prox(0.2) for job in jobs.values())
    # They weigh by their rows, however little they did: (10 x 0.3 + 10 x 0.6 + 20 x 0.9) / 40 = 0.675.
    replies = [
        done(t, 1.0, rows=20.0 if t.to == 2 else 10.0, w=0.3 * (t.to + 1))
        for t in sorted(tasks(commands), key=lambda t: t.to)
    ]
    m, _ = rule.merge(m, None, Got(replies, []), ctx)
    assert close(m.params, numbers(1.675))


def test_a_device_with_less_memory_has_time_for_less():
    # To train a Line by plain SGD takes 3 x 16 = 48 bytes; with 24, rows take 1 + 19 x 0.5 = 10.5 s.
    ctx = shop(memory=24.0, seconds=(1.0, 1.0, 1.0))
    rule = fedprox(JOB, clients=3, deadline=100.0)
    _, commands = rule.plan(rule.start(ctx), None, ctx)
    assert set(asked(commands).values()) == {2}  # 98 / 10.5 = 9.3: 9 rows, 2 batches of 4


def test_what_a_task_took_is_learnt():
    rule, ctx = fedprox(JOB, clients=3, deadline=100.0), shop()
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    by = {t.to: t for t in tasks(commands)}
    # 0 did all 20 rows in 120 s (it may, here): 6 s a row, not 1. 1 did 14 rows in 70 s, as it had claimed.
    # 2 did 4 rows in 8 s: 2 s a row, not 20, so half-way down, 11; with a link of 12 s, not 2.
    replies = [done(by[0], 120.0), done(by[1], 70.0), done(by[2], 8.0, link=12.0)]
    m, _ = rule.merge(m, None, Got(replies, []), ctx)
    paces = m.picks.paces
    assert [(p.link, p.row, p.rows) for p in (paces[0], paces[1], paces[2])] == [
        (2.0, 6.0, 10),
        (2.0, 5.0, 10),
        (12.0, 11.0, 10),
    ]
    _, commands = rule.plan(m, None, ctx.later(busy=set()))
    # 0: 16 rows, an epoch of 3 batches and one of 4 rows. 1: 19 rows, an epoch and two batches: now that its
    # rows are known, the third batch is known to have only 2. 2: 88 / 11 = 8 ends with the deadline, so 7.
    assert asked(commands) == {0: 4, 1: 5, 2: 1}


def test_who_is_late_is_asked_for_half_as_much():
    rule, ctx = fedprox(JOB, clients=3, deadline=100.0), shop(seconds=(1.0, 3.0, 30.0))
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    assert asked(commands) == {0: 24, 1: 8, 2: 1}  # 97, 32 and 3 rows
    by = {t.to: t for t in tasks(commands)}
    got = Got([done(by[0], 20.0)], [Lost(by[1], "late"), Lost(by[2], "late")])
    early, _ = rule.merge(m, None, got, ctx.later(now=60.0))  # enough others were faster: nothing is known
    assert early.picks.paces == m.picks.paces | {0: early.picks.paces[0]}
    m, _ = rule.merge(m, None, got, ctx.later(now=100.0))
    assert [m.picks.paces[n].row for n in range(3)] == [1.0, 6.0, 30.0]  # less than a batch can't be asked
    m, commands = rule.plan(m, None, ctx.later(now=100.0, busy=set()))
    assert asked(commands) == {0: 27 + 1, 1: 4, 2: 1}  # 0: 97 rows of 10 are 9 epochs of 3, and a batch
    gone = Got([], [Lost(t, "gone") for t in tasks(commands)])
    after, _ = rule.merge(m, None, gone, ctx.later(now=200.0))
    assert after.picks.paces == m.picks.paces  # who left wasn't slow


def test_a_device_without_rows_teaches_its_link_alone():
    rule, ctx = fedprox(JOB, clients=1, deadline=100.0), shop(children=range(1))
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    m, _ = rule.merge(m, None, Got([done(tasks(commands)[0], 0.0, rows=0.0, link=8.0)], []), ctx)
    pace = m.picks.paces[0]
    assert (pace.link, pace.row, pace.rows) == (8.0, 1.0, 0)


def test_without_a_deadline_nothing_is_planned():
    rule, ctx = fedprox(JOB, clients=3, mu=0.2), shop()
    assert rule == FedAvg(3, replace(JOB, objective=Prox(0.2)))
    _, commands = rule.plan(rule.start(ctx), None, ctx)
    assert all(t.job.sampler == Shuffled() for t in tasks(commands))


@pytest.mark.parametrize("batches", [1, 3, 4, 6, 7, 100])
@pytest.mark.parametrize("steps", [None, 5])
@pytest.mark.parametrize("n", [0, 3, 10])
def test_at_most_is_the_beginning_of_the_whole(batches, steps, n):
    at = local(np.zeros(n), np.zeros(n), {}, seed=3)
    whole, part = Shuffled().draw(at, 4, 2, steps), AtMost(Shuffled(), batches).draw(at, 4, 2, steps)
    cut = min(batches, len(whole.index))
    assert np.array_equal(part.index, whole.index[:cut])
    assert np.array_equal(part.weight, whole.weight[:cut])
    assert part.count == whole.count == AtMost(Shuffled(), batches).most(at, 4)
    assert AtMost(Shuffled(), batches).passes(at, 4, 2, steps) == part.weight.sum()
    twice = AtMost(AtMost(Shuffled(), 50), batches)  # within which isn't the usual one
    assert np.array_equal(twice.draw_all(Asked.alone(twice, at, 4, 2, steps)).rows(0).index, part.index)


# ----------------------------------------------------------------------------------------------------- runs


def skewed():
    """Four fast devices with classes 0 to 2 and two with class 3 that take 40 times as long; 40 rows each."""
    data = pool()
    few = small((1,) * 6, data=data)
    label = data.y.numpy()[data.free]
    old, last = data.free[label < 3], data.free[label == 3]
    rows = np.concatenate([old[:176], last[:88]])  # 44 each: 40 to train on, 1 to validate, 3 to test on
    partition = StoredPartition(rows, np.concatenate([[0], np.cumsum([40, 1, 3] * 6)]))
    ones = np.ones(6)
    speeds = Profiles(
        ROW / 40 * np.array([1.0] * 4 + [40.0] * 2), 1e9 * ones, 1e9 * ones, 0.01 * ones, 1e12 * ones
    )
    devices = replace(few.fleet, true=speeds, claimed=speeds)
    return Federation(data, partition, devices, Models(data.shape, data.classes, data.x.dtype))


def know_last(sim):
    """The share of class 3 that the served model knows."""
    data, task = sim.federation.pool, next(iter(sim.serve(sim.root).values()))
    rows = torch.as_tensor(data.y == 3)
    net = sim.federation.models[LOCAL.model]
    return float((net(task.send["params"], data.x[rows]).argmax(-1) == 3).double().mean())


def test_slow_devices_that_alone_hold_a_class_are_heard():
    federation, job = skewed(), replace(LOCAL, epochs=5)
    ops = federation.models[LOCAL.model].ops
    whole = 3 * ops * 200 / 416_520 * ROW / 1000  # seconds that slow devices need for 5 epochs of 40 rows
    limit = 0.3 * whole + 0.1  # fast ones need a fortieth
    sims = {
        name: finished(federation, rule, rounds=12, plan=LOOP)
        for name, rule in (
            ("fedavg", FedAvg(6, job, deadline=limit)),
            ("fedprox", fedprox(job, clients=6, deadline=limit)),
        )
    }
    assert sims["fedavg"].accounts.lost["late"] == 2 * 12
    assert "late" not in sims["fedprox"].accounts.lost
    assert know_last(sims["fedavg"]) == 0.0
    assert know_last(sims["fedprox"]) > 0.6


def test_stacked_devices_do_their_parts_too():
    rule = fedprox(replace(LOCAL, epochs=3), clients=6, deadline=4.0)
    one, other = (finished(small(), rule, rounds=4, plan=how) for how in (LOOP, STACKED))
    assert torch.allclose(weights(one), weights(other), rtol=0, atol=1e-10)


def test_the_plan_survives_a_snapshot():
    rule, ctx = fedprox(JOB, clients=3, deadline=100.0), shop()
    m, _ = rule.plan(rule.start(ctx), None, ctx)
    again = codec.decode(codec.encode(m))
    assert again.picks.paces == m.picks.paces
    assert again.picks.batches == m.picks.batches
