"""Loop, workers and stack compute the same, whatever the job does; and workers that die are noticed."""

import multiprocessing
import os
import signal
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import LOCAL, LOOP, SIZES, SPEC, STACKED, WORKERS, finished, lines, small, values, weights
from torch import nn

from potluck.algorithms.fedavg import FedAvg
from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import ConfigError, PotluckError
from potluck.core.job import Local, ModelSpec
from potluck.core.messages import Task
from potluck.core.trees import leaves, tmap
from potluck.engine.schedule import EvaluateAt
from potluck.execute.plan import ExecutionPlan, make_executor
from potluck.execute.pool.processes import Workers
from potluck.execute.pool.stacks import StackedWorkers
from potluck.execute.reference import Item, score, train
from potluck.execute.vectorised.executor import Stacked
from potluck.jobs import SGD, Adam, Correct, Objective, Prox, Shuffled, Train, fine_tune, switch
from potluck.jobs.answering import Answering
from potluck.jobs.objective import weighted_mean
from potluck.models import register
from potluck.simulate.global_test import set_test

DROPS = ModelSpec("drops")


def drops(shape, classes):
    return nn.Sequential(nn.Linear(*shape, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, classes))


@pytest.fixture(autouse=True, scope="module")
def dropping():
    register("drops", drops)


@value
class Distil(Objective):
    """Also be like a frozen teacher, which is asked once per row."""

    looks: ClassVar[bool] = True
    share: float = 0.7

    def look(self, models, net, sent, keep, batch):
        return {"teacher": net(sent["teacher"], batch.x).softmax(-1)}

    def penalty(self, net, params, batch, held):
        ours = net(params, batch.x, batch.key).log_softmax(-1)
        return self.share * weighted_mean(-(batch.seen["teacher"] * ours).sum(-1), batch.weight)

    def review(self, net, params, own, held):
        return {"alike": (net(params, own.x).argmax(-1) == own.seen["teacher"].argmax(-1)).to(own.x.dtype)}

    def score(self, net, params, batch, held):
        alike = net(params, batch.x).argmax(-1) == batch.seen["teacher"].argmax(-1)
        return {"accuracy": alike.to(batch.x.dtype)}


@value
class Own(Objective):
    """Start from what the device kept, not from what was sent; keep what came of it."""

    def blank(self, sent):
        return sent["params"]

    def start(self, sent, keep, own):
        return keep

    def finish(self, delta, sent, keep, held, trace):
        return {}, tmap(torch.add, keep, delta)


@value
class Pulled(Objective):
    """Pulled by a plain number and a tensor that differ from device to device."""

    def hold(self, sent, keep, own):
        return {"pull": sent["pull"], "towards": sent["towards"]}

    def penalty(self, net, params, batch, held):
        return held["pull"] * sum(((p - held["towards"]) ** 2).sum() for p in params.values())


@value
class Deadly(Objective):
    """Kills the process that it runs in."""

    def penalty(self, net, params, batch, held):
        os.kill(os.getpid(), signal.SIGKILL)


@value
class Broken(Objective):
    """Asks for what isn't there."""

    def hold(self, sent, keep, own):
        return sent["nothing"]


@pytest.fixture(scope="module")
def federation():
    return small()


def items(federation, job, send=None, keep=lambda node: None, test=False):
    """The job on every device; `job` and `send` may be functions of the device."""
    out = []
    for node in range(len(SIZES)):
        mine = job(node) if callable(job) else job
        inbox = {"params": federation.models[mine.model].init(7)} if not out else dict(out[0].at.inbox)
        inbox |= send(node, federation) if send else {}
        rows, tested = federation.partition.rows(node, "train"), federation.partition.rows(node, "test")
        seed, scores = keys.derive(3, node), tested if test else None
        at = Local(node, rows, inbox, keep(node), seed, federation.models, federation.pool, scores)
        out.append(Item(mine, at))
    return out


def equal(a, b):
    """Byte for byte."""
    flat = zip(leaves((a.body, a.keep)), leaves((b.body, b.keep)), strict=True)
    return all(torch.equal(x, y) for x, y in flat) and (a.weight, a.metrics) == (b.weight, b.metrics)


