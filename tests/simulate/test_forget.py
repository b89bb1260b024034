import dataclasses

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, WORKERS, chained, finished, lines, small, values, weights

from potluck import algorithms, fleet
from potluck.core.codec import value
from potluck.core.errors import ConfigError
from potluck.core.job import Cost, Local, Result
from potluck.core.messages import Lost, Task
from potluck.core.rule import Got
from potluck.core.trees import leaves
from potluck.engine.memories import Memories
from potluck.engine.schedule import StopAt
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
from potluck.fleet import mobile
from potluck.jobs import SGD, use_model

PLAIN = dataclasses.replace(LOCAL, optim=SGD(0.1))


def crowd(forget):
    return small(compute=4e5, forget=forget)


@value
class Remember:
    """Tells how often it was here, as far as the device remembers."""

    def cost(self, at: Local) -> Cost:
        return Cost(1.0, {"seen": torch.zeros(1)})

    def run(self, at: Local) -> Result:
        seen = torch.zeros(1) if at.keep is None else at.keep
        return Result({"seen": seen}, keep=seen + 1)


@value
class Visit:
    """Asks every device again and again, in two memories by turns."""

    def start(self, ctx):
        return Diary([], 0)

    def lanes(self, m, ctx):
        return (None,) if ctx.working else ()

    def plan(self, m, lane, ctx):
        return m, [Task(n, Remember(), {}, slot=m.round % 2) for n in ctx.children]

    def merge(self, m, lane, got: Got, ctx):
        return Diary([*m.heard, [(r.task.to, float(r.body["seen"])) for r in got.replies]], m.round + 1), []

    def serve(self, m, node, ctx):
        return {"global": Task(node, use_model(LOCAL.model), {"params": ctx.models[LOCAL.model].init(0)})}


@value(eq=False)
class Diary:
    heard: list
    round: int


def heard(forget, rounds=8, seed=0):
    sim = finished(crowd(forget), Visit(), rounds=rounds, seed=seed)
    return [dict(told) for told in sim.points[sim.root].own.state.model.heard], sim


def test_a_device_that_forgot_starts_blank_in_all_its_memories():
    told, sim = heard(0.3)
    # A round's tasks begin while the round before it is being counted.
    forgot = [(r["node"], r["round"] + 1) for r in sim.records if r["metric"] == "forgot"]
    assert 8 <= len(forgot) <= 36  # of 70 tasks of somebody with a memory, 21 expected
    memory = {}
    for turn, replies in enumerate(told):
        for node, seen in replies.items():
            if (node, turn) in forgot:
                memory.pop((node, 0), None), memory.pop((node, 1), None)
            assert seen == memory.get((node, turn % 2), 0)
            memory[node, turn % 2] = seen + 1


