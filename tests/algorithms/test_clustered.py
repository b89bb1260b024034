"""Groups with models of their own: CFL, FL+HC and FlexCFL, by hand and in small federations."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, SIZES, STACKED, finished, pool, simulate, small, values
from support import SPEC, Desk, Line, answer, close, notes, numbers, tasks
from support import local as device

from potluck import algorithms
from potluck.algorithms.cfl import CFL, FirstRounds, Lengths, extend_first, halve, measure_lengths
from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.flexcfl.algorithm import FlexCFL, embed, find_clusters, mix_models
from potluck.algorithms.flexcfl.device import Recount
from potluck.algorithms.flhc import FLHC, find_gap
from potluck.algorithms.flhc import find_clusters as tree_clusters
from potluck.core.errors import ConfigError
from potluck.core.job import ModelSpec
from potluck.core.messages import Lost
from potluck.core.rule import Got
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.experiment import Experiment
from potluck.experiment.prepare import prepare
from potluck.fleet import Intervals
from potluck.jobs import SGD, Train
from potluck.rules import Adaptive, Rounds
from potluck.rules.grouped import (
    DOOR,
    ROOT,
    Fork,
    GroupRounds,
    Groups,
    find_largest,
    move_devices,
    share_out,
    split_group,
)
from potluck.rules.vectors import distances, flatten, mean_rows, normalise, number_clusters

LINE = Train(SPEC)


class Two(Line):
    classes = 2


def desk(children=range(4)):
    return Desk(models={SPEC: Two()}, children=children)


def asked(commands):
    return {t.to: t for t in tasks(commands)}


def reply(rule, s, ctx, said):
    """Answer tasks one after another: `said` maps a task to the w of its delta, or to why it is lost."""
    out = []
    for task, told in said:
        ctx = ctx.later(busy={n for n in ctx.busy if n != task.to})
        event = Lost(task, told) if isinstance(told, str) else answer(task, told)
        s, commands = rule.receive(s, event, ctx)
        out += commands
    return s, out, ctx


# ------------------------------------------------------------------------------------------ shared budget


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ((6, 3, 1), 10, [6, 3, 1]),
        ((90, 9, 1), 10, [8, 1, 1]),  # exactly 9, 0.9, 0.1: nobody may be left out
        ((5, 5, 5), 10, [4, 3, 3]),
        ((5, 5, 5), 2, [1, 1, 1]),  # they take turns
        ((2, 8), 10, [2, 8]),
    ],
)
def test_shares_follow_members(sizes, total, expected):
    assert share_out(sizes, total) == expected


def test_the_door_gets_no_more_than_half():
    groups = GroupRounds(FedAvg(local=LINE), LINE, clients=10)
    ctx = desk(range(100))
    m = groups.start(None, ctx)
    assert groups.allot(m, ctx) == {ROOT: 10}
    m, _ = split_group(m, ROOT, numbers(), [m.leaf[ROOT]] * 2, range(20), [0] * 15 + [1] * 5, np.eye(2))
    assert groups.allot(m, ctx) == {DOOR: 5, "0": 4, "1": 1}  # 80 of 100 are unsorted
    m = move_devices(m, dict.fromkeys(range(20, 70), "0"))
    assert groups.allot(m, ctx) == {DOOR: 3, "0": 6, "1": 1}
    m = move_devices(m, dict.fromkeys(range(70, 100), "1"))
    assert groups.allot(m, ctx) == {"0": 7, "1": 3}  # 65 and 35 of 100, the first of a tie


@pytest.mark.parametrize("clients", [1, 2, 5])
@pytest.mark.parametrize(
    "rule",
    [
        CFL(LOCAL, eps1=100.0, eps2=0.0, min_round=1, min_members=2),
        FLHC(LOCAL, first_rounds=1, reach=0.6),
        FlexCFL(LOCAL, groups=3, pretrain_scale=1, pretrain_steps=2, shift=0),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_groups_share_the_devices_of_one_model(rule, clients):
    sim = simulate(small(compute=4e5), replace(rule, clients=clients), rounds=30)
    sim.start()
    most = 0
    while sim.step():
        most = max(most, sim.devices.queues.count())
    sim.close()
    state = sim.points[sim.root].own.state.model
    assert most == clients
    if clients > 1 or not isinstance(rule, CFL):  # one device alone shows no disagreement
        assert len(state.leaf) > 1
        assert all(
            inner.round > 0 for inner in state.leaf.values()
        )  # also those with more groups than devices
    assert sim.accounts.tasks <= 31 * clients


# ------------------------------------------------------------------------------------------------ vectors


def test_distances_by_hand():
    rows, points = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[4.0, 3.0], [-3.0, -4.0]])
    assert distances(rows, points, "cosine") == pytest.approx(np.array([[0.04, 2.0], [1.0, 1.0]]))
    assert distances(rows, points, "euclidean") == pytest.approx(np.array([[2**0.5, 10.0], [5.0, 5.0]]))
    assert distances(rows, points, "manhattan") == pytest.approx(np.array([[2.0, 14.0], [7.0, 7.0]]))
    assert number_clusters([5, 2, 5, 9]).tolist() == [0, 1, 0, 2]
    assert mean_rows(rows + 1, np.array([0, 0])).tolist() == [[2.5, 3.0]]


def test_a_sketch_keeps_lengths_and_angles():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50_000))
    c = a + 0.5 * b
    short = np.stack([flatten({"p": torch.tensor(v)}, 4096) for v in (a, b, c)])
    assert short.shape == (3, 4096)
    assert short[2] == pytest.approx(
        short[0] + 0.5 * short[1]
    )  # linear, so means of sketches are sketches of means
    whole = np.stack([a, b, c])
    assert normalise(short) @ normalise(short).T == pytest.approx(
        normalise(whole) @ normalise(whole).T, abs=0.06
    )
    assert np.linalg.norm(short, axis=1) == pytest.approx(np.linalg.norm(whole, axis=1), rel=0.05)
    assert flatten({"p": torch.tensor(a[:10]), "q": torch.tensor([[7.0]])}, 4096).tolist() == [*a[:10], 7.0]


# ---------------------------------------------------------------------------------------------------- CFL


def test_cfl_lengths_by_hand():
    weights = (1.0, 50.0, 7.0)  # samples don't count
    updates = ((3.0, 4.0), (-3.0, -4.0), (0.3, 0.0))  # mean (0.1, 0); lengths 5, 5, 0.3
    replies = [answer(None, *update, weight=n) for update, n in zip(updates, weights, strict=True)]
    found = measure_lengths(replies)
    assert (found.mean, found.single, found.longest) == pytest.approx((0.1, 10.3 / 3, 5.0))
    first = FirstRounds()
    for single in (4.0, 1.0, 7.0, 100.0):  # the first three rounds, and one that comes too late
        first = extend_first(first, Lengths(0.0, single, single))
    assert (first.rounds, first.single) == (3, pytest.approx(4.0))


def test_cfl_criterion_by_hand():
    now, first = Lengths(mean=0.5, single=3.0, longest=5.0), FirstRounds(3, 4.0)
    assert CFL(LINE).is_at_rest(now, first)  # 0.5 < 0.2 x 3, and 3 > 0.6 x 4
    assert not CFL(LINE, rest=0.16).is_at_rest(now, first)  # 0.48
    assert not CFL(LINE, apart=0.75).is_at_rest(now, first)  # 3, not more
    assert CFL(LINE, eps1=0.6, eps2=4.9).is_at_rest(now, first)  # as in the authors' code: 0.5 and 5
    assert not CFL(LINE, eps1=0.5, eps2=4.9).is_at_rest(now, first)
    assert not CFL(LINE, eps1=0.6, eps2=5.0).is_at_rest(now, first)
    assert CFL(LINE, eps1=0.6).is_at_rest(now, first)  # each length on its own
    tenfold = Lengths(5.0, 30.0, 50.0), FirstRounds(3, 40.0)
    assert CFL(LINE).is_at_rest(*tenfold)  # whatever the rate
    assert not CFL(LINE, eps1=0.6, eps2=4.9).is_at_rest(*tenfold)


def test_cfl_cuts_by_angle_not_by_length():
    # Complete linkage joins 0-10 and 80-100 degrees, and then these two (they span 100, 80-190 spans 110).
    angles = np.deg2rad([0, 10, 80, 100, 190])
    rows = np.stack([np.cos(angles), np.sin(angles)], 1) * np.array([[1], [100], [0.01], [5], [1]])
    assert halve(rows).tolist() == [0, 0, 0, 0, 1]
    assert halve(rows[[0, 1, 3, 4]]).tolist() == [0, 0, 1, 1]  # 100-190 spans 90, 0-100 spans 100


def test_cfl_splits_and_each_half_goes_its_own_way():
    rule = Rounds(CFL(LINE, min_round=1))
    ctx = desk(range(6))
    s, commands = rule.init(ctx)
    first = asked(commands)
    assert sorted(first) == list(range(6))  # `clients` left out: everybody
    s, commands, ctx = reply(rule, s, ctx, [(first[n], 2.0 if n < 3 else -2.0) for n in range(6)])
    assert list(s.model.leaf) == [ROOT]  # at rest, but not in the first round
    second = asked(commands)
    told = [(second[n], w) for n, w in ((0, 2.0), (1, 4.0), (3, -2.0), (4, -4.0))]
    s, commands, ctx = reply(rule, s, ctx, [*told, (second[2], "gone"), (second[5], "gone")])
    assert list(s.model.leaf) == ["0", "1"]
    sides = {n: s.model.at.get(n) for n in range(6)}
    near = sides[0]
    far = "1" if near == "0" else "0"
    assert sides == {0: near, 1: near, 2: None, 3: far, 4: far, 5: None}
    assert s.model.leaf[near].params["w"].item() == pytest.approx(3.0)  # the mean of its own updates alone
    assert s.model.leaf[far].params["w"].item() == pytest.approx(-3.0)
    # Lengths 2, 4, 2, 4, in the first round 2 each: 3 on average, of (2 + 3) / 2.
    seen = {"mean": 0.0, "longest": 4.0, "rest": 0.0, "apart": pytest.approx(1.2)}
    split = {"round": 2, "sizes": {"0": 2, "1": 2}, "groups": 2}
    assert notes(commands) == [("lengths", seen), ("split", split)]

    third = asked(commands)
    assert all(third[n].slot == sides[n] for n in (0, 1, 3, 4) if n in third)
    door = [t for t in third.values() if t.tag == ROOT]
    assert {t.to for t in door} == {2, 5}
    assert all(close(t.send["params"], numbers(0.0)) for t in door)  # the model of the moment of the cut
    s, _, ctx = reply(rule, s, ctx, [(third[2], 0.7), (third[5], -0.7)])
    assert (s.model.at[2], s.model.at[5]) == (near, far)


@pytest.mark.parametrize(
    ("eps", "rounds"),
    [
        ({}, [[2.0, 2.1, 1.9, 2.0]]),  # a long mean
        ({}, [[2.0, 2.1, 1.9, 2.0], [0.1, -0.1, 0.1, -0.1]]),  # single ones have become short with it
        ({"eps1": 0.4, "eps2": 1.6}, [[2.0, 2.1, 1.9, 2.0]]),
        ({"eps1": 0.4, "eps2": 1.6}, [[0.1, -0.1, 0.1, -0.1]]),
    ],
)
def test_cfl_does_not_split_those_who_agree(eps, rounds):
    rule, ctx = Rounds(CFL(LINE, min_round=0, **eps)), desk()
    s, commands = rule.init(ctx)
    for answers in rounds:
        s, commands, ctx = reply(rule, s, ctx, list(zip(tasks(commands), answers, strict=True)))
    assert list(s.model.leaf) == [ROOT]
    assert s.model.round == len(rounds)


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_cfl_finds_the_kinds_that_there_are_whatever_the_momentum(kinds, momentum):
    groups = {"groups": {"kind": "permutation", "count": 2}} if kinds == 2 else {}
    tables = {
        "data": {"clients": 30, "partition": "iid", **groups},
        "model": {"name": "linear"},
        "train": {"lr": 0.05, "momentum": momentum, "batch": 10},
        "algorithm": "cfl",
    }
    made = prepare(Experiment(name="kinds", seed=1, **tables))
    sim = finished(
        made.federation, made.algorithm, rounds=40, seed=1, often=EvaluateAt(rounds=40), plan=STACKED
    )
    state, kind = sim.points[sim.root].own.state.model, made.federation.fleet.group
    assert len(state.leaf) == kinds
    if kinds == 2:
        assert len({(at, int(kind[node])) for node, at in state.at.items()}) == 2  # each group is of one kind
        assert len(state.at) == 30


def test_a_group_is_cut_again_below_its_name():
    m = Groups(None, {"0": 1, "1": 2}, {}, {5: "1", 6: "1", 7: "1", 8: "0"}, {"0": 1, "1": 3}, {})
    m, note = split_group(m, "1", numbers(), [3, 4], [5, 6], [1, 0], np.eye(2))
    assert m.leaf == {"0": 1, "1.0": 3, "1.1": 4}
    assert m.at == {8: "0", 7: "1", 5: "1.1", 6: "1.0"}  # 7 was absent: it waits at the fork
    assert m.sizes == {"0": 1, "1": 1, "1.1": 1, "1.0": 1}
    assert note.group == "1"
    assert find_largest(move_devices(m, {9: "1.1"}), "1") == "1.1"
    assert find_largest(move_devices(m, {9: "1.1"}), "0") == "0"


# --------------------------------------------------------------------------------------------- at the door


def test_who_cannot_be_sorted_goes_where_most_are():
    groups = GroupRounds(FedAvg(local=LINE), LINE, clients=4)
    ctx = desk(range(8))
    m = groups.start(None, ctx)
    m, _ = split_group(
        m, ROOT, numbers(), [m.leaf[ROOT]] * 2, [0, 1, 2], [0, 1, 1], np.array([[1.0, 0], [-1.0, 0]])
    )
    m, commands = groups.plan(m, DOOR, ctx)
    bad, late, *_ = tasks(commands)
    m, _ = groups.merge(m, DOOR, Got([], [Lost(bad, "bad"), Lost(late, "late")]), ctx)
    assert m.at[bad.to] == "1"
    assert late.to not in m.at  # it may be asked again
    assert m.busy == {}


def test_members_are_served_their_group_and_strangers_may_choose():
    groups = GroupRounds(FedAvg(local=LINE), LINE)
    ctx = desk()
    m = groups.start(None, ctx)
    assert list(groups.serve(m, ctx.me, ctx)) == ["cohort all"]
    states = [replace(m.leaf[ROOT], params=numbers(w)) for w in (1.0, 2.0)]
    m, _ = split_group(m, ROOT, numbers(), states, [0, 1, 2], [0, 1, 1], np.eye(2))
    served = [groups.serve(m, node, ctx)["cohort"].send["params"]["w"].item() for node in range(3)]
    assert served == [1.0, 2.0, 2.0]
    offered = groups.serve(m, 3, ctx)["cohort"]
    assert [task.send["params"]["w"].item() for task in offered.tasks.values()] == [1.0, 2.0]
    rows = device([-1.0, 1.0], [0, 1], offered.send)
    assert offered.job.run(rows).body == "1"  # the steeper line fits these better; no test row is read
    at_cloud = groups.serve(m, ctx.me, ctx)
    assert {view: t.send["params"]["w"].item() for view, t in at_cloud.items()} == {
        "cohort 0": 1.0,
        "cohort 1": 2.0,
    }


# -------------------------------------------------------------------------------------------------- FL+HC


def test_hierarchical_clusters_by_hand():
    rows = np.array([[0.0], [1.0], [10.0], [11.5], [40.0]])
    assert tree_clusters(rows, "euclidean", "single", 2.0, 6).tolist() == [
        0,
        0,
        1,
        1,
        2,
    ]  # merges at 1, 1.5, 9, 28.5
    assert tree_clusters(rows, "euclidean", "single", 9.5, 6).tolist() == [0, 0, 0, 0, 1]
    assert tree_clusters(rows, "euclidean", "complete", 11.0, 6).tolist() == [
        0,
        0,
        1,
        1,
        2,
    ]  # 1, 1.5, 11.5, 40
    assert tree_clusters(rows, "manhattan", "average", 11.0, 6).tolist() == [
        0,
        0,
        0,
        0,
        1,
    ]  # third merge at 10.25
    beams = np.array([[1.0, 0], [9, 1], [0, 2], [1, 7]])
    assert tree_clusters(beams, "cosine", "average", 0.5, 6).tolist() == [0, 0, 1, 1]
    # Ward: a union of n and m points at distance d costs sqrt(2 n m / (n + m)) d, here sqrt(2) 10.25.
    assert tree_clusters(rows, "euclidean", "ward", 14.0, 6).tolist() == [0, 0, 1, 1, 2]
    assert tree_clusters(rows, "euclidean", "ward", 15.0, 6).tolist() == [0, 0, 0, 0, 1]


def test_without_a_threshold_the_tree_is_cut_at_its_widest_gap():
    assert find_gap(np.array([1.0, 1.5, 9.0, 28.5]), 6) == (9.0 + 28.5) / 2  # 2 clusters
    assert find_gap(np.array([1.0, 1.5, 25.0, 28.5]), 6) == (1.5 + 25.0) / 2  # 3
    assert find_gap(np.array([1.0, 20.0, 25.0, 28.5]), 3) == (20.0 + 25.0) / 2  # the wider gap would leave 4
    same = np.ones((5, 3))
    assert tree_clusters(same, "euclidean", "ward", None, 6).tolist() == [0] * 5
    assert tree_clusters(same[:1], "euclidean", "ward", None, 6).tolist() == [0]


def test_flhc_asks_everybody_once_then_parts():
    rule = Rounds(FLHC(LINE, clients=3, first_rounds=1, reach=1.0))
    ctx = desk(range(5))
    s, commands = rule.init(ctx)
    s, commands, ctx = reply(
        rule, s, ctx, [(t, 1.0) for t in tasks(commands)]
    )  # a round of federated averaging
    heard, sides = {}, {0: 1.0, 1: 1.1, 2: -2.0, 3: -2.1, 4: 0.9}
    while list(s.model.leaf) == [ROOT]:
        wave = tasks(commands)
        assert 1 <= len(wave) <= 3
        assert all(close(t.send["params"], numbers(1.0)) for t in wave)  # all train the same model
        for t in wave:
            heard[t.to] = heard.get(t.to, 0) + 1
        told = [(t, "gone" if t.to == 4 and heard[4] == 1 else sides[t.to]) for t in wave]
        s, commands, ctx = reply(rule, s, ctx, told)
    assert heard == {0: 1, 1: 1, 2: 1, 3: 1, 4: 2}  # one that was lost is asked again
    at = s.model.at
    assert at[0] == at[1] == at[4] != at[2] == at[3]
    assert all(close(inner.params, numbers(1.0)) for inner in s.model.leaf.values())
    assert s.model.fork[ROOT].ways[at[0]] == pytest.approx([1.0, 0.0])
    assert s.model.more.updates == []  # they aren't kept
    assert {t.to for t in tasks(commands)} <= set(range(5))
    assert len(tasks(commands)) == 3


def test_flhc_parts_without_those_who_never_answer():
    rule = Rounds(FLHC(LINE, clients=4, first_rounds=0, reach=1.0))
    ctx = desk()
    s, commands = rule.init(ctx)
    waves = 0
    while list(s.model.leaf) == [ROOT]:
        waves += 1
        told = [(t, {0: 1.0, 1: -1.0, 2: "bad", 3: "gone"}[t.to]) for t in tasks(commands)]
        s, commands, ctx = reply(rule, s, ctx, told)
    assert waves == 3  # bad: never again; gone: three times
    assert sorted(s.model.at) == [0, 1]


def test_a_census_in_which_nobody_answers_begins_again():
    rule = Rounds(FLHC(LINE, clients=4, first_rounds=0))
    ctx = desk()
    s, commands = rule.init(ctx)
    for _ in range(3):
        s, commands, ctx = reply(rule, s, ctx, [(t, "gone") for t in tasks(commands)])
    assert s.model.more.vain == {}
    assert len(tasks(commands)) == 4


# ------------------------------------------------------------------------------------------------ FlexCFL


def test_embedding_by_hand():
    rows = np.array([[3.0, 0.0, 0.0], [6.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.2]])
    found = np.abs(embed(rows, 2))
    # The first direction is (1, 0, 0). The others live in the plane of the last two coordinates: the matrix
    # [[2, .2], [.2, .04]] has the eigenvector (cos a, sin a) with tan 2a = .4 / 1.96.
    a = np.arctan2(0.4, 1.96) / 2
    b = np.arctan2(0.2, 1.0)
    assert found == pytest.approx(np.array([[1, 0], [1, 0], [0, np.cos(a)], [0, np.cos(b - a)]]))
    _, _, right = np.linalg.svd(rows, full_matrices=False)
    assert found == pytest.approx(np.abs(normalise(rows) @ right[:2].T))
    assert find_clusters(embed(rows, 2), 2, np.random.default_rng(0)).tolist() == [0, 0, 1, 1]
    assert find_clusters(np.ones((3, 2)), 2, np.random.default_rng(0)).tolist() == [0, 0, 0]


def test_newcomers_follow_the_nearest_direction():
    groups = GroupRounds(FedAvg(local=LINE), LINE)
    fork = Fork(numbers(), {"0": np.array([1.0, 1.0]), "1": np.array([0.0, 5.0]), "2": np.array([-1.0, 0.0])})
    task = tasks(groups.plan(groups.start(None, desk()), ROOT, desk())[1])[0]
    for (w, b), group in {(2.0, 1.5): "0", (0.1, 0.5): "1", (-3.0, 1.0): "2"}.items():
        update = np.array([[w, b]])
        half = distances(update, np.stack(list(fork.ways.values())), "cosine") / 2  # (1 - cos) / 2, in [0, 1]
        assert half.min() >= 0
        assert half.max() <= 1
        assert groups.find_nearest(fork, answer(task, w, b)) == group == str(half.argmin())


def test_groups_are_mixed_by_length():
    models = {"0": numbers(3.0, 4.0), "1": numbers(0.0, 2.0)}  # lengths 5 and 2
    assert close(mix_models(models, "0", 0.1), numbers(3 / 1.05, 4.1 / 1.05))
    assert close(mix_models(models, "1", 0.1), numbers(0.06 / 1.02, 2.08 / 1.02))


def test_flexcfl_founds_groups_where_their_founders_went():
    rule = Rounds(FlexCFL(LINE, clients=2, groups=2, pretrain_scale=2, pretrain_steps=7))
    ctx = desk(range(6))
    s, commands = rule.init(ctx)
    trained = {}
    while list(s.model.leaf) == [ROOT]:
        wave = tasks(commands)
        assert len(wave) == 2
        assert all(t.job.steps == 7 for t in wave)
        said = []
        for t in wave:
            trained[t.to] = (1.0 if len(trained) % 2 else -1.0) * (1 + len(trained))  # -1, 2, -3, 4
            said.append((t, trained[t.to]))
        s, commands, ctx = reply(rule, s, ctx, said)
    assert len(trained) == 4  # 2 for each group
    up = s.model.at[next(n for n, w in trained.items() if w == 2.0)]
    down = "1" if up == "0" else "0"
    assert s.model.sizes == {up: 2, down: 2}
    assert s.model.leaf[up].params["w"].item() == pytest.approx(3.0)  # mean of 2 and 4, equally
    assert s.model.leaf[down].params["w"].item() == pytest.approx(-2.0)
    door = [t for t in tasks(commands) if t.tag == ROOT]
    assert len(door) == 1  # at most half of the devices, from the initial model
    assert close(door[0].send["params"], numbers(0.0))
    s, commands, ctx = reply(rule, s, ctx, [(door[0], -0.2)])
    assert s.model.at[door[0].to] == down


def test_a_changed_device_says_so():
    job = Recount(classes=3, limit=0.2)
    first = job.run(device([0.0] * 10, [0] * 5 + [1] * 5, {}))
    assert first.body == {"changed": 0.0}
    assert first.keep["counts"].tolist() == [5, 5, 0]
    little = job.run(device([0.0] * 10, [0] * 4 + [1] * 6, {}, keep=first.keep))
    assert little.body["changed"] == pytest.approx(0.2)  # one row less of a label and one more of another
    assert little.keep is None
    much = job.run(device([0.0] * 10, [1] * 5 + [2] * 5, {}, keep=first.keep))  # sorted counts are the same
    assert much.body["changed"] == pytest.approx(1.0)
    assert much.keep["counts"].tolist() == [0, 5, 5]


def test_a_changed_member_is_sorted_again():
    rule = FlexCFL(LINE, clients=2, groups=2, pretrain_scale=1)
    ctx = desk()
    m = rule.start(ctx)
    m, _ = split_group(
        m, ROOT, numbers(), [m.leaf[ROOT]] * 2, range(4), [0, 0, 1, 1], np.array([[1.0, 0], [-1, 0]])
    )
    m = replace(m, more=replace(m.more, look=(0, 3)))
    assert list(rule.lanes(m, ctx)) == ["labels", "0", "1"]
    m, commands = rule.plan(m, "labels", ctx)
    one, other = tasks(commands)
    told = [replace(answer(one), body={"changed": 0.3}), replace(answer(other), body={"changed": 0.1})]
    m, commands = rule.merge(m, "labels", Got(told, []), ctx)
    assert m.at == {1: "0", 2: "1", 3: "1"}
    assert notes(commands) == [("shift", {"round": 0, "devices": 1})]
    assert list(rule.lanes(m, ctx)) == [DOOR, "0", "1"]


# ------------------------------------------------------------------------------------------ inner rules


def test_an_inner_rule_trains_each_group():
    made = algorithms.make("flhc", LINE, inner={"kind": "fedyogi", "server_lr": 0.5}, clients=3)
    assert made.groups.inner == FedAvg(local=LINE, server=Adaptive("yogi", 0.5))
    assert algorithms.make("FL-HC", LINE).groups.inner == FedAvg(local=LINE)
    m = made.groups.start(None, desk())
    m, commands = made.groups.plan(m, ROOT, desk())
    assert len(tasks(commands)) == 3  # not the inner rule's own number
    assert "inner" not in algorithms.complete("flhc")


@pytest.mark.parametrize("inner", ["scaffold", "ftfa", "fedadam"])
@pytest.mark.parametrize("name", ["cfl", "flhc", "flexcfl"])
def test_any_rule_with_one_model_may_be_inside(name, inner):
    few = {"cfl": {"eps1": 100.0, "eps2": 0.0, "min_round": 0}, "flhc": {"first_rounds": 1}}
    few["flexcfl"] = {"groups": 2, "pretrain_scale": 2, "pretrain_steps": 2, "group_rate": 0.1}
    local = replace(LOCAL, optim=SGD(0.1))
    rule = algorithms.make(name, local, inner={"kind": inner}, clients=4, **few[name])
    sim = finished(small(compute=4e5), rule, rounds=8)
    assert len(sim.points[sim.root].own.state.model.leaf) > 1
    assert np.isfinite(values(sim, "accuracy_mean")).all()


@pytest.mark.parametrize("name", ["auxo", "cfl", "flexcfl", "flhc"])
def test_groups_of_groups_are_refused(name):
    """Changes of several models can't be compared, and a group's has to be named when it parts."""
    said = r"inner = 'BestOfSeveral': has no one model .*; take a rule in rounds that has, such as 'fedavg'"
    with pytest.raises(ConfigError, match=said):
        algorithms.make(name, LOCAL, inner={"kind": "ifca"})


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        (
            "cfl",
            {"inner": {"kind": "fedasync"}},
            r"inner = 'Stream': has no one model that .*; take .*",
        ),
        ("cfl", {"eps1": 0.0}, r"eps1 = 0.0: must be above 0"),
        ("cfl", {"rest": 0.0}, r"rest = 0.0"),
        ("cfl", {"apart": 1.5}, r"apart = 1.5"),
        ("cfl", {"clients": 0}, r"clients = 0: must be at least 1"),
        ("cfl", {"min_members": 1}, r"min_members = 1: must be at least 2"),
        (
            "flhc",
            {"metric": "cosine"},
            r"metric = 'cosine': linkage 'ward' needs 'euclidean'; or take another",
        ),
        ("flhc", {"linkage": "wards"}, r"algorithms.flhc.linkage = 'wards'"),
        ("flhc", {"reach": 1.5}, r"reach = 1.5: must be above 0 and at most 1"),
        ("flhc", {"threshold": 0.0}, r"threshold = 0.0: must be above 0"),
        ("flexcfl", {"groups": 0}, r"groups = 0: must be at least 1"),
        ("flexcfl", {"pretrain_steps": 0}, r"pretrain_steps = 0: must be at least 1"),
        ("flexcfl", {"deadline": 0.0}, r"deadline = 0.0: must be above 0"),
    ],
)
def test_wrong_settings_are_named(name, params, said):
    with pytest.raises(ConfigError, match=said):
        algorithms.make(name, LINE, **params)


def test_sorting_and_training_need_the_same_model():
    other = Train(ModelSpec("lenet5"))
    with pytest.raises(ConfigError, match=re.escape("give `local` and the inner rule the same model")):
        FLHC(LINE, inner=FedAvg(local=other))
    with pytest.raises(ConfigError, match="inner = 'Stream'"):
        CFL(LINE, inner=fedasync(LINE))


# ---------------------------------------------------------------------------------------- in federations


def camps(**more):
    """Ten devices; to the odd ones every class is called by the name of the next."""
    where = small((24,) * 10, data=pool(600), **more)
    y = where.pool.y.clone()
    for node in range(1, 10, 2):
        for part in ("train", "validation", "test"):
            rows = torch.tensor(where.partition.rows(node, part))
            y[rows] = (y[rows] + 1) % where.pool.classes
    return replace(where, pool=replace(where.pool, y=y))


CAMPS = {
    "cfl": CFL(LOCAL, eps1=0.4, eps2=1.0, min_round=3),
    "flhc": FLHC(LOCAL, clients=5, first_rounds=2),
    "flexcfl": FlexCFL(LOCAL, clients=5, groups=2, pretrain_scale=3, pretrain_steps=6),
}


@pytest.mark.parametrize("name", CAMPS)
def test_camps_are_found_and_served(name):
    plain = finished(camps(), FedAvg(5, LOCAL), rounds=25)
    sim = finished(camps(), CAMPS[name], rounds=25)
    at = sim.points[sim.root].own.state.model.at
    assert len({at[n] for n in range(0, 10, 2)}) == 1
    assert len({at[n] for n in range(1, 10, 2)}) == 1
    assert at[0] != at[1]
    assert values(sim, "accuracy_mean")[-1] > values(plain, "accuracy_mean")[-1] + 0.15


def test_flhc_waits_no_longer_than_its_patience():
    late = Intervals.of([[(0.0, np.inf)]] * (len(SIZES) - 3) + [[(60.0, np.inf)]] * 3)
    where = small(compute=4e5, availability=late)
    times = {}
    for patience in (None, 20.0):
        rule = FLHC(LOCAL, clients=4, first_rounds=1, reach=1.0, patience=patience)
        sim = finished(where, rule, stop=StopAt(rounds=200, seconds=150))
        times[patience] = next(r["time"] for r in sim.records if r["metric"] == "split")
        assert len(sim.points[sim.root].own.state.model.at) == len(SIZES)  # those who came late were sorted
    assert times[None] >= 60
    assert 20 <= times[20.0] < 60
