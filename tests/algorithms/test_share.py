"""SHARE: the shape of a hierarchy, by labels and by traffic, and averages of its edges."""

from dataclasses import replace
from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, SIZES, STACKED, finished, small, values, weights
from support import SPEC, Desk, Line, answer, notes, numbers, tasks

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.share.algorithm import CENSUS, Share
from potluck.algorithms.share.topology import associate, divergence, find_shape, traffic
from potluck.core.errors import ConfigError
from potluck.core.messages import Lost, Reply, Spent
from potluck.core.rule import Got
from potluck.engine.schedule import StopAt
from potluck.jobs import SGD, LabelCounts, Private, Train
from potluck.rules import Rounds

JOB = Train(SPEC, optim=SGD(0.1), batch=4)
PAIRS = np.array([[2.0, 0], [2, 0], [0, 2], [0, 2]])


class TwoClasses(Line):
    classes = 2


def desk(devices=4, **more):
    return Desk(models={SPEC: TwoClasses()}, children=range(devices), **more)


# ------------------------------------------------------------------------------------------------ the shape


def test_divergence_by_hand():
    share = np.array([0.5, 0.5])
    # 1/4 ln(1/2) + 3/4 ln(3/2)
    assert divergence(np.array([1.0, 3.0]), share) == pytest.approx(0.25 * log(0.5) + 0.75 * log(1.5))
    assert divergence(np.array([[5.0, 5.0], [7.0, 0.0], [0.0, 0.0]]), share) == pytest.approx([0, log(2), 0])


def test_traffic_by_hand():
    claims = SimpleNamespace(up=np.array([8.0, 4.0]), down=np.array([8.0, 2.0]), latency=np.array([0.5, 0.0]))
    near, far = traffic(claims, nbytes=1)
    # Between both, 8 bits: up at min(8, 2), down at min(8, 4), and half a second of latency each way:
    # 4 + 2 + 1 = 7 s, the unit. To the cloud: 1 + 1 + 1 = 3 s and 2 + 4 + 0 = 6 s.
    assert near == pytest.approx(np.array([[0, 1], [1, 0]]))
    assert far == pytest.approx(np.array([3, 6]) / 7)


def test_unlike_devices_come_together():
    none, free = np.zeros((4, 4)), np.zeros(4)
    shape = associate(PAIRS, none, free, [0, 1], 2, gamma=1.0, nearness=1)
    # Either edge would fall from ln 2 to 0: of equals the first, then the other, which alone has room.
    assert shape.edge == (0, 1, 0, 1)
    assert shape.divergence == 0
    assert associate(PAIRS, none, free, [0, 2], 2, 1.0, 1).edge == (0, 2, 2, 0)


def test_traffic_alone():
    near = np.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 9, 1, 0]], float)
    shape = associate(PAIRS, near, np.ones(4), [0, 2], 2, gamma=0.0, nearness=10)
    assert shape.edge == (0, 0, 2, 2)
    # Two hops to the cloud, and ten times two devices one unit away; labels are as far as can be.
    assert shape.traffic == 22
    assert shape.divergence == pytest.approx(log(2))
    # With gamma 100, a device's 90 units of way aren't worth ln 2 / 2 of divergence; with 500 they are.
    assert associate(PAIRS, near, np.ones(4), [0, 2], 2, 100.0, 10).edge == (0, 0, 2, 2)
    assert associate(PAIRS, near, np.ones(4), [0, 2], 2, 500.0, 10).edge == (0, 2, 2, 0)


def test_edges_are_full_at_their_capacity():
    near = np.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 9, 1, 0]], float)
    assert associate(PAIRS, near, np.ones(4), [0, 1], 2, 0.0, 1).edge == (0, 1, 0, 1)
    assert associate(PAIRS, near, np.ones(4), [0], 3, 0.0, 1) is None


