"""Rules above users: a hub passes on what the cloud asks for, and answers as one device would."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from edges_by_hand import Hand
from federations import LOCAL, finished, small, weights
from stacks import run_every_way
from support import SPEC, close, numbers

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge.edges import Edges
from potluck.algorithms.shufflefl.gateway import Solve
from potluck.algorithms.shufflefl.hub import Hub
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.users import make_users
from potluck.core.errors import ConfigError
from potluck.core.messages import Task
from potluck.engine.acceptance import check
from potluck.engine.schedule import EvaluateAt
from potluck.fleet import OnOff, Profiles, Topology, pool_claims
from potluck.jobs import SGD, Private, Prox, Train
from potluck.layers.stacking import put_below
from potluck.rules.edges import EVERYBODY, Edge, OwnModels
from potluck.rules.layered import Layered
from potluck.rules.relay import Relay

JOB = Train(SPEC)
PLAIN = replace(LOCAL, optim=SGD(0.1))
WHOLE = replace(PLAIN, batch=64)  # one step on all rows, in whatever order
FEW = {"clients": 4}
SPLITTING = {"clients": 4, "cohorts": 2, "force": (2,), "first_split": 1}


def users(local=PLAIN, shuffle=True, cap=True):
    return make_users(local, Search(), "pi4", None, 1.0, True, True, shuffle, cap, True)


def above(name, local=PLAIN, shuffle=True, cap=True, **params):
    return put_below(algorithms.make(name, local, **params), None, users(local, shuffle, cap))


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
    layered = finished(where, above(name, WHOLE, shuffle=False, cap=False, clients=4), rounds=5)
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

    hub = Spied(PLAIN, Solve(Search()), True, False)
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
        return above(name, shuffle=False, cap=False, **params)  # it sorts devices by a number of steps
    return above(name, **params)


QUICK = ("scaffold", "auxo")  # the others are for the night


@pytest.mark.parametrize(
    ("name", "params"),
    [
        pytest.param(name, params, id=name, marks=() if name in QUICK else pytest.mark.nightly)
        for name, params in STACKS
    ],
)
def test_rules_above_users_run_stored_or_not(name, params):
    run_every_way(people(availability=OnOff(3, 30.0, 0.8)), stack(name, params), EvaluateAt(rounds=2))


# ----------------------------------------------------------------------------------------------------- edges


def plain_edges(name, local=PLAIN, **params):
    return Layered(algorithms.make(name, local, **params), (("edge", Relay()),))


def edges_that_go_on(name, local=PLAIN, **params):
    edge = OwnModels(Edge(FedAvg(EVERYBODY, local), mix="half", passes=True))
    return Layered(algorithms.make(name, local, **params), (("edge", edge),))


def region(count=1, **more):
    return small(edges=count, compute=4e5, **more)


def test_plain_edges_are_hierfl():
    where = region(3)
    plain = finished(where, plain_edges("fedavg", clients=10), rounds=4)
    edges = finished(where, algorithms.make("hierfl", PLAIN), rounds=4)
    assert torch.equal(weights(plain), weights(edges))
    assert plain.now == edges.now


def test_one_edge_that_goes_on_is_fededge():
    """The cloud's training reaches devices whatever edges would train by: here it is FedProx's."""
    where, near = region(2), {"mix": "half", "clients": 10}
    layered = finished(where, edges_that_go_on("fedprox", clients=10, mu=0.5), rounds=4)
    inner = {"kind": "fedprox", "mu": 0.5}
    edges = finished(where, algorithms.make("fededge", PLAIN, inner=inner, anchor="edge", **near), rounds=4)
    assert torch.equal(weights(layered), weights(edges))
    assert not torch.equal(weights(layered), weights(finished(where, edges_that_go_on("fedavg"), rounds=4)))


def test_scaffold_stands_above_plain_edges_alone():
    where = region(3)
    sim = finished(where, plain_edges("scaffold", clients=3), rounds=4)
    assert any(float(t.abs().max()) > 0 for t in sim.cloud.own.state.model.control.values())
    told = r"tell more than the change of a model \(%s\).*go_on = false"
    with pytest.raises(ConfigError, match=told % "Correct"):
        check(where, edges_that_go_on("scaffold", clients=3), EvaluateAt())
    later = {"fedpvr": "Correct", "pyramidfl": "Thin"}  # whose jobs are made as they are planned
    for name, job in later.items():
        with pytest.raises(ConfigError, match=told % job):
            finished(where, edges_that_go_on(name, clients=3), rounds=2)
    other = replace(PLAIN, model=replace(PLAIN.model, width=0.06))
    edge = Edge(FedAvg(EVERYBODY, other), passes=True)
    with pytest.raises(ConfigError, match="give all one model"):
        check(where, Layered(algorithms.make("fedavg", PLAIN), (("edge", edge),)), EvaluateAt())


def test_an_edge_keeps_a_model_for_one_of_the_cloud_s_groups():
    """Of another group it begins with what comes, mixes nothing, and trains in that group's memory."""
    edge = Hand(Edge(FedAvg(2, JOB), mix="half", passes=True))
    job = replace(JOB, objective=Prox(0.5))
    _, sent, _ = edge.told(1.0, 0.0, 1, job=job, slot="a")
    assert {(t.job, t.slot) for t in sent} == {(job, "a")}
    (_,), sent, _ = edge.trained(sent, 2.0)
    edge.told(1.0, 4.0, 2, job=job, slot="a")
    (told,), sent, said = edge.trained(sent, 0.0)
    assert close(told.body["delta"], numbers(1.0, -2.0))  # half of (3, 0) and half of (1, 4)
    assert "mixed" in said
    edge.told(9.0, 0.0, 3, job=JOB, slot="b")
    _, sent, _ = edge.trained(sent, 7.0)  # the round at hand was of the other group
    assert {(t.job, t.slot) for t in sent} == {(JOB, "b")}
    assert close(sent[0].send["params"], numbers(9.0))
    (told,), _, said = edge.trained(sent, 2.0)
    assert close(told.body["delta"], numbers(2.0))
    assert said == {"local_rounds": 1}  # and nothing was mixed
    assert {view.slot for view in edge.rule.serve(edge.state.model, 0, edge.ctx).values()} == {"b"}


