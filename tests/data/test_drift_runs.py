"""Runs and experiments whose data are seen, tested or changed in other ways than at first."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, chained, finished, lines, simulate, small, weights
from hypothesis import given
from hypothesis import strategies as st
from test_drift import parted, pictures, quick

import potluck
from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.core.errors import ConfigError, DataError
from potluck.core.messages import Move, Task
from potluck.data import Change, arrange
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.reference import score_together
from potluck.experiment import Experiment, build
from potluck.experiment.prepare import prepare
from potluck.jobs import LabelCounts
from potluck.simulate.holdings import Holdings, Moved


def changing(changes, kind="user_devices", rows=480, users=5, **options):
    """A federation of users' devices whose data change, in double precision."""
    pool = replace(pictures(rows), user=None)
    extra = {"users": users, "devices_per_user": [2, 4]} if kind == "user_devices" else {}
    partition, how = parted(pool, kind, **extra)
    federation = small((9,) * partition.clients, data=pool, compute=2e4)
    devices = (
        replace(federation.fleet, user=partition.user) if partition.user is not None else federation.fleet
    )
    made = arrange(pool, partition, 1, changes=changes, user=devices.user, **how, **options)
    first, *later = made.phases
    return (
        replace(
            federation,
            pool=made.pool,
            partition=first.partition,
            fleet=devices,
            changes=tuple(later),
            test_group=made.test_group,
        ),
        made,
    )


CHANGES = [Change(2.0, "labels", share=0.5), Change(4.0, "rotation", 90, share=0.6), Change(6.0, "labels")]


def test_who_holds_what_when():
    federation, made = changing(CHANGES)
    for when, phase in ((0.0, 0), (1.999, 0), (2.0, 1), (3.0, 1), (4.0, 2), (6.0, 3), (1e9, 3)):
        assert federation.find_partition(when) is made.phases[phase].partition
        assert np.array_equal(federation.test_rows(when), made.phases[phase].test)


class Script:
    """Asks once, and remembers what it heard."""

    def __init__(self, *commands):
        self.commands, self.heard = commands, []

    def init(self, ctx):
        return None, list(self.commands)

    def receive(self, s, e, ctx):
        self.heard.append(e)
        return s, []

    def serve(self, s, node, ctx):
        return {}

    def round(self, s):
        return 0

    def waiting(self, s, ctx):
        return []


@dataclass(frozen=True)
class SlowCounts(LabelCounts):
    """Counts labels, and takes two seconds."""

    def cost(self, at):
        return replace(LabelCounts.cost(self, at), seconds=2.0)


def test_rows_are_those_of_a_tasks_start():
    federation, _ = changing([Change(1.0, "labels")])
    tasks = [Task(0, SlowCounts(4), {}, id=(None, 1, i)) for i in range(2)]
    script = Script(*tasks)
    finished(federation, script, stop=StopAt(seconds=1e9))
    for when, reply in zip((0.0, 2.0), script.heard, strict=True):
        labels = federation.pool.y[federation.find_partition(when).rows(0, "train").copy()]
        assert reply.body["counts"].tolist() == torch.bincount(labels, minlength=4).tolist()
    assert script.heard[0].body["counts"].tolist() != script.heard[1].body["counts"].tolist()


def test_models_are_judged_on_present_rows(monkeypatch):
    federation, _ = changing(CHANGES)
    sim = simulate(federation, FedAvg(2, LOCAL), stop=StopAt(seconds=7.0), often=EvaluateAt(seconds=1.0))
    asked = {}

    def scored(items):
        asked[sim.now] = {item.at.node: item.at.test for item in items}
        return score_together(items)

    monkeypatch.setattr("potluck.simulate.served_scores.score_together", scored)
    sim.run()
    assert len(asked) >= 7
    for when, tests in asked.items():
        assert np.array_equal(tests.pop(sim.root), federation.test_rows(when))
        assert len(tests) == federation.partition.clients
        for node, rows in tests.items():
            assert np.array_equal(rows, federation.find_partition(when).rows(node, "test"))


def apart(holdings, federation, made, when):
    """All train rows at a time, as rows of the old pool; the same row twice shows."""
    nodes = range(federation.partition.clients + 1)
    return sorted(made.origin[row] for node in nodes for row in holdings.rows(node, when))