def test_local_search_swaps_and_closes():
    # Devices 0 and 1 are best connected to the cloud, but far from 2 and 3; 2 and 3 are near each other.
    near = np.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 9, 1, 0]], float)
    far = np.array([1.0, 1.0, 2.0, 2.0])
    shape = find_shape(PAIRS, near, far, 2, gamma=0.0, nearness=1)
    assert shape.edge == (0, 0, 2, 2) or shape.edge == (1, 1, 2, 2)
    assert shape.cost == 1 + 2 + 1 + 1
    # Edges that cost nothing to reach but much to the cloud: one is enough, if it has room.
    shape = find_shape(PAIRS, np.zeros((4, 4)), np.array([5.0, 4.0, 5.0, 5.0]), 2, 0.0, 1, capacity=4)
    assert shape.hosts == (1,)


def test_local_search_finds_the_best_of_all():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (7, 3)).astype(float)
    near = rng.uniform(0.5, 2, (7, 7))
    np.fill_diagonal(near, 0)
    far = rng.uniform(0.5, 2, 7)
    best = min(
        associate(counts, near, far, [a, b], 4, 20.0, 2).cost for a in range(7) for b in range(a + 1, 7)
    )
    assert find_shape(counts, near, far, 2, 20.0, 2).cost == pytest.approx(best)


# ------------------------------------------------------------------------------------------------- the rule


def surveyed(rule, ctx, counts):
    m = rule.start(ctx)
    assert rule.lanes(m, ctx) == (CENSUS,)
    m, commands = rule.plan(m, CENSUS, ctx)
    assert all(isinstance(t.job, LabelCounts) for t in tasks(commands))
    got = [Reply(t, {"counts": torch.tensor(counts[t.to])}, 1.0, {}, Spent()) for t in tasks(commands)]
    return rule.merge(m, CENSUS, Got(got, []), ctx)


def labels():
    return PAIRS.astype(int).tolist()


def test_labels_are_asked_for_and_edges_balance():
    rule = Share(JOB, edges=2)
    m, told = surveyed(rule, desk(), labels())
    for edge in m.edges:
        assert np.array([labels()[n] for n in edge]).sum(0).tolist() == [2, 2]
    facts = dict(notes(told))["shape"]
    assert facts["sizes"] == [2, 2]
    assert facts["divergence"] == 0
    assert rule.lanes(m, desk()) == (0, 1)


def test_edges_average_and_then_the_cloud():
    rule = Share(JOB, edges=2, edge_rounds=2)
    m, _ = surveyed(rule, desk(), labels())
    ctx = desk()
    for lane, change in ((0, 1.0), (1, 10.0)):
        m, commands = rule.plan(m, lane, ctx)
        first, second = tasks(commands)
        assert {first.to, second.to} == set(m.edges[lane])
        replies = [answer(first, w=change, weight=1), answer(second, w=3 * change, weight=3)]
        m, _ = rule.merge(m, lane, Got(replies, []), ctx)
    # (1 + 3 * 3) / 4 = 2.5, and ten times that.
    assert [p["w"].item() for p in m.models] == [2.5, 25.0]
    assert m.round == 0
    assert m.params == numbers()
    assert rule.lanes(m, desk()) == (0, 1)
    ctx = desk()
    m, commands = rule.plan(m, 0, ctx)
    assert all(t.send["params"] == m.models[0] for t in tasks(commands))
    m, _ = rule.merge(m, 0, Got([answer(tasks(commands)[0], w=0.5, weight=2)], []), ctx)
    assert rule.lanes(m, desk()) == (1,)  # the first edge waits
    m, commands = rule.plan(m, 1, ctx)
    m, _ = rule.merge(m, 1, Got([], [Lost(t, "gone") for t in tasks(commands)]), ctx)
    # Edges at 3 and 25, with 4 + 2 and 4 samples: (6 * 3 + 4 * 25) / 10.
    assert m.params["w"].item() == pytest.approx(11.8)
    assert m.round == 1
    assert [p["w"].item() for p in m.models] == pytest.approx([11.8, 11.8])
    assert m.done == (0, 0)