def test_nobody_forgets_at_0_and_everybody_always_at_1():
    never, sim = heard(0.0)
    assert [set(replies.values()) for replies in never] == [{float(turn // 2)} for turn in range(8)]
    assert values(sim, "forgot") == []
    always, _ = heard(1.0)
    assert all(set(replies.values()) == {0.0} for replies in always)


def test_rate_0_changes_nothing():
    rule = algorithms.make("scaffold", PLAIN, clients=4)
    before, after = small(compute=4e5), crowd(0.0)
    one, two = (finished(w, rule, rounds=5) for w in (before, after))
    assert lines(one) == lines(two)
    assert torch.equal(weights(one), weights(two))


def test_scaffold_forgets_its_control_variates_alike_in_all_executors_and_after_a_resume():
    rule, settings = algorithms.make("scaffold", PLAIN, clients=8), dict(stop=StopAt(rounds=4))
    loop, workers, stacked = (
        finished(crowd(0.4), rule, plan=plan, **settings) for plan in (LOOP, WORKERS, STACKED)
    )
    assert values(loop, "forgot")
    assert lines(loop) == lines(workers)
    assert torch.equal(weights(loop), weights(workers))
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    resumed, _ = chained(crowd(0.4), rule, plan=LOOP, **settings)
    assert lines(resumed) == lines(loop)
    assert torch.equal(weights(resumed), weights(loop))
    never = finished(crowd(0.0), rule, plan=LOOP, **settings)
    assert not torch.equal(weights(never), weights(loop))


def test_forgetting_frees_memory_and_outlives_a_snapshot(tmp_path):
    memories = Memories(tmp_path / "keep.log")
    for slot in ("a", "b"):
        memories.put(3, slot, {"t": torch.ones(5)})
    memories.put(4, "a", {"t": torch.ones(7)})
    memories.flush()
    memories.put(3, "b", {"t": torch.zeros(5)})  # one in the log, one newer than it
    assert memories.forget(3)
    assert not memories.forget(3)
    assert [memories.get(3, slot) for slot in ("a", "b")] == [None, None]
    assert memories.sizes == 28
    state = memories.flush()
    fresh = Memories(tmp_path / "keep.log")
    fresh.restore(state)
    assert fresh.get(3, "a") is None
    assert leaves(fresh.get(4, "a"))[0].tolist() == [1.0] * 7
    assert fresh.forget(4)
    assert fresh.flush().index == []


@pytest.mark.parametrize("chance", [-0.1, 1.1])
def test_a_bad_chance_is_named(chance):
    with pytest.raises(ConfigError, match=r"fleet\.forget = "):
        crowd(chance)
    with pytest.raises(ConfigError, match=r"fleet\.forget"):
        Experiment(fleet={"forget": chance})


# ----------------------------------------------------------------------------------------------- stragglers


def test_a_share_of_the_devices_is_slower_in_all_that_they_do():
    plain, slow = mobile(40, 3), fleet.build("mobile", 40, 3, stragglers={"share": 0.25, "slower": 10}).true
    ratio = slow.compute / plain.compute
    assert sorted(np.round(ratio, 9)) == [1.0] * 30 + [10.0] * 10
    assert np.allclose(plain.up / slow.up, ratio)
    assert np.allclose(plain.down / slow.down, ratio)
    assert np.array_equal(plain.latency, slow.latency)
    one, other = (fleet.build("mobile", 40, k, stragglers={"share": 0.25, "slower": 10}).true for k in (3, 4))
    assert np.array_equal(one.compute, slow.compute)
    assert not np.array_equal(one.compute, other.compute)


@value
class Heard:
    """FedAvg that remembers who was lost, and why."""

    inner: object

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def merge(self, m, lane, got, ctx):
        assert all(isinstance(lost, Lost) for lost in got.lost)
        lost_by_round.append({(lost.what.to, lost.why) for lost in got.lost})
        return self.inner.merge(m, lane, got, ctx)


lost_by_round: list = []


# Of 20 devices, as many are slow as over-commitment can spare: a share of 1 - 1 / overcommit.
@pytest.mark.parametrize(("overcommit", "clients", "share"), [(1.3, 15, 0.25), (1.25, 16, 0.2)])
def test_over_commitment_does_not_wait_for_stragglers(overcommit, clients, share):
    crowds = dict(source="uniform", compute=4e5)
    where = small((9,) * 20, stragglers={"share": share, "slower": 50.0}, **crowds)
    slow = set(np.flatnonzero(where.fleet.true.compute > 4e5).tolist())
    assert len(slow) == 20 - clients
    lost_by_round.clear()
    spare = algorithms.make("fedavg", LOCAL, clients=clients, overcommit=overcommit)  # all 20 are asked
    quick = finished(where, Heard(spare), rounds=3)
    assert lost_by_round == [{(node, "late") for node in slow}] * 3
    assert quick.accounts.lost == {"late": 3 * len(slow)}
    equal = finished(small((9,) * 20, **crowds), spare, rounds=3)
    assert quick.now == pytest.approx(equal.now)  # as if there were no stragglers
    patient = finished(where, algorithms.make("fedavg", LOCAL, clients=20), rounds=3)
    assert patient.now > 30 * quick.now


def test_over_commitment_by_a_quarter_is_too_little_for_a_quarter_of_stragglers():
    where = small((9,) * 20, source="uniform", compute=4e5, stragglers={"share": 0.25, "slower": 50.0})
    short = finished(where, algorithms.make("fedavg", LOCAL, clients=16, overcommit=1.25), rounds=3)
    enough = finished(where, algorithms.make("fedavg", LOCAL, clients=15, overcommit=4 / 3), rounds=3)
    assert short.now > 30 * enough.now  # 15 are fast and 16 are waited for


def test_an_experiment_has_stragglers_and_lost_memories():
    tables = {"stragglers": {"share": 0.25, "slower": 10}, "forget": 0.1}
    e = Experiment(data={"source": "synthetic", "rows": 300, "clients": 8}, fleet=tables).resolve()
    federation, plain = build_federation(e), build_federation(e.with_values(fleet={}).resolve())
    assert federation.fleet.forget == 0.1
    assert sorted(np.round(federation.fleet.true.compute / plain.fleet.true.compute)) == [1] * 6 + [10] * 2
    for key, bad in (("share", 1.0), ("slower", 0.5)):
        with pytest.raises(ConfigError, match=rf"fleet\.stragglers\.{key}"):
            Experiment(fleet={"stragglers": {"share": 0.2, "slower": 2.0, key: bad}})
        with pytest.raises(ConfigError, match=rf"fleet\.stragglers\.{key} = "):
            fleet.build("mobile", 4, 1, stragglers={"share": 0.2, "slower": 2.0, key: bad})