EDGED = [
    (plain_edges, "auxo", SPLITTING),
    (plain_edges, "scaffold", FEW),
    (edges_that_go_on, "auxo", SPLITTING),
    (edges_that_go_on, "fedyogi", FEW),
    (edges_that_go_on, "moon", FEW),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("make", "name", "params"), EDGED, ids=[f"{m.__name__} {n}" for m, n, _ in EDGED])
def test_rules_above_edges_run_stored_or_not(make, name, params):
    where = region(5, availability=OnOff(3, 30.0, 0.8))
    run_every_way(where, make(name, **params), EvaluateAt(rounds=2))


@pytest.mark.nightly
def test_users_stand_below_edges():
    where = small(users=5, edges=3, compute=4e5)
    stack = put_below(algorithms.make("auxo", PLAIN, **SPLITTING), Edges(Relay()), users())
    sim = run_every_way(where, stack, EvaluateAt(rounds=2))
    gateways = [node for node, slots in sim.memories.slots.items() if "affinity" in slots]
    assert {sim.topology.tier(node) for node in gateways} == {"edge"}  # whom the cloud asks


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
    made = Layered(algorithms.make("fedavg", private), (("user", users(PLAIN).hub),))
    with pytest.raises(ConfigError, match=r"train\.privacy.*rows leave devices as they are"):
        check(where, made, EvaluateAt())
    check(where, Layered(made.cloud, (("user", users(private, shuffle=False).hub),)), EvaluateAt())