def close(a, b):
    flat = list(zip(leaves((a.body, a.keep)), leaves((b.body, b.keep)), strict=True))
    assert flat or a.metrics
    assert (a.keep is None) == (b.keep is None)
    assert a.weight == b.weight
    assert a.metrics == pytest.approx(b.metrics, abs=1e-10)
    for x, y in flat:
        torch.testing.assert_close(x, y, rtol=0, atol=1e-10)
    return True


def model(federation, seed, spec=SPEC):
    return federation.models[spec].init(seed)


def noise(node, federation):
    """A tree of a device's own."""
    return tmap(lambda p: 0.1 * torch.randn(p.shape, dtype=p.dtype), model(federation, node))


def control(node, federation):
    torch.manual_seed(1)
    return {"control": noise(0, federation)}


def kept(node):
    torch.manual_seed(node)
    return noise(node, small()) if node % 3 else None  # some have never taken part


MOMENTUM = SGD(0.1, momentum=0.9, weight_decay=0.01)
CASES = {
    "plain": dict(job=replace(LOCAL, optim=SGD(0.1))),
    "momentum and decay": dict(job=replace(LOCAL, optim=MOMENTUM, epochs=2)),
    "Adam": dict(job=replace(LOCAL, optim=Adam(0.01), epochs=2)),
    "clipped": dict(job=replace(LOCAL, optim=SGD(0.1), clip=0.3, epochs=2)),
    "clipped, momentum": dict(job=replace(LOCAL, optim=MOMENTUM, clip=0.3)),
    "prox": dict(job=replace(LOCAL, objective=Prox(0.5), epochs=2)),
    "control variates": dict(
        job=replace(LOCAL, optim=SGD(0.1), objective=Correct()), send=control, keep=kept
    ),
    "own start": dict(job=replace(LOCAL, objective=Own()), keep=kept),
    "head only": dict(job=replace(LOCAL, part="head", epochs=2)),
    "head only, prox": dict(job=replace(LOCAL, part="head", objective=Prox(0.5))),
    "dropout": dict(job=replace(LOCAL, model=DROPS, epochs=2)),
    "teacher": dict(
        job=replace(LOCAL, objective=Distil(), epochs=2), send=lambda n, w: {"teacher": model(w, 99)}
    ),
    "teachers": dict(job=replace(LOCAL, objective=Distil()), send=lambda n, w: {"teacher": model(w, 50 + n)}),
    "rates and epochs": dict(
        job=lambda n: replace(LOCAL, optim=replace(MOMENTUM, lr=0.02 * (n + 1)), epochs=1 + n % 3)
    ),
    "rates of Adam": dict(job=lambda n: replace(LOCAL, optim=Adam(0.002 * (n + 1)), steps=1 + n)),
    "steps": dict(job=lambda n: replace(LOCAL, steps=7 - n % 4)),
    "no steps": dict(job=lambda n: replace(LOCAL, epochs=n % 2)),
    "limited rows": dict(job=lambda n: replace(LOCAL, sampler=Shuffled(limit=3 + n))),
    "own models": dict(job=LOCAL, send=lambda n, w: {"params": model(w, n)}),
    "own numbers": dict(
        job=replace(LOCAL, objective=Pulled()),
        send=lambda n, w: {"pull": 0.1 * (n % 4), "towards": torch.tensor(0.1 * n, dtype=torch.float64)},
    ),
    "batches larger than devices": dict(job=replace(LOCAL, batch=64, epochs=3)),
    "single rows": dict(job=replace(LOCAL, batch=1)),
}


