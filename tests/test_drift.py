"""Groups, shift and changes: what clients see, what they are tested on, and what happens in mid-run."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_partition import SPLITS, all_rows, keys, pool_of
from worlds import LOCAL, LOOP, STACKED, chained, finished, lines, simulate, small, weights

import potluck
from potluck import fleet
from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.data import Change, Groups, Pool, arranged, divide, reserved
from potluck.data.shift import replaced
from potluck.data.views import View, turn
from potluck.errors import ConfigError, DataError
from potluck.experiment import Experiment, build
from potluck.jobs import LabelCounts
from potluck.messages import Move, Task
from potluck.runtime import EvaluateAt, StopAt
from potluck.runtime.holdings import Holdings

quick = settings(max_examples=25, deadline=None)
KINDS = ["iid", "dirichlet", "shards", "quantity", "by_user", "split_users", "user_devices"]


def pictures(rows=240, classes=4, side=4, seed=0):
    """Small images, no two of them alike, by some writers."""
    x = torch.randn(rows, 2, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    plain = pool_of(np.arange(rows) % classes, user=np.arange(rows) // 3 % 6)
    return replace(plain, x=x)


def parted(pool, kind, key=0, **options):
    clients = None if kind in ("by_user", "split_users", "user_devices") else 8
    return divide(pool, kind, clients, key, **options), dict(kind=kind, **options)


def sets(partition, of=None):
    """Rows of every client and split, as rows of the old pool if told."""
    return [
        {split: set((rows if of is None else of[rows]).tolist()) for split in SPLITS}
        for rows in [None]
        for client in range(partition.clients)
        for rows in [None]
    ]


def held(partition, origin=None):
    """[client][split] rows; by `origin`, as rows of the old pool."""
    found = [{split: partition.rows(c, split) for split in SPLITS} for c in range(partition.clients)]
    return [
        {s: set((rows if origin is None else origin[rows]).tolist()) for s, rows in mine.items()}
        for mine in found
    ]


# -------------------------------------------------------------------------------------------------- views


def test_turning_by_hand():
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert turn(image, 90).tolist() == [[[[2.0, 4.0], [1.0, 3.0]]]]  # counter-clockwise
    assert turn(image, 180).tolist() == [[[[4.0, 3.0], [2.0, 1.0]]]]
    assert turn(image, 0) is not None
    assert torch.equal(turn(image, 270), turn(turn(image, 90), 180))


@pytest.mark.parametrize("quarter", [90, 180, 270])
def test_any_angle_goes_the_same_way_round(quarter):
    images = pictures().x[:5]
    close = turn(images, quarter + 1e-7)
    assert torch.allclose(close, torch.rot90(images, quarter // 90, (-2, -1)), atol=1e-5)


def test_corners_are_black():
    white = torch.ones(1, 1, 8, 8)
    turned = turn(white, 45, black=-2.0)
    assert turned[0, 0, 0, 0] == -2
    assert turned[0, 0, 4, 4] == pytest.approx(1)
    pool = replace(pictures(side=8), mean=0.5, std=0.25)
    x, _ = View().turned(45).of(pool, np.arange(3))
    assert (x[:, :, 0, 0] == -2).all()


def test_angles_add_up():
    assert View().turned(120).turned(240) == View()
    assert View().turned(-90) == View(degrees=270.0)


# ------------------------------------------------------------------------------------------------- groups


@quick
@given(
    st.sampled_from(KINDS),
    st.sampled_from([("rotation", 2), ("rotation", 4), ("permutation", 3), ("affine", 3)]),
    keys,
    st.booleans(),
)
def test_groups_change_what_is_seen_and_nothing_else(kind, groups, key, server):
    pool, groups = pictures(), Groups(*groups)
    if server:
        pool = reserved(pool, 0.1, 1)
    partition, how = parted(pool, kind)
    assume(partition.clients >= groups.count)
    made = arranged(pool, partition, key, groups=groups, **how)
    views = groups.views(pool, key)
    assert np.ptp(np.bincount(made.group, minlength=groups.count)) <= 1
    assert len(made.pool) == len(pool)  # everybody has rows of their own
    assert np.array_equal(made.origin, np.arange(len(pool)))
    assert np.array_equal(made.pool.test, pool.test)
    now = made.phases[0].partition
    assert held(now) == held(partition)
    for client in range(now.clients):
        rows = np.sort(all_rows(now, client))
        x, y = views[made.group[client]].of(pool, rows)
        assert torch.equal(made.pool.x[rows], x)
        assert torch.equal(made.pool.y[rows], y)
    # and back: the very same rows and labels
    for client in range(now.clients):
        rows = np.sort(all_rows(now, client))
        x, y = undone(views[made.group[client]], made.pool.x[rows], made.pool.y[rows])
        assert torch.allclose(x, pool.x[rows], atol=1e-12)
        assert Counter(y.tolist()) == Counter(pool.y[rows].tolist())
    # the global test set is a mixture, in equal shares
    test = made.phases[0].test
    assert np.array_equal(test, np.flatnonzero(pool.test))
    assert np.ptp(np.bincount(made.test_group, minlength=groups.count)) <= 1
    for row, group in zip(test, made.test_group, strict=True):
        x, y = views[group].of(pool, np.array([row]))
        assert torch.equal(made.pool.x[row], x[0])
        assert made.pool.y[row] == y[0]
    if server:
        rows = np.flatnonzero(made.pool.server)
        assert np.array_equal(rows, np.flatnonzero(pool.server))
    again = arranged(pool, partition, key, groups=groups, **how)
    assert torch.equal(made.pool.x, again.pool.x)
    assert np.array_equal(made.group, again.group)


def undone(view, x, y):
    """What a view shows, back as it was."""
    if view.scale:
        x = (x - torch.tensor(view.offset, dtype=x.dtype)) / torch.tensor(view.scale, dtype=x.dtype)
    if view.degrees:
        x = torch.rot90(x, -round(view.degrees / 90), (-2, -1))
    if view.labels:
        y = torch.argsort(torch.tensor(view.labels))[y]
    return x, y


def test_features_of_vectors_are_moved_each_by_its_own_amount():
    pool = replace(pool_of(np.arange(60) % 3), x=torch.ones(60, 5))
    views = Groups("affine", 3).views(pool, 1)
    assert [len(view.scale) for view in views] == [0, 5, 5]
    assert len(set(views[1].scale) | set(views[2].scale)) == 10
    assert all(0.5 <= a <= 2 for view in views[1:] for a in view.scale)


def test_permutations_differ():
    pool = pool_of(np.arange(60) % 3)
    orders = [view.labels for view in Groups("permutation", 6).views(pool, 1)]
    assert orders[0] == ()
    assert len(set(orders[1:]) | {(0, 1, 2)}) == 6


def test_groups_of_millions_repeat_the_pool():
    pool = pictures()
    partition = divide(pool, "procedural", 10**6, 3, largest=10)
    made = arranged(pool, partition, 7, groups=Groups("rotation", 4), shift=0.5, kind="procedural")
    assert len(made.pool) == 4 * len(pool)
    now = made.phases[0].partition
    for client in range(0, 10**6, 50_001):
        view = View(degrees=90.0 * made.group[client])
        for split in SPLITS:
            rows = now.rows(client, split)
            x, y = view.of(pool, made.origin[rows])
            assert torch.equal(made.pool.x[rows], x)
            assert torch.equal(made.pool.y[rows], y)
        assert set(made.origin[now.rows(client, "train")]) == set(partition.rows(client, "train"))
        assert now.size(client) == partition.size(client)
    assert made.pool.test.sum() == pool.test.sum()
    with pytest.raises(IndexError):
        now.rows(10**6, "train")


# -------------------------------------------------------------------------------------------------- shift


@quick
@given(st.sampled_from([*KINDS, "procedural"]), keys, st.floats(0, 1), st.integers(2, 8))
def test_shift_is_exact_and_of_absent_classes_only(kind, key, share, classes):
    pool = pool_of(np.random.default_rng(key % 97).integers(0, classes, 900), user=np.arange(900) % 11)
    partition, how = parted(pool, kind, key, largest=20) if kind == "procedural" else parted(pool, kind, key)
    labels = pool.y.numpy()
    try:
        made = arranged(pool, partition, key, shift=share, **how)
    except DataError as error:
        assert "the global test set has" in str(error)  # noqa: PT017
        return
    assert made.pool is pool
    now = made.phases[0].partition
    for client in range(now.clients):
        for split in ("train", "validation"):
            assert np.array_equal(now.rows(client, split), partition.rows(client, split))
        old, new = partition.rows(client, "test"), now.rows(client, "test")
        assert len(np.unique(new)) == len(new) == len(old)
        strange = new[~np.isin(new, old)]
        assert len(strange) == replaced(share, len(old))
        assert abs(len(strange) - share * len(old)) <= 0.5
        assert pool.test[strange].all()
        train = np.bincount(labels[partition.rows(client, "train")], minlength=classes)
        assert set(labels[strange]) <= set(np.flatnonzero(train == train.min()))
        assert not new.flags.writeable
    assert held(now) == held(arranged(pool, partition, key, shift=share, **how).phases[0].partition)


def test_shift_of_a_client_that_has_every_class():
    labels = np.array([0, 0, 0, 1, 1, 1, 2, 2] * 5 + [0, 1, 2] * 10)
    pool = pool_of(labels, test=[False] * 40 + [True] * 30)
    now = arranged(pool, divide(pool, "iid", 1, 0), 0, shift=1.0).phases[0].partition
    assert set(labels[now.rows(0, "test")]) == {2}


def test_shifted_rows_are_seen_as_the_client_sees():
    pool = pictures(600)
    partition, how = parted(pool, "shards")
    made = arranged(pool, partition, 3, groups=Groups("rotation", 4), shift=1.0, **how)
    plain = arranged(pool, partition, 3, shift=1.0, **how).phases[0].partition
    for client in range(8):
        rows = made.phases[0].partition.rows(client, "test")
        assert set(made.origin[rows]) == set(plain.rows(client, "test"))
        x, _ = View(degrees=90.0 * made.group[client]).of(pool, made.origin[rows])
        assert torch.equal(made.pool.x[rows], x)
    assert made.pool.test.sum() == pool.test.sum()  # what clients see besides isn't the global test set


# ------------------------------------------------------------------------------------------------ changes


@quick
@given(
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.sampled_from(["labels", 90.0, 180.0]), st.floats(0.01, 1)), max_size=3),
    st.sampled_from([None, Groups("rotation", 2), Groups("permutation", 2)]),
    keys,
)
def test_no_change_makes_or_loses_or_shares_a_row(kind, what, groups, key):
    pool = pictures(480)
    partition, how = parted(pool, kind)
    changes = [
        Change(10.0 * i, "labels" if w == "labels" else "rotation", None if w == "labels" else w, share)
        for i, (w, share) in enumerate(what, start=1)
    ]
    made = arranged(pool, partition, key, groups=groups, changes=changes, **how)
    assert [p.start for p in made.phases] == [0.0, *(c.at for c in changes)]
    everything = sorted(r for mine in held(partition) for rows in mine.values() for r in rows)
    before = None
    for phase in made.phases:
        now = held(phase.partition, made.origin)
        assert sorted(r for mine in now for rows in mine.values() for r in rows) == everything
        assert all(len(rows) >= 1 for mine in now for rows in mine.values())
        assert all(sum(map(len, mine.values())) >= 5 for mine in now)
        assert len(phase.test) == pool.test.sum()
        assert np.array_equal(np.sort(made.origin[phase.test]), np.flatnonzero(pool.test))
        if before is not None:
            for client in np.flatnonzero(~phase.changed):
                for split in SPLITS:
                    mine = phase.partition.rows(client, split)
                    assert np.array_equal(mine, before.partition.rows(client, split))
            if partition.user is not None:  # a user's devices change together
                for user in np.unique(partition.user):
                    assert len(np.unique(phase.changed[partition.user == user])) == 1
        before = phase
    again = arranged(pool, partition, key, groups=groups, changes=changes, **how)
    assert torch.equal(made.pool.x, again.pool.x)
    assert all(held(a.partition) == held(b.partition) for a, b in zip(made.phases, again.phases, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_stay_train_or_test_rows(kind):
    pool = pictures(1200)
    partition, how = parted(pool, kind)
    first, second = arranged(pool, partition, 5, changes=[Change(9, "labels")], **how).phases
    trained = set().union(*(mine["train"] for mine in held(first.partition)))
    tested = set().union(*(mine["test"] for mine in held(second.partition)))
    assert not trained & tested
    assert second.changed.all()
    moved = [a["train"] != b["train"] for a, b in zip(held(partition), held(second.partition), strict=True)]
    assert np.mean(moved) > 0.9


def test_labels_are_dealt_as_before():
    pool = pictures(1200)
    partition, how = parted(pool, "shards", classes_per_client=2)
    first, second = arranged(pool, partition, 5, changes=[Change(9, "labels")], **how).phases
    for phase in (first, second):
        kinds = [np.unique(pool.y[all_rows(phase.partition, c)]) for c in range(8)]
        assert all(len(k) == 2 for k in kinds)
    partition, how = parted(pool, "user_devices", alpha=0.1)
    first, second = arranged(pool, partition, 5, changes=[Change(9, "labels")], **how).phases
    for client in range(partition.clients):  # rows stay with their writers
        writers = [set(pool.user[all_rows(p.partition, client)]) for p in (first, second)]
        assert len(writers[0]) == 1
        assert writers[0] == writers[1]


def test_turned_images_and_their_share_of_the_test_set():
    pool = pictures(600)
    partition, how = parted(pool, "iid")
    changes = [Change(5, "rotation", 90, share=0.5), Change(9, "rotation", 270)]
    made = arranged(pool, partition, 5, changes=changes, **how)
    assert [p.changed.sum() for p in made.phases] == [0, 4, 8]
    turned = [0, 4, 4]  # the second change turns the first four back
    for phase, wanted in zip(made.phases, turned, strict=True):
        now, count = phase.partition, 0
        for client in range(8):
            rows = now.rows(client, "train")
            count += not torch.equal(made.pool.x[rows], pool.x[made.origin[rows]])
        assert count == wanted
    same = [(made.pool.x[p.test] == pool.x[made.origin[p.test]]).all((1, 2, 3)).sum() for p in made.phases]
    assert same == [120, 60, 60]


def test_millions_change_too():
    pool = pool_of(np.arange(1500) % 5)
    partition = divide(pool, "procedural", 10**6, 3, classes_per_client=2, largest=20)
    changes = [Change(5, "labels", share=0.25), Change(7, "labels")]
    made = arranged(pool, partition, 5, changes=changes, kind="procedural")
    one, two, three = (phase.partition for phase in made.phases)
    some = np.arange(0, 10**6, 10_007)
    for client in some:
        assert (held_by(one, client) == held_by(two, client)) == (not made.phases[1].changed[client])
        assert held_by(two, client) != held_by(three, client)
    assert made.phases[1].changed.sum() == 250_000
    trained = set().union(*(p.rows(c, "train").tolist() for p in (one, two, three) for c in some))
    tested = set().union(*(p.rows(c, "test").tolist() for p in (one, two, three) for c in some))
    assert not trained & tested


def held_by(partition, client):
    return all_rows(partition, client).tolist(), partition.size(client)


# ------------------------------------------------------------------------------------------- in a run


def changing(changes, kind="user_devices", rows=480, users=5, **options):
    """A world of users' devices whose data change, in double precision."""
    pool = replace(pictures(rows), user=None)
    extra = {"users": users, "devices_per_user": [2, 4]} if kind == "user_devices" else {}
    partition, how = parted(pool, kind, **extra)
    world = small((9,) * partition.clients, data=pool, compute=4e5)
    devices = replace(world.fleet, user=partition.user) if partition.user is not None else world.fleet
    made = arranged(pool, partition, 1, changes=changes, user=devices.user, **how, **options)
    first, *later = made.phases
    return (
        replace(
            world,
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
    world, made = changing(CHANGES)
    for when, phase in ((0.0, 0), (1.999, 0), (2.0, 1), (3.0, 1), (4.0, 2), (6.0, 3), (1e9, 3)):
        assert world.holding(when) is made.phases[phase].partition
        assert np.array_equal(world.test_rows(when), made.phases[phase].test)


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
    world, _ = changing([Change(1.0, "labels")])
    tasks = [Task(0, SlowCounts(4), {}, id=(None, 1, i)) for i in range(2)]
    script = Script(*tasks)
    finished(world, script, stop=StopAt(seconds=1e9))
    for when, reply in zip((0.0, 2.0), script.heard, strict=True):
        labels = world.pool.y[world.holding(when).rows(0, "train")]
        assert reply.body["counts"].tolist() == torch.bincount(labels, minlength=4).tolist()
    assert script.heard[0].body["counts"].tolist() != script.heard[1].body["counts"].tolist()


def apart(holdings, world, made, when):
    """All train rows at a time, as rows of the old pool; the same row twice shows."""
    nodes = range(world.partition.clients + 1)
    return sorted(made.origin[row] for node in nodes for row in holdings.rows(node, when))


@quick
@given(
    st.lists(st.tuples(st.floats(0, 8), st.integers(0, 99), st.integers(0, 99), st.booleans()), max_size=25)
)
def test_moves_and_changes_make_and_lose_no_row(moves):
    """At any time, now or later, everybody's rows together are those of the phase."""
    world, made = changing(CHANGES)
    sim = simulate(world, Script(), stop=StopAt(seconds=1e9))
    holdings, user, size = Holdings(world, sim.topology), world.fleet.user, world.partition.clients
    for now, src, dst, far in sorted(moves):
        src %= size
        inside = np.flatnonzero(user == user[src])
        dst = dst % (size + 1) if far else int(inside[dst % len(inside)])
        have = holdings.rows(src, now)
        if src != dst and len(have) > 1:
            holdings.move(src, dst, np.array([dst % len(have)]), now)
        for when in (now, now + 1, now + 3, 9.0):
            held = [world.holding(when).rows(c, "train") for c in range(size)]
            wanted = sorted(made.origin[np.concatenate(held)])
            assert apart(holdings, world, made, when) == wanted


def test_who_did_not_change_keeps_what_was_moved():
    world, _ = changing([Change(2.0, "labels", share=0.5)])
    (change,) = world.changes
    sim = simulate(world, Script(), stop=StopAt(seconds=1e9))
    user, outcome = world.fleet.user, {}
    for changed in (True, False):
        src = int(np.flatnonzero(change.changed == changed)[0])
        dst = int(np.flatnonzero(user == user[src])[1])
        sim.devices.holdings.move(src, dst, np.array([0]), 1.0)
        outcome[changed] = [
            np.array_equal(sim.devices.rows(node, 3.0), sim.devices.rows(node, 1.5)) for node in (src, dst)
        ]
        assert not np.array_equal(sim.devices.rows(src, 1.5), world.partition.rows(src, "train"))
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
    world, _ = changing(CHANGES)
    settings = dict(seed=3, stop=StopAt(seconds=7.0), often=EvaluateAt(seconds=1.0), plan=plan)
    straight = finished(world, RULES[rule], **settings)
    sim, events = chained(world, RULES[rule], **settings)
    assert events > 20
    assert lines(sim) == lines(straight)
    assert torch.equal(weights(sim), weights(straight))
    unchanged, _ = changing([])
    assert lines(finished(replace(unchanged, fleet=world.fleet), RULES[rule], **settings)) != lines(straight)


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
    told = experiment(groups={"kind": "rotation", "count": 4}, server=0.1).resolved()
    world = build.build_world(told)
    assert sorted(np.bincount(world.fleet.group)) == [2, 2, 2, 2]
    assert len(world.test_group) == len(world.test_rows())
    assert len(world.server_rows()) == 40
    devices = experiment(clients=None, partition="user_devices", users=6, fleet={"edges": 2}).resolved()
    assert devices.data.clients is None
    world = build.build_world(devices)
    assert np.bincount(world.fleet.user).min() >= 2
    assert world.fleet.edge.tolist() == [int(u) * 2 // 6 for u in world.fleet.user]


def test_an_experiment_with_everything(tmp_path):
    told = experiment(
        groups={"kind": "rotation", "count": 2},
        shift=0.4,
        changes=[{"at": 20, "kind": "labels", "share": 0.5}, {"at": 40.0, "kind": "rotation", "degrees": 45}],
    )
    (tmp_path / "e.toml").write_text(told.resolved().to_toml())
    again = Experiment.from_file(tmp_path / "e.toml")
    assert again.to_toml() == told.resolved().to_toml()
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
            r"data.shift = 1.0: client 0 needs 80 test rows of classes \[\d\], but the global test set has \d\d",
        ),
        (
            {"shift": 1, "partition": "procedural", "largest": 400, "smallest": 10, "limit": None},
            r"data.shift = 1.0: a client may need 80 test rows of class 8, but the global test set has 35",
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
        build.prepare(experiment(**data))


def test_users_are_said_once():
    with pytest.raises(ConfigError, match=r"fleet.users = 3: the data say whose each device is"):
        build.prepare(experiment(clients=None, partition="user_devices", users=6, fleet={"users": 3}))
    with pytest.raises(ConfigError, match=r"fleet.edges = 7: at most 6"):
        build.prepare(experiment(clients=None, partition="user_devices", users=6, fleet={"edges": 7}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Groups("rotate", 3), "groups.kind = 'rotate'.*did you mean 'rotation'"),
        (lambda: Groups("affine", 1), "groups.count = 1: must be at least 2"),
        (lambda: Change(0, "labels"), "changes.at = 0: must be above 0"),
        (lambda: Change(1, "label"), "changes.kind = 'label'.*did you mean 'labels'"),
        (lambda: Change(1, "labels", share=0), "changes.share = 0"),
        (lambda: Change(1, "rotation", 360), "changes.degrees = 360: say how far"),
        (lambda: Change(1, "labels", 90), "changes.degrees = 90: is of 'rotation'"),
        (lambda: shifted_by(-0.1), r"shift = -0.1: must be between 0 .* and 1"),
        (lambda: shifted_by(float("nan")), "shift = nan"),
        (lambda: Groups("permutation", 3).views(pool_of([0, 1] * 20), 0), "2 classes .* only 2 orders"),
        (lambda: Groups("affine", 2).views(tokens(), 0), "rows of a pool are tokens"),
        (lambda: Groups("rotation", 4).views(wide(), 0), "images of a pool are 4 x 6, so only half turns"),
    ],
)
def test_wrong_parts(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def shifted_by(share):
    pool = pool_of(np.arange(100) % 4)
    return arranged(pool, divide(pool, "iid", 4, 0), 0, shift=share)


def tokens():
    return replace(pool_of([0, 1] * 20), x=torch.zeros(40, 7, dtype=torch.int64))


def wide() -> Pool:
    return replace(pool_of([0, 1] * 20), x=torch.zeros(40, 1, 4, 6))


def test_half_turns_of_wide_images():
    views = Groups("rotation", 2).views(wide(), 0)
    assert views[1].of(wide(), np.arange(3))[0].shape == (3, 1, 4, 6)


def test_impossible_deals_are_said_with_their_time():
    pool = pool_of([0] * 200 + [1] * 6, test=[False] * 204 + [True] * 2)
    partition = divide(pool, "iid", 4, 0)
    with pytest.raises(DataError, match=r"changes.kind = 'labels' at 7 s: classes_per_client = 2"):
        arranged(pool, partition, 0, changes=[Change(7, "labels")], kind="shards")


def test_a_fleet_of_blocks_changes_by_user():
    pool = pictures()
    partition, how = parted(pool, "iid")
    user = fleet.build("uniform", 8, 0, users=4).user
    made = arranged(pool, partition, 0, changes=[Change(5, "labels", share=0.5)], user=user, **how)
    assert made.phases[1].changed.reshape(4, 2).sum(1).tolist().count(2) == 2
