"""What every algorithm must keep to: this suite runs over whatever lies in potluck/algorithms.

What was published otherwise than by its defaults is looked at too: by day whether it is pure, is resumed,
serves everybody and survives bad updates; by night all of it.
"""

import copy
import dataclasses
import hashlib
from functools import cache

import numpy as np
import pytest
import torch
from every import EVERYONE, OFTEN, crowd, enough, federation, make, mark, parameters
from federations import (
    LOCAL,
    LOOP,
    SIZES,
    STACKED,
    STACKS,
    WORKERS,
    chained,
    finished,
    lines,
    values,
    weights,
)
from refused import lost
from torch import nn

from potluck.core import codec
from potluck.core.errors import ConfigError, StalledError
from potluck.core.job import Local, ModelSpec
from potluck.core.messages import Cancel, Move, Task, Tell
from potluck.core.trees import finite, nbytes, same_form
from potluck.engine import drought
from potluck.engine.queues import Queues
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.fleet import Intervals, OnOff, place_attackers
from potluck.models import register
from potluck.rules import Rounds, as_algorithm
from potluck.rules.wrap import AroundRule
from potluck.simulate import simulation

pytestmark = pytest.mark.slow


def run(name, *, where=None, seed=0, local=LOCAL, stop=None, plan=LOOP, often=OFTEN, **params):
    algorithm, stop = Watched(make(name, local, **params)), stop or enough(name)
    sim = finished(where or federation(), algorithm, seed=seed, stop=stop, plan=plan, often=often)
    sim.asked = algorithm.asked
    return sim


@cache
def straight(name):
    return run(name)


# ----------------------------------------------------------------------------------------------- watching