@pytest.fixture(scope="module")
def workers(federation):
    pool = Workers(2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def shares(federation):
    pool = StackedWorkers(2, Stacked(64))
    yield pool
    pool.close()


@pytest.mark.parametrize("case", CASES)
def test_executors_agree(case, federation, workers, shares):
    todo = items(federation, **CASES[case])
    alone = [train(item) for item in todo]
    given = [leaf.clone() for item in todo for leaf in leaves((item.at.inbox, item.at.keep))]
    assert all(map(equal, workers.run(todo), alone))
    for stacked in (Stacked(64), Stacked(3), shares):
        assert all(map(close, stacked.run(todo), alone))
        assert not stacked.unmapped
    after = [leaf for item in todo for leaf in leaves((item.at.inbox, item.at.keep))]
    assert all(map(torch.equal, after, given))  # nothing that was sent or kept has changed
    assert any(leaf.any() for result in alone for leaf in leaves(result.body))


def test_a_stack_does_not_depend_on_who_else_is_in_it(federation):
    todo = items(federation, replace(LOCAL, model=DROPS, epochs=2))
    together, some = Stacked(64).run(todo), Stacked(64).run(todo[::3])
    assert all(map(close, some, together[::3]))


def test_dropout_is_drawn_per_device_and_step(federation):
    still = items(federation, replace(LOCAL, model=DROPS))
    loud = train(still[6])
    again = train(Item(still[6].job, still[6].at))
    other = train(Item(still[6].job, replaced(still[6].at, seed=1)))
    assert equal(loud, again)
    assert not equal(loud, other)


def replaced(at, **changes):
    fields = ("node", "rows", "inbox", "keep", "seed", "models", "pool", "test")
    return Local(**{name: getattr(at, name) for name in fields} | changes)


@pytest.mark.parametrize("objective", [Prox(0.1), Distil()], ids=["prox", "teacher"])
def test_a_device_without_rows_changes_nothing(objective, federation, workers, shares):
    teacher = model(federation, 9)
    todo = items(federation, replace(LOCAL, objective=objective), send=lambda n, w: {"teacher": teacher})
    todo[2] = Item(todo[2].job, replaced(todo[2].at, rows=np.zeros(0, np.int64)))
    alone = [train(item) for item in todo]
    assert (alone[2].weight, max(leaf.abs().max() for leaf in leaves(alone[2].body))) == (0.0, 0.0)
    assert all(map(equal, workers.run(todo), alone))
    assert all(map(close, Stacked(64).run(todo), alone))
    assert close(Stacked(64).run(todo[2:3])[0], alone[2])
    assert all(map(close, shares.run(todo), alone))


# ------------------------------------------------------------------------------------------------- scoring


def test_a_served_job_is_scored_after_it_was_trained(federation, workers, shares):
    job = fine_tune(replace(LOCAL, optim=SGD(0.3)), epochs=5)
    todo = items(federation, job, test=True)
    alone = [train(item) for item in todo]
    for item, result in zip(todo, alone, strict=True):
        net = federation.models[SPEC]
        params = tmap(torch.add, item.at.inbox["params"], result.body["delta"])
        logits, y = net(params, federation.pool.x[item.at.test]), federation.pool.y[item.at.test]
        by_hand = {
            "accuracy": (logits.argmax(-1) == y).double().mean().item(),
            "loss": F.cross_entropy(logits, y).item(),
            "rows": 3.0,
        }
        assert result.metrics == pytest.approx(by_hand)
        untrained = score(item, net, item.at.inbox["params"], ({}, {}, None))
        assert result.metrics["loss"] != untrained.means["loss"]
    assert all(map(equal, workers.run(todo), alone))
    assert all(map(close, Stacked(4).run(todo), alone))
    assert all(map(close, shares.run(todo), alone))


def test_what_is_answered_comes_back_row_by_row(federation, workers, shares):
    tuned = fine_tune(replace(LOCAL, optim=SGD(0.3)), epochs=2)
    wanted = [train(item).body["delta"] for item in items(federation, tuned)]
    todo = items(federation, replace(tuned, objective=Answering()), test=True)
    alone = [train(item) for item in todo]
    for item, result, delta in zip(todo, alone, wanted, strict=True):
        net, params = federation.models[SPEC], tmap(torch.add, item.at.inbox["params"], delta)
        by_hand = net(params, federation.pool.x[item.at.test])
        torch.testing.assert_close(result.body["logits"], by_hand, rtol=0, atol=1e-12)
        assert result.metrics == {"rows": 3.0}
    assert all(map(equal, workers.run(todo), alone))
    assert all(map(close, Stacked(4).run(todo), alone))
    assert all(map(close, shares.run(todo), alone))


@pytest.mark.parametrize("form", ["causal", "batch"])
def test_rows_that_are_weighed_by_each_other_are_scored_whole(form, federation, workers, monkeypatch):
    job = switch.Personal(epochs=1, switch=switch.Prior(form)).job(LOCAL)
    todo = items(federation, job, test=True)
    todo = [set_test(item, federation.pool.free[n : 5 * n + 7]) for n, item in enumerate(todo)]
    alone = [train(item) for item in todo]
    assert len({result.metrics["accuracy"] for result in alone}) > 2
    assert all(map(equal, workers.run(todo), alone))
    for module in ("reference", "vectorised.stack"):
        monkeypatch.setattr(f"potluck.execute.{module}.SCORING_BATCH", 2)
    assert all(map(equal, [train(item) for item in todo], alone))
    assert all(map(close, Stacked(4).run(todo), alone))


def test_what_is_seen_of_test_rows_is_of_test_rows(federation):
    todo = items(
        federation, replace(LOCAL, objective=Distil()), send=lambda n, w: {"teacher": model(w, 99)}, test=True
    )
    alone = [train(item) for item in todo]
    assert all(map(close, Stacked(4).run(todo), alone))
    assert 0 < np.mean([r.metrics["accuracy"] for r in alone]) <= 1


@value
class Personal(FedAvg):
    """Serves a model tuned on the device's own rows beside the global one."""

    def serve(self, m, node, ctx):
        tuned = Task(node, fine_tune(self.local, epochs=3, part="head"), {"params": m.params})
        served = FedAvg.serve(self, m, node, ctx)
        return served if node == ctx.me else {"personal": tuned, **served}


def test_several_views_are_served(federation):
    runs = {
        plan.executor: finished(
            federation, Personal(4, LOCAL), rounds=4, often=EvaluateAt(rounds=2), plan=plan
        )
        for plan in (LOOP, WORKERS, STACKED)
    }
    plain = finished(federation, FedAvg(4, LOCAL), rounds=4)
    loop = runs["loop"]
    assert torch.equal(weights(loop), weights(plain))  # what is served doesn't train
    assert lines(runs["workers"]) == lines(loop)
    assert values(runs["stacked"], "loss") == pytest.approx(values(loop, "loss"), abs=1e-10)
    assert len(values(loop, "accuracy", view="personal")) == 3 * len(SIZES)
    assert len(values(loop, "accuracy", view="global")) == 3 * len(SIZES)
    assert values(loop, "loss", view="personal") != values(loop, "loss", view="global")
    assert loop.accuracy == pytest.approx(np.mean(values(loop, "accuracy", view="personal")[-10:]))


# ------------------------------------------------------------------------------------------------- workers


@pytest.fixture
def impatient():
    """Fails instead of hanging."""

    def too_long(*_):
        raise TimeoutError("the executor hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("count", [1, 3])
def test_a_worker_that_dies_is_an_error_not_a_hang(count, federation, impatient):
    pool = Workers(count)
    with pytest.raises(PotluckError, match="a worker process died"):
        pool.run(items(federation, replace(LOCAL, objective=Deadly())))
    pool.close()


def test_a_worker_that_was_killed_between_batches(federation, impatient):
    pool = Workers(2)
    todo = items(federation, LOCAL)
    pool.run(todo)
    os.kill(pool.processes[0].pid, signal.SIGKILL)
    pool.processes[0].join()
    with pytest.raises(PotluckError, match="a worker process died"):
        pool.run(todo)
    assert all(map(equal, pool.run(todo), map(train, todo)))  # a new pool has been started
    pool.close()


def test_a_job_that_fails_in_a_worker_is_named(federation, impatient):
    pool = Workers(2)
    broken, good = items(federation, replace(LOCAL, objective=Broken())), items(federation, LOCAL)
    with pytest.raises(RuntimeError, match=r"(?s)device \d: Train: KeyError: 'nothing'.*Traceback.*in hold"):
        pool.run(broken)
    assert all(map(equal, pool.run(good), map(train, good)))  # no answer of the first batch is left over
    pool.close()


def test_workers_go_when_they_are_closed(federation, impatient):
    before = set(multiprocessing.active_children())
    pool = Workers(2)
    pool.run(items(federation, LOCAL))
    pool.run([])
    processes = list(pool.processes)
    pool.close()
    assert not any(process.is_alive() for process in processes)
    assert set(multiprocessing.active_children()) <= before


def test_executors_are_known_by_name():
    assert isinstance(make_executor(ExecutionPlan("stacked", chunk=5)), Stacked)
    assert make_executor(ExecutionPlan("workers", workers=3)).count == 3
    with pytest.raises(ConfigError, match="did you mean 'stacked'"):
        make_executor(ExecutionPlan("staked"))


def test_a_failing_run_leaves_no_workers(federation, impatient):
    before = set(multiprocessing.active_children())
    with pytest.raises(RuntimeError, match="KeyError"):
        finished(federation, FedAvg(4, Train(SPEC, Broken())), plan=WORKERS)
    assert set(multiprocessing.active_children()) <= before
