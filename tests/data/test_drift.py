"""Groups, shift and changes: what clients see, what they are tested on, and what happens in mid-run."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_partition import SPLITS, all_rows, keys, pool_of

from potluck import fleet
from potluck.core.errors import ConfigError, DataError
from potluck.data import Change, Groups, Pool, arrange, divide, reserve_rows
from potluck.data.shift import count_replaced
from potluck.data.views import View, turn

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
    x, _ = View().turn(45).of(pool, np.arange(3))
    assert (x[:, :, 0, 0] == -2).all()


def test_angles_add_up():
    assert View().turn(120).turn(240) == View()
    assert View().turn(-90) == View(degrees=270.0)


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
        pool = reserve_rows(pool, 0.1, 1)
    partition, how = parted(pool, kind)
    assume(partition.clients >= groups.count)
    made = arrange(pool, partition, key, groups=groups, **how)
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
    again = arrange(pool, partition, key, groups=groups, **how)
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


def test_groups_may_be_turned_by_any_angle():
    pool = pictures()
    near = Groups("rotation", 3, 15.0).views(pool, 1)
    assert [view.degrees for view in near] == [0.0, 15.0, 30.0]
    with pytest.raises(ConfigError, match=r"groups\.degrees = 400"):
        Groups("rotation", 3, 400.0)
    with pytest.raises(ConfigError, match=r"groups\.degrees = 15"):
        Groups("permutation", 3, 15.0)


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
    made = arrange(pool, partition, 7, groups=Groups("rotation", 4), shift=0.5, kind="procedural")
    assert len(made.pool) == 4 * len(pool)
    now = made.phases[0].partition
    for client in range(0, 10**6, 50_001):
        view = View(degrees=90.0 * made.group[client])
        for split in SPLITS:
            rows = now.rows(client, split)
            x, y = view.of(pool, made.origin[rows])
            assert torch.equal(made.pool.x[rows.copy()], x)
            assert torch.equal(made.pool.y[rows.copy()], y)
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
        made = arrange(pool, partition, key, shift=share, **how)
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
        assert len(strange) == count_replaced(share, len(old))
        assert abs(len(strange) - share * len(old)) <= 0.5
        assert pool.test[strange].all()
        train = np.bincount(labels[partition.rows(client, "train")], minlength=classes)
        assert set(labels[strange]) <= set(np.flatnonzero(train == train.min()))
        assert not new.flags.writeable
    assert held(now) == held(arrange(pool, partition, key, shift=share, **how).phases[0].partition)


def test_shift_of_a_client_that_has_every_class():
    labels = np.array([0, 0, 0, 1, 1, 1, 2, 2] * 5 + [0, 1, 2] * 10)
    pool = pool_of(labels, test=[False] * 40 + [True] * 30)
    now = arrange(pool, divide(pool, "iid", 1, 0), 0, shift=1.0).phases[0].partition
    assert set(labels[now.rows(0, "test")]) == {2}


def test_shifted_rows_are_seen_as_the_client_sees():
    pool = pictures(600)
    partition, how = parted(pool, "shards")
    made = arrange(pool, partition, 3, groups=Groups("rotation", 4), shift=1.0, **how)
    plain = arrange(pool, partition, 3, shift=1.0, **how).phases[0].partition
    for client in range(8):
        rows = made.phases[0].partition.rows(client, "test").copy()
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
    made = arrange(pool, partition, key, groups=groups, changes=changes, **how)
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
    again = arrange(pool, partition, key, groups=groups, changes=changes, **how)
    assert torch.equal(made.pool.x, again.pool.x)
    assert all(held(a.partition) == held(b.partition) for a, b in zip(made.phases, again.phases, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_stay_train_or_test_rows(kind):
    pool = pictures(1200)
    partition, how = parted(pool, kind)
    first, second = arrange(pool, partition, 5, changes=[Change(9, "labels")], **how).phases
    trained = set().union(*(mine["train"] for mine in held(first.partition)))
    tested = set().union(*(mine["test"] for mine in held(second.partition)))
    assert not trained & tested
    assert second.changed.all()
    moved = [a["train"] != b["train"] for a, b in zip(held(partition), held(second.partition), strict=True)]
    assert np.mean(moved) > 0.9


def test_labels_are_dealt_as_before():
    pool = pictures(1200)
    partition, how = parted(pool, "shards", classes_per_client=2)
    first, second = arrange(pool, partition, 5, changes=[Change(9, "labels")], **how).phases
    for phase in (first, second):
        kinds = [np.unique(pool.y[all_rows(phase.partition, c)]) for c in range(8)]
        assert all(len(k) == 2 for k in kinds)
    partition, how = parted(pool, "user_devices", alpha=0.1)
    first, second = arrange(pool, partition, 5, changes=[Change(9, "labels")], **how).phases
    for client in range(partition.clients):  # rows stay with their writers
        writers = [set(pool.user[all_rows(p.partition, client)]) for p in (first, second)]
        assert len(writers[0]) == 1
        assert writers[0] == writers[1]


def test_turned_images_and_their_share_of_the_test_set():
    pool = pictures(600)
    partition, how = parted(pool, "iid")
    changes = [Change(5, "rotation", 90, share=0.5), Change(9, "rotation", 270)]
    made = arrange(pool, partition, 5, changes=changes, **how)
    assert [p.changed.sum() for p in made.phases] == [0, 4, 8]
    turned = [0, 4, 4]  # the second change turns the first four back
    for phase, wanted in zip(made.phases, turned, strict=True):
        now, count = phase.partition, 0
        for client in range(8):
            rows = now.rows(client, "train").copy()
            count += not torch.equal(made.pool.x[rows], pool.x[made.origin[rows]])
        assert count == wanted
    same = [(made.pool.x[p.test] == pool.x[made.origin[p.test]]).all((1, 2, 3)).sum() for p in made.phases]
    assert same == [120, 60, 60]


def test_millions_change_too():
    pool = pool_of(np.arange(1500) % 5)
    partition = divide(pool, "procedural", 10**6, 3, classes_per_client=2, largest=20)
    changes = [Change(5, "labels", share=0.25), Change(7, "labels")]
    made = arrange(pool, partition, 5, changes=changes, kind="procedural")
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


# ------------------------------------------------------------------------------------------------- wrong


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Groups("rotate", 3), "groups.kind = 'rotate'.*did you mean 'rotation'"),
        (lambda: Groups("affine", 1), "groups.count = 1: must be at least 2"),
        (lambda: Groups("rotation", 4, 120.0), "groups.degrees = 120: 4 groups .* leave it out for 90"),
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
    return arrange(pool, divide(pool, "iid", 4, 0), 0, shift=share)


def tokens():
    return replace(pool_of([0, 1] * 20), x=torch.zeros(40, 7, dtype=torch.int64))


def wide() -> Pool:
    return replace(pool_of([0, 1] * 20), x=torch.zeros(40, 1, 4, 6))


def test_half_turns_of_wide_images():
    views = Groups("rotation", 2).views(wide(), 0)
    assert views[1].of(wide(), np.arange(3))[0].shape == (3, 1, 4, 6)


def test_impossible_deals_are_said_with_their_time():
    pool = pool_of([0] * 200 + [1] * 3, test=[False] * 202 + [True])
    partition = divide(pool, "iid", 4, 0)
    with pytest.raises(DataError, match=r"changes.kind = 'labels' at 7 s: classes_per_client = 2"):
        arrange(pool, partition, 0, changes=[Change(7, "labels")], kind="shards")


def test_a_fleet_of_blocks_changes_by_user():
    pool = pictures()
    partition, how = parted(pool, "iid")
    user = fleet.build("uniform", 8, 0, users=4).user
    made = arrange(pool, partition, 0, changes=[Change(5, "labels", share=0.5)], user=user, **how)
    assert made.phases[1].changed.reshape(4, 2).sum(1).tolist().count(2) == 2