@quick
@given(
    st.lists(st.tuples(st.floats(0, 8), st.integers(0, 99), st.integers(0, 99), st.booleans()), max_size=25)
)
def test_moves_and_changes_make_and_lose_no_row(moves):
    """At any time, now or later, everybody's rows together are those of the phase."""
    federation, made = changing(CHANGES)
    sim = simulate(federation, Script(), stop=StopAt(seconds=1e9))
    holdings, user, size = (
        Holdings(federation, sim.topology, Moved()),
        federation.fleet.user,
        federation.partition.clients,
    )
    for now, src, dst, far in sorted(moves):
        src %= size
        inside = np.flatnonzero(user == user[src])
        dst = dst % (size + 1) if far else int(inside[dst % len(inside)])
        have = holdings.rows(src, now)
        if src != dst and len(have) > 1:
            holdings.move(src, dst, np.array([dst % len(have)]), now)
        for when in (now, now + 1, now + 3, 9.0):
            held = [federation.find_partition(when).rows(c, "train") for c in range(size)]
            wanted = sorted(made.origin[np.concatenate(held)])
            assert apart(holdings, federation, made, when) == wanted


def test_who_did_not_change_keeps_what_was_moved():
    federation, _ = changing([Change(2.0, "labels", share=0.5)])
    (change,) = federation.changes
    sim = simulate(federation, Script(), stop=StopAt(seconds=1e9))
    user, outcome = federation.fleet.user, {}
    for changed in (True, False):
        src = int(np.flatnonzero(change.changed == changed)[0])
        dst = int(np.flatnonzero(user == user[src])[1])
        sim.devices.holdings.move(src, dst, np.array([0]), 1.0)
        outcome[changed] = [
            np.array_equal(sim.devices.rows(node, 3.0), sim.devices.rows(node, 1.5)) for node in (src, dst)
        ]
        assert not np.array_equal(sim.devices.rows(src, 1.5), federation.partition.rows(src, "train"))
    assert outcome == {True: [False, False], False: [True, True]}


class Shuffling(FedAvg):
    """Moves a row between two devices at the start of every round."""

    def plan(self, m, lane, ctx):
        m, commands = FedAvg.plan(self, m, lane, ctx)
        src, dst = (int(n) for n in ctx.rng.permutation(len(ctx.children))[:2])
        return m, [Move(src, dst, ((int(ctx.rng.integers(4)), 1),)), *commands]


RULES = {"rounds": FedAvg(4, LOCAL), "moves": Shuffling(4, LOCAL), "asynchronous": fedasync(LOCAL, clients=4)}


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
@pytest.mark.parametrize("rule", RULES)
def test_resumed_at_every_event_across_changes(rule, plan):
    federation, _ = changing(CHANGES)
    settings = dict(seed=3, stop=StopAt(seconds=7.0), often=EvaluateAt(seconds=1.0), plan=plan)
    straight = finished(federation, RULES[rule], **settings)
    sim, events = chained(federation, RULES[rule], **settings)
    assert events > 20
    assert lines(sim) == lines(straight)
    assert torch.equal(weights(sim), weights(straight))
    unchanged, _ = changing([])
    assert lines(finished(replace(unchanged, fleet=federation.fleet), RULES[rule], **settings)) != lines(
        straight
    )


# ------------------------------------------------------------------------------------------- experiments

SMALL = {
    "model": {"name": "linear"},
    "stop": {"rounds": 4},
    "run": {"executor": "loop"},
    "algorithms": {"fedavg": {"clients": 3}},
}


def experiment(fleet=None, **data):
    return Experiment(data={"clients": 8, "limit": 400, **data}, fleet=fleet or {}, **SMALL)