def tensors(thing):
    """All tensors that can be reached from a value."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for key, entry in thing.items():
            yield from tensors(key)
            yield from tensors(entry)
    elif isinstance(thing, list | tuple | set | frozenset):
        for entry in thing:
            yield from tensors(entry)
    elif dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            yield from tensors(getattr(thing, field.name))


def seen(thing):
    return [(t, t._version, hashlib.blake2b(t.numpy().tobytes()).digest()) for t in tensors(thing)]


def told(commands):
    """Commands as something to compare: who is asked what."""
    kinds = Task | Tell | Move | Cancel
    return [codec.encode(c) for c in commands if isinstance(c, kinds)]


class Careful(AroundRule):
    """A rule whose merges must leave the state that they are given: they may be undone."""

    def merge(self, m, lane, got, ctx):
        stored = codec.encode(m)
        made = self.inner.merge(m, lane, got, ctx)
        assert codec.encode(m) == stored, "a merge changed the state that it was given"
        return made


class Watched:
    """An algorithm under observation: what it asks for and when, and whether it touches what it is given."""

    def __init__(self, algorithm, strict=False, asked=None):
        self.inner = algorithm if hasattr(algorithm, "tiers") else as_algorithm(algorithm)
        if strict and isinstance(self.inner, Rounds):
            self.inner = Rounds(Careful(self.inner.rule))
        self.tiers = getattr(algorithm, "tiers", ())
        self.strict, self.asked = strict, [] if asked is None else asked

    def at(self, tier):
        return Watched(self.inner.at(tier), self.strict, self.asked)

    def init(self, ctx):
        return self.listed(ctx, *self.inner.init(ctx))

    def receive(self, s, e, ctx):
        if not self.strict:
            return self.listed(ctx, *self.inner.receive(s, e, ctx))
        before, twin, stored = seen((s, e)), copy.copy(ctx), codec.encode((s, e))
        s, commands = self.inner.receive(s, e, ctx)
        for t, version, digest in before:
            assert t._version == version, "a tensor was changed in place"
            assert hashlib.blake2b(t.numpy().tobytes()).digest() == digest, "a tensor was changed in place"
        _, again = self.inner.receive(*codec.decode(stored), twin)
        assert told(again) == told(commands), "something beside state, event and context matters"
        return self.listed(ctx, s, commands)

    def serve(self, s, node, ctx):
        return self.inner.serve(s, node, ctx)

    def round(self, s):
        return self.inner.round(s)

    def waiting(self, s, ctx):
        return self.inner.waiting(s, ctx)

    def listed(self, ctx, s, commands):
        kinds = Task | Tell | Move | Cancel
        for c in (c for c in commands if isinstance(c, kinds)):
            whom = (c.src, c.dst, c.take) if isinstance(c, Move) else c.id if isinstance(c, Cancel) else c.to
            self.asked.append((ctx.now, type(c).__name__, ctx.me, whom))
        return s, commands


# ----------------------------------------------------------------------------------------------- contracts


@pytest.mark.parametrize("name", EVERYONE)
def test_receive_is_pure(name):
    watched = Watched(make(name), strict=True)
    sim = finished(federation(), watched, stop=enough(name), plan=STACKED, often=OFTEN)
    assert sim.round >= 3
    assert len(watched.asked) >= 12


@cache
def dispatched(name):
    """A finished run, and all tasks and tells that it sent to devices or to points themselves."""
    asked, accept, together = [], Queues.accept, Queues.accept_together
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Queues, "accept", lambda *given: (asked.append(given[2]), accept(*given))[1])
        patched.setattr(
            Queues, "accept_together", lambda *given: (asked.extend(given[2]), together(*given))[1]
        )
        sim = finished(federation(), make(name), stop=enough(name), often=OFTEN)
    return sim, [item for item in asked if isinstance(item, Task | Tell)]


def modules(thing):
    """Where the classes of a value, and of all values in it, are defined."""
    if dataclasses.is_dataclass(thing):
        yield type(thing).__module__
        for field in dataclasses.fields(thing):
            yield from modules(getattr(thing, field.name))
    elif isinstance(thing, dict | list | tuple | set | frozenset):
        for entry in [*thing.keys(), *thing.values()] if isinstance(thing, dict) else thing:
            yield from modules(entry)


@pytest.mark.parametrize("name", mark())
def test_what_devices_are_sent_can_be_imported_there(name):
    """By test_architecture these modules need neither rules nor a runtime."""
    _, items = dispatched(name)
    sent = [(item.job, item.send) for item in items if item.to < len(SIZES)]
    assert sent
    for module in {module for pair in sent for module in modules(pair)}:
        _, room, *rest = module.split(".")
        assert room in ("core", "jobs", "models") or "device" in rest, module


@pytest.mark.parametrize("name", mark())
def test_what_a_job_sends_depends_on_neither_rows_nor_memory(name):
    """A server that has seen neither asks a job for the form of its reply."""
    sim, asked = dispatched(name)
    where, own = sim.federation, {node: sim.devices.rows(node) for node in range(len(SIZES))}
    nothing = dataclasses.replace(where.pool, x=where.pool.x[:0], y=where.pool.y[:0])
    kinds = {}
    for item in (item for item in asked if isinstance(item, Task)):
        kinds.setdefault((type(item.job), item.slot, tuple(item.send)), item)
    assert kinds
    for item in kinds.values():
        mine = sim.devices.rows(item.to)
        keeps = [None, *(sim.memories.get(node, item.slot) for node in range(len(SIZES)))]
        kept = sim.memories.get(item.to, item.slot)

        def place(rows=mine, keep=kept, pool=where.pool, item=item):
            return Local(item.to, rows, item.send, keep, 0, where.models, pool)

        cost = item.job.cost(place())
        expected, names = cost.sends, cost.metrics
        unseen = place(mine[:0], None, nothing)
        others = [*(place(rows) for rows in own.values()), *(place(keep=k) for k in keeps)]
        for at in (unseen, *others):
            found = item.job.cost(at).sends
            assert item.job.cost(at).metrics == names
            assert same_form(found, expected), item.job
            assert same_form(expected, found), item.job
            assert nbytes(found) == nbytes(expected), item.job


@pytest.mark.parametrize("name", mark())
def test_same_seed_same_bytes(name):
    once, again, other = straight(name), run(name), run(name, seed=1)
    assert lines(once) == lines(again)
    assert torch.equal(weights(once), weights(again))
    assert once.asked == again.asked
    assert lines(once) != lines(other)
    assert not torch.equal(weights(once), weights(other))


def resumes(name, plan, expected):
    sim, events = chained(federation(), make(name), stop=enough(name), plan=plan, often=OFTEN)
    assert events >= 12
    assert lines(sim) == lines(expected)
    assert torch.equal(weights(sim), weights(expected))


@pytest.mark.parametrize("name", EVERYONE)
def test_resumed_at_every_event_equals_straight(name):
    resumes(name, LOOP, straight(name))


@pytest.mark.parametrize("name", mark())
def test_in_stacks_too(name):
    resumes(name, STACKED, run(name, plan=STACKED))


@pytest.mark.parametrize("name", mark())
def test_executors_agree(name):
    loop, workers = straight(name), run(name, plan=WORKERS)
    assert lines(workers) == lines(loop)
    assert torch.equal(weights(workers), weights(loop))
    for plan in STACKS:
        stacked = run(name, plan=plan)
        assert stacked.asked == loop.asked
        torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)


def transformer(shape, classes):
    """A tiny one: every number of a row is a step."""
    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
    steps = (nn.Unflatten(1, (*shape, 1)), nn.Linear(1, 4), layer)
    return nn.Sequential(*steps, nn.Flatten(), nn.Linear(4 * shape[0], classes))


BY_DAY = ("fedasync", "fedavg", "moon", "scaffold")
SIZED = ("fedrac", "heterofl")  # they make models of several sizes, which this one can't


@pytest.mark.parametrize(
    "name", [n if n in BY_DAY else pytest.param(n, marks=pytest.mark.nightly) for n in EVERYONE]
)
def test_executors_agree_on_a_transformer(name):
    register("tiny_transformer", transformer)
    local = dataclasses.replace(LOCAL, model=ModelSpec("tiny_transformer"))
    if name.partition(" ")[0] in SIZED:
        with pytest.raises(ConfigError, match="width"):
            run(name, local=local)
        return
    loop = run(name, local=local)
    for plan in STACKS[:2]:
        stacked = run(name, local=local, plan=plan)
        assert stacked.asked == loop.asked
        torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", mark())
def test_padding_counts_nothing(name):
    most = sum(SIZES)  # that one device may have, where rows move
    exact = run(name, local=dataclasses.replace(LOCAL, batch=most))
    for plan in (LOOP, STACKED):
        padded = run(name, local=dataclasses.replace(LOCAL, batch=2 * most), plan=plan)
        assert padded.asked == exact.asked
        torch.testing.assert_close(weights(padded), weights(exact), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", EVERYONE)
def test_everybody_is_served(name):
    sim = straight(name)
    for node in (*range(len(SIZES)), sim.root):
        views = sim.serve(node)
        assert views
        for task in views.values():
            assert task.to == node
            assert hasattr(task.job, "score")
    for view in sim.serve(sim.root):
        assert len(values(sim, "global_accuracy", view=view)) >= 2
    headline = next(r["view"] for r in sim.records if r["metric"] == "accuracy_mean")
    for node in range(len(SIZES)):
        assert all(0 <= a <= 1 for a in values(sim, "accuracy", node=node, view=headline))
    assert sim.accuracy is not None


# -------------------------------------------------------------------------------------- what may go wrong


def survives(sim):
    assert sim.finished
    assert finite(weights(sim))
    assert all(np.isfinite(values(sim, "accuracy_mean")))
    return sim


def blinks(seconds):
    """Online for so long, offline for as long, again and again."""
    return [(t, t + seconds) for t in np.arange(0, 60, 2 * seconds)]


@pytest.mark.parametrize("name", mark())
def test_every_task_is_lost(name):
    nobody = Intervals.of([blinks(0.03)] * len(SIZES))  # less than latency both ways
    sim = survives(run(name, where=crowd(availability=nobody), stop=StopAt(rounds=4, seconds=50)))
    assert sim.accounts.lost["gone"] >= 4
    assert sim.accounts.tasks == 0


@pytest.mark.parametrize("name", mark())
def test_a_run_of_lost_tasks_alone_ends(name, monkeypatch):
    """Whatever an algorithm counts as a round, and with no other end than rounds."""
    monkeypatch.setattr(drought, "MOST", 40)
    brief = crowd(availability=OnOff(3, 0.02, 0.5))  # for ever; online for less than latency both ways
    said = r"at \d+ virtual seconds nobody has answered for 40 rounds, and every task is lost"
    with pytest.raises(StalledError, match=said):
        run(name, where=brief, stop=StopAt(rounds=10**9), often=EvaluateAt())


@pytest.mark.parametrize("name", mark())
def test_a_run_to_which_nobody_comes_ends(name, monkeypatch):
    monkeypatch.setattr(simulation, "PATIENCE", 500)
    said = r"at \d+ virtual seconds nothing is under way and nobody can be asked"
    rare = crowd(availability=OnOff(3, 1e7, 1e-9))
    with pytest.raises(StalledError, match=said):
        run(name, where=rare, stop=StopAt(rounds=10**9), often=EvaluateAt())


@pytest.mark.parametrize("name", mark())
def test_half_of_the_tasks_are_lost(name):
    half = Intervals.of([[(0.0, np.inf)] if i % 2 else blinks(0.25) for i in range(len(SIZES))])
    sim = survives(run(name, where=crowd(availability=half), stop=StopAt(rounds=20, seconds=20)))
    assert sim.accounts.lost["gone"] >= 3
    assert sim.accounts.tasks >= 3


@pytest.mark.parametrize("name", mark(n for n in EVERYONE if "deadline" in parameters(n)))
@pytest.mark.parametrize("deadline", [0.01, 2.0])
def test_tasks_are_late(name, deadline):
    seconds = 250 if deadline > 1 else 8  # where all are late, a run ends after a thousand rounds of nothing
    sim = survives(run(name, stop=StopAt(rounds=9, seconds=seconds), deadline=deadline))
    assert any(kind == "Cancel" for _, kind, *_ in sim.asked)
    assert (sim.accounts.tasks == 0) == (deadline == 0.01)


def left(name, start):
    """All that is left of a run in which two of three devices misreport, but for the reasons of refusals."""
    good, liars = federation(), [node for node in range(len(SIZES)) if node % 3]
    crew = place_attackers(good.fleet, 0, kind="misreport", nodes=liars, start=start)
    stop = StopAt(rounds=12, seconds=20)
    sim = survives(run(name, where=dataclasses.replace(good, fleet=crew), stop=stop))
    assert sim.accounts.lost["bad"] >= 3
    assert start or not sim.accounts.took_part[liars].any()
    kept = {node: sim.memories.get(node, None) for node in range(len(SIZES))}
    records = [r | {"value": ""} if r["metric"] == "bad_update" else r for r in sim.records]
    served = [{view: task.send for view, task in sim.serve(node).items()} for node in (0, 1, sim.root)]
    return codec.encode((served, kept)), records, sim.now, sim.round, sim.asked


@pytest.mark.parametrize("name", EVERYONE)
def test_nobody_honest_is_refused(name):
    """What a job's cost states is enough for all that comes of it."""
    assert straight(name).accounts.lost.get("bad", 0) == 0


@pytest.mark.parametrize("start", [0.0, 2.0], ids=["always", "later"])  # later: once they are known
@pytest.mark.parametrize("name", mark())
def test_false_weights_and_metrics_leave_what_lost_ones_leave(name, start):
    with lost():
        expected = left(name, start)
    assert left(name, start) == expected


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
@pytest.mark.parametrize("name", EVERYONE)
def test_bad_updates_never_reach_the_model(name, plan):
    good = federation()
    x = good.pool.x.clone()
    for node in range(0, len(SIZES), 2):
        x[torch.tensor(good.partition.rows(node, "train"))] = float("nan")
    spoilt = dataclasses.replace(good, pool=dataclasses.replace(good.pool, x=x))
    still = {"shuffle": False} if "shuffle" in parameters(name) else {}  # else what is spoilt may move on
    sim = survives(run(name, where=spoilt, plan=plan, **still))
    assert sim.accounts.lost["bad"] == len(values(sim, "bad_update")) >= 2
    assert not sim.accounts.took_part[::2].any()
    assert sim.accounts.took_part[1::2].any()
