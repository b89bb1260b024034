"""Training that other processes begin before it is due: the same results, whatever happens meanwhile."""

import time
from dataclasses import replace

import pytest
import torch
from federations import LOCAL, LOOP, SIZES, WORKERS, chained, finished, lines, simulate, small, weights

from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedbuff import fedbuff
from potluck.algorithms.moon.device import Moon
from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import PotluckError
from potluck.core.job import Local
from potluck.core.trees import leaves
from potluck.engine.schedule import EvaluateAt
from potluck.execute.plan import ExecutionPlan
from potluck.execute.pool import processes as workers
from potluck.execute.pool.processes import Workers
from potluck.execute.pool.stacks import StackedWorkers
from potluck.execute.reference import Item, train
from potluck.execute.vectorised.executor import Stacked
from potluck.fleet import OnOff
from potluck.jobs import SGD, Correct, CrossEntropy, Objective

pytestmark = pytest.mark.slow

SHARES = ExecutionPlan("stacked", workers=2, chunk=3)


@value
class Fails(Objective):
    """Does what can't be done on one device."""

    def penalty(self, net, params, batch, held):
        time.sleep(0.3)  # others must have begun
        raise KeyError("nothing")


@value
class Slow(Objective):
    """Takes its time."""

    def penalty(self, net, params, batch, held):
        time.sleep(0.5)
        return 0.0


def items(federation, lr, objective=CrossEntropy(), **more):
    job = replace(LOCAL, objective=objective, optim=SGD(lr))
    rows, inbox = federation.partition.rows, {"params": federation.models[job.model].init(7), **more}
    return [
        Item(
            job,
            Local(n, rows(n, "train"), inbox, None, keys.derive(3, n), federation.models, federation.pool),
        )
        for n in range(len(SIZES))
    ]


def same(some, others):
    return all(map(torch.equal, leaves(some), leaves(others)))


@pytest.fixture(params=["workers", "shares"])
def pool(request):
    made = Workers(2) if request.param == "workers" else StackedWorkers(2, Stacked(64))
    yield made
    made.close()


def test_batches_that_are_under_way_together_are_not_mixed_up(pool):
    federation = small()
    batches = [items(federation, 0.05 * k) for k in range(1, 7)]  # the last ones wait for room
    waiting = [pool.begin(batch, ahead=True) for batch in batches]
    between = pool.run(batches[0])  # somebody wants to know something at once
    found = [results() for results in waiting[::-1]][::-1]
    for batch, results in zip(batches, found, strict=True):
        expected = (
            Stacked(64).run(batch) if isinstance(pool, StackedWorkers) else [train(item) for item in batch]
        )
        assert same([r.body for r in results], [r.body for r in expected])
        assert [r.weight for r in results] == [r.weight for r in expected]
    if not isinstance(pool, StackedWorkers):
        assert same([r.body for r in between], [r.body for r in found[0]])
    assert pool.batches == []


def test_answers_are_read_before_their_memory_is_used_again(monkeypatch):
    """Memories of devices come back in memory that a worker's next but one answer uses."""
    heard = workers._Tasks.take_answer
    monkeypatch.setattr(workers._Tasks, "take_answer", lambda *given: (time.sleep(0.05), heard(*given)))
    federation = small()
    todo = items(federation, 0.1, Correct(), control=federation.models[LOCAL.model].init(1))
    pool = Workers(2)
    first = pool.begin(todo[:2])
    time.sleep(0.5)  # both are done, and heard when there is more to do
    found = [*pool.begin(todo[2:])(), *first()]
    pool.close()
    assert same([r.keep for r in found], [train(item).keep for item in [*todo[2:], *todo[:2]]])


def counted(sim):
    """How many were trained together, ahead and when due."""
    ahead, due, begin = [], [], sim.devices.training.begin

    def watched(shape, flight=None):
        (ahead if flight is None else due).append(len(sim.devices.training.pending[shape]))
        begin(shape, flight)

    sim.devices.training.begin = watched
    return ahead, due


RULES = {
    "fedbuff": fedbuff(LOCAL, clients=6, buffer=3),
    "fedasync": fedasync(LOCAL, clients=6),
    "late": fedbuff(LOCAL, clients=6, buffer=3, deadline=0.2),
    "kept": fedbuff(replace(LOCAL, objective=Moon()), clients=6, buffer=3),
}


@pytest.mark.parametrize("name", RULES)
def test_workers_begin_early_and_change_nothing(name):
    settings = dict(rounds=12, often=EvaluateAt(rounds=4))
    loop = finished(small(), RULES[name], plan=LOOP, **settings)
    sim = simulate(small(), RULES[name], plan=WORKERS, **settings)
    ahead, _ = counted(sim)
    sim.run()
    assert len(ahead) > 3
    assert all(size < 6 for size in ahead)  # never all: somebody must have something to tell meanwhile
    assert lines(sim) == lines(loop)
    assert torch.equal(weights(sim), weights(loop))
    if name == "late":
        assert sim.accounts.lost["late"] > 0


@pytest.mark.parametrize("name", RULES)
def test_stacks_begun_ahead_are_the_same_after_every_interruption(name):
    settings = dict(rounds=5 if name != "fedasync" else 15, plan=SHARES, often=EvaluateAt(rounds=4))
    sim = simulate(small(), RULES[name], **settings)
    ahead, _ = counted(sim)
    sim.run()
    assert ahead
    again, events = chained(small(), RULES[name], **settings)
    assert events > 10
    assert lines(again) == lines(sim)
    assert torch.equal(weights(again), weights(sim))


@pytest.mark.parametrize("gone", [False, True])
def test_a_round_is_trained_as_one_batch(gone):
    federation = small(availability=OnOff(3, 3.0, 0.8)) if gone else small()
    sim = simulate(federation, FedAvg(6, LOCAL), rounds=6, plan=SHARES)
    ahead, due = counted(sim)
    sim.run()
    assert ahead == []
    assert len(due) == 6
    assert ("gone" in sim.accounts.lost) == (min(due) < 6) == gone


def test_every_worker_has_a_batch():
    pool, federation = Workers(5), small()
    waiting = [pool.begin(items(federation, 0.1, Slow())[:1], ahead=True) for _ in range(5)]
    assert [len(worker.given) for worker in pool.workers] == [1] * 5
    assert all(len(results()) == 1 for results in waiting)
    pool.close()


@pytest.mark.parametrize("kind", ["workers", "shares"])
def test_what_goes_wrong_ahead_is_told_and_ends_all(kind):
    pool = Workers(1) if kind == "workers" else StackedWorkers(1, Stacked(64))
    good = items(small(), 0.1)
    bad = [item._replace(job=replace(LOCAL, objective=Fails())) for item in good]
    first, second = pool.begin(bad, ahead=True), pool.begin(good, ahead=True)
    with pytest.raises(RuntimeError, match=r"KeyError: 'nothing'"):
        first()
    with pytest.raises(PotluckError, match="broken off"):
        second()
    assert not pool.workers
    assert len(pool.run(good)) == len(good)  # others are started
    pool.close()