def test_the_fleet_knows_groups_and_users():
    told = experiment(groups={"kind": "rotation", "count": 4}, server=0.1).resolve()
    federation = build.build_federation(told)
    assert sorted(np.bincount(federation.fleet.group)) == [2, 2, 2, 2]
    assert len(federation.test_group) == len(federation.test_rows())
    assert len(federation.server_rows()) == 40
    devices = experiment(clients=None, partition="user_devices", users=6, fleet={"edges": 2}).resolve()
    assert devices.data.clients is None
    federation = build.build_federation(devices)
    assert np.bincount(federation.fleet.user).min() >= 2
    assert federation.fleet.edge.tolist() == [int(u) * 2 // 6 for u in federation.fleet.user]


def test_an_experiment_with_everything(tmp_path):
    told = experiment(
        groups={"kind": "rotation", "count": 2},
        shift=0.4,
        changes=[{"at": 20, "kind": "labels", "share": 0.5}, {"at": 40.0, "kind": "rotation", "degrees": 45}],
    )
    (tmp_path / "e.toml").write_text(told.resolve().to_toml())
    again = Experiment.from_file(tmp_path / "e.toml")
    assert again.to_toml() == told.resolve().to_toml()
    runs = [potluck.run(e) for e in (told, again)]
    assert runs[0].lines == runs[1].lines
    assert runs[0].lines != potluck.run(experiment()).lines


GROUPS = {"kind": "rotation", "count": 4}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"shift": 1.5}, r"data.shift = 1.5: should be less than or equal to 1"),
        ({"shift": -0.1}, r"data.shift = -0.1: should be greater than or equal to 0"),
        ({"groups": {"kind": "rotatoin", "count": 4}}, r"data.groups.kind = 'rotatoin'.*mean 'rotation'"),
        ({"groups": {"kind": "rotation", "count": 1}}, r"data.groups.count = 1: should be greater"),
        (
            {"groups": GROUPS | {"within": {"kind": "rotation", "count": 2}}},
            r"data.groups.within.kind = 'rotation': groups of kind 'rotation' can have groups of one other",
        ),
        ({"groups": GROUPS | {"within": {"kind": "affin", "count": 2}}}, r"within.kind = 'affin'.*'affine'"),
        ({"groups": {"kind": "source", "count": 2}}, r"data.groups.kind = 'source': .* doesn't say which"),
        ({"groups": {"kind": "rotation", "count": 9}}, r"data.groups.count = 9: more than the 8 clients"),
        (
            {"groups": GROUPS, "source": "synthetic", "limit": None},
            r"data.groups.kind = 'rotation': rows of synthetic are \[32\], no images",
        ),
        (
            {"changes": [{"at": 5, "kind": "rotation", "degrees": 9}], "source": "synthetic"},
            r"data.changes.kind = 'rotation': rows of synthetic are \[32\], no images",
        ),
        ({"changes": [{"at": 0, "kind": "labels"}]}, r"data.changes.0.at = 0: should be greater than 0"),
        ({"changes": [{"at": 1, "kind": "lables"}]}, r"data.changes.0.kind = 'lables': .*mean 'labels'"),
        ({"changes": [{"at": 1, "kind": "labels", "shore": 1}]}, r"data.changes.0.shore = 1.*mean 'share'"),
        ({"changes": [{"at": 1, "kind": "rotation"}]}, r"data.changes.0: degrees = None: say how far"),
        (
            {"changes": [{"at": 1, "kind": "labels", "degrees": 3}]},
            r"data.changes.0: degrees = 3.0: is of kind = 'rotation'",
        ),
        (
            {"changes": [{"at": 9, "kind": "labels"}, {"at": 3, "kind": "labels"}]},
            r"data.changes.at = 3: stands after 9; sort changes by time",
        ),
        (
            {"shift": 1, "clients": 1},
            r"data.shift = 1.0: client 0 needs 80 test rows of classes \[\d\], but .* test set has \d\d",
        ),
        (
            {"shift": 1, "partition": "procedural", "largest": 400, "smallest": 10, "limit": None},
            r"data.shift = 1.0: a client may need 80 test rows of class 2, but the global test set has 35",
        ),
        ({"partition": "user_devices", "clients": None}, r"data.users is missing: digits doesn't say"),
        (
            {"partition": "user_devices", "clients": None, "users": 99},
            r"data.users = 99: the 400 non-test rows of digits are enough for 40 users of 2 devices",
        ),
        ({"partition": "quantity", "clients": 99}, r"data.clients = 99: .*enough for 80 clients"),
    ],
)
def test_what_is_wrong_is_said(data, message):
    with pytest.raises((ConfigError, DataError), match=message):
        prepare(experiment(**data))


def test_users_are_said_once():
    with pytest.raises(ConfigError, match=r"fleet.users = 3: the data say whose each device is"):
        prepare(experiment(clients=None, partition="user_devices", users=6, fleet={"users": 3}))
    with pytest.raises(ConfigError, match=r"fleet.edges = 7: at most 6"):
        prepare(experiment(clients=None, partition="user_devices", users=6, fleet={"edges": 7}))