def test_new_devices_are_asked_between_two_rounds_of_the_cloud():
    rule = Share(JOB, edges=2, edge_rounds=1)
    m, _ = surveyed(rule, desk(busy={3}), labels())
    assert sorted(n for edge in m.edges for n in edge) == [0, 1, 2]
    assert rule.lanes(m, desk()) == (0, 1)  # the round comes first
    ctx = desk(busy={3})
    for lane in (0, 1):
        m, commands = rule.plan(m, lane, ctx)
        m, _ = rule.merge(m, lane, Got([answer(t) for t in tasks(commands)], []), ctx)
    assert m.round == 1
    assert rule.lanes(m, desk(busy={3})) == (0, 1)  # nobody new is there
    assert rule.lanes(m, desk()) == (CENSUS,)
    m, commands = rule.plan(m, CENSUS, desk())
    assert [t.to for t in tasks(commands)] == [3]
    said = Reply(tasks(commands)[0], {"counts": torch.tensor([0, 2])}, 1.0, {}, Spent())
    m, _ = rule.merge(m, CENSUS, Got([said], []), desk())
    assert sorted(n for edge in m.edges for n in edge) == [0, 1, 2, 3]
    assert rule.lanes(m, desk()) == (0, 1)


def test_who_refuses_is_left_out_of_the_next_shape():
    rule = Share(JOB, edges=1, edge_rounds=1)
    m, _ = surveyed(rule, desk(), labels())
    m, commands = rule.plan(m, 0, desk())
    by = {t.to: t for t in tasks(commands)}
    m, told = rule.merge(m, 0, Got([answer(by[0]), answer(by[2])], [Lost(by[1], "refused")]), desk())
    assert m.edges == ((0, 2, 3),)
    assert dict(notes(told))["shape"]["sizes"] == [3]
    assert rule.lanes(m, desk()) == (0,)


def test_one_edge_is_fedavg():
    """Of all devices, each with one batch, so that seeds of tasks don't matter."""
    stop, one = StopAt(rounds=3), replace(LOCAL, batch=max(SIZES))
    mine = finished(small(), Rounds(Share(one, edges=1, edge_rounds=1)), stop=stop, plan=LOOP)
    assert values(mine, "shape")[0]["sizes"] == [10]
    plain = finished(small(), Rounds(FedAvg(10, one)), stop=stop, plan=LOOP)
    torch.testing.assert_close(weights(mine), weights(plain), rtol=0, atol=1e-12)


def test_views():
    sim = finished(small(), Rounds(Share(LOCAL, edges=3, edge_rounds=2)), stop=StopAt(rounds=2), plan=STACKED)
    assert len(values(sim, "accuracy", view="edge", node=0)) >= 1
    assert len(values(sim, "global_accuracy", view="global")) >= 1
    facts = values(sim, "shape")
    assert len(facts) == 1
    assert max(facts[0]["sizes"]) <= 4  # ten devices, three edges
    assert sum(facts[0]["sizes"]) == 10


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"edges": 0}, "edges = 0"),
        ({"edge_rounds": 0}, "edge_rounds = 0"),
        ({"gamma": -1.0}, "gamma = -1.0"),
        ({"nearness": -1.0}, "nearness = -1.0"),
        ({"capacity": 0}, "capacity = 0"),
        ({"clients": 0}, "clients = 0"),
    ],
)
def test_wrong_settings(wrong, told):
    with pytest.raises(ConfigError, match=told):
        algorithms.make("share", LOCAL, **wrong)


def test_edges_that_are_too_small():
    with pytest.raises(ConfigError, match="capacity = 1: 2 edges can't take 4 devices"):
        surveyed(Share(JOB, edges=2, capacity=1), desk(), labels())


def test_crowds_that_are_too_large():
    with pytest.raises(ConfigError, match=r"data\.clients = 6000.*use hierfl"):
        Share(JOB).fits(SimpleNamespace(devices=6000))


def test_privacy_would_not_cover_it():
    with pytest.raises(ConfigError, match=r"train\.privacy"):
        Share(replace(LOCAL, privacy=Private(1.0, 1.0)))
