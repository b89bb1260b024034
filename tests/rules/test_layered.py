"""Rules above users: a hub passes on what the cloud asks for, and answers as one device would."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, chained, finished, lines, small, values, weights

from potluck import algorithms
from potluck.algorithms.shufflefl.gateway import Solve
from potluck.algorithms.shufflefl.hub import Hub
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.core.errors import ConfigError
from potluck.core.messages import Task
from potluck.engine.acceptance import check
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.fleet import OnOff, Profiles, Topology, pool_claims
from potluck.jobs import SGD, Private, Train
from potluck.rules.layered import Layered

PLAIN = replace(LOCAL, optim=SGD(0.1))
WHOLE = replace(PLAIN, batch=64)  # one step on all rows, in whatever order
FEW = {"clients": 4}
SPLITTING = {"clients": 4, "cohorts": 2, "force": (2,), "first_split": 1}


def users(local=PLAIN, shuffle=True, **more):
    return Hub(local, Solve(Search()), True, shuffle, scaled=False, **more)


def above(name, local=PLAIN, shuffle=True, **params):
    return Layered(algorithms.make(name, local, **params), (("user", users(local, shuffle)),))


def people(count=5, **more):
    return small(users=count, compute=4e5, **more)


def alone():
    """Everybody is a user of one device."""
    where = small(users=5, compute=4e5)
    return replace(where, fleet=replace(where.fleet, user=np.arange(len(where.fleet), dtype=np.int32)))


# ------------------------------------------------------------------------------------------------------ laws


@pytest.mark.parametrize(
    "name", ["fedavg", "fedyogi", "fedprox", "scaffold", "fedpvr", "moon", "qfedavg", "ftfa"]
)
def test_users_of_one_device_are_devices(name):
    where = alone()
    plain = finished(where, algorithms.make(name, WHOLE, clients=4), rounds=5)
    layered = finished(where, above(name, WHOLE, shuffle=False, clients=4), rounds=5)
    assert plain.round == layered.round == 5
    torch.testing.assert_close(weights(layered), weights(plain), rtol=0, atol=1e-12)


def test_a_user_s_memory_is_its_devices():
    """Control variates stay on devices; a hub that named another slot, or none, would lose them."""
    asked = []

    class Spied(Hub):
        def plan(self, m, lane, ctx):
            m, commands = super().plan(m, lane, ctx)
            asked.extend(c for c in commands if isinstance(c, Task) and isinstance(c.job, Train))
            return m, commands

    hub = Spied(PLAIN, Solve(Search()), True, False, scaled=False)
    where = people()
    cloud = algorithms.make("auxo", PLAIN, inner={"kind": "scaffold"}, **SPLITTING)
    sim = finished(where, Layered(cloud, (("user", hub),)), rounds=6)
    slots = {task.slot for task in asked}
    assert {cohort for cohort, _ in slots} == {"", "0", "1"}
    assert all("control" in task.send for task in asked)
    kept = {slot for task in asked for slot in sim.memories.slots[task.to]}
    assert kept == slots  # of cohorts' control variates; the record of who belongs where is at the gateway
    records = [node for node, slots in sim.memories.slots.items() if "affinity" in slots]
    assert records
    assert min(records) > sim.root


# ------------------------------------------------------------------------------------------------------ runs

STACKS = [
    ("fedavg", FEW),
    ("fedyogi", FEW),
    ("scaffold", FEW),
    ("moon", FEW),
    ("pyramidfl", FEW),
    ("oort", FEW),
    ("heterofl", FEW),
    ("fedasync", FEW),
    ("fedbuff", FEW | {"buffer": 3}),
    ("tifl", FEW | {"tier_count": 2, "interval": 2}),
    ("cfl", FEW),
    ("flexcfl", FEW | {"groups": 2, "pretrain_scale": 2, "pretrain_steps": None}),
    ("auxo", SPLITTING),
]


def stack(name, params):
    if name == "flexcfl":
        params = params | {"pretrain_steps": 2}
        return above(name, shuffle=False, **params)  # it sorts devices by a number of steps
    return above(name, **params)


@pytest.mark.parametrize(("name", "params"), STACKS, ids=[name for name, _ in STACKS])
def test_rules_above_users_run_stored_or_not(name, params):
    where = people(availability=OnOff(3, 30.0, 0.8))
    terms = {"stop": StopAt(rounds=4, device_seconds=150), "often": EvaluateAt(rounds=2)}
    plain = finished(where, stack(name, params), plan=LOOP, **terms)
    assert plain.round >= 2
    assert np.isfinite(values(plain, "accuracy_mean")).all()
    again, _ = chained(where, stack(name, params), plan=LOOP, **terms)
    assert lines(again) == lines(plain)
    stacked = finished(where, stack(name, params), plan=STACKED, **terms)
    assert stacked.now == plain.now
    torch.testing.assert_close(weights(stacked), weights(plain), rtol=0, atol=1e-10)


# ---------------------------------------------------------------------------------------------- what it says


def test_claims_of_a_user_are_its_devices():
    topology = Topology.build(3, ("user",), {"user": np.array([0, 0, 1])})  # nodes 4 and 5
    own = Profiles(
        *(np.array(c, float) for c in ([10, 40, 5, 1, 1, 1], *[[1] * 6] * 3, [7, 3, 2, 99, 99, 99]))
    )
    still = pool_claims(own, topology, [])
    assert still.compute.tolist() == [10, 40, 5, 1, 40, 5]
    assert still.memory.tolist() == [7, 3, 2, 99, 3, 2]
    moving = pool_claims(own, topology, ["user"])
    assert moving.compute.tolist() == [10, 40, 5, 1, 8, 5]  # 1 / (1/10 + 1/40)
    assert moving.up is own.up


def test_rows_of_a_user_are_its_devices():
    where = people()
    sim = finished(where, above("fedavg", **FEW), rounds=2)
    hubs = list(sim.topology.members("user"))
    mine = [sum(len(sim.devices.rows(int(n))) for n in sim.topology.children(hub)) for hub in hubs]
    assert sim.count_rows(hubs) == mine
    assert sum(mine) == sum(where.partition.size(n) for n in range(where.devices))


def test_what_can_not_stand_above_users():
    where = people()
    with pytest.raises(ConfigError, match=r"algorithm: devices answer with 'model', .* users can't make one"):
        check(where, above("ifca", **FEW), EvaluateAt())
    private = replace(PLAIN, privacy=Private(1.0, 1.0))
    with pytest.raises(ConfigError, match=r"train\.privacy.*rows leave devices as they are"):
        users(private)
    # The cloud's own training too, whoever made the hub.
    made = Layered(algorithms.make("fedavg", private), (("user", users(PLAIN)),))
    with pytest.raises(ConfigError, match=r"train\.privacy.*rows leave devices as they are"):
        check(where, made, EvaluateAt())
    check(where, Layered(made.cloud, (("user", users(private, shuffle=False)),)), EvaluateAt())
