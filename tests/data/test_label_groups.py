"""Groups by labels: who holds which share of classes of its own, and that nobody loses a row by it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_partition import SPLITS, keys, pool_of

from potluck.core.errors import ConfigError, DataError
from potluck.data import Change, Groups, arrange, divide
from potluck.data.groups import deal_groups
from potluck.data.own_classes import count_own, deal_classes, share_whole

quick = settings(max_examples=30, deadline=None)


def laid(kind="iid", clients=8, count=2, share=0.75, rows=400, classes=4, key=3, sizes=None, **options):
    pool = pool_of(
        np.arange(rows) % classes, **({} if kind != "by_user" else {"user": np.arange(rows) // 20})
    )
    partition = divide(pool, kind, None if kind == "by_user" else clients, key, **options)
    groups = Groups("labels", count, share=share, sizes=sizes)
    return pool, partition, arrange(pool, partition, key, groups=groups, kind=kind, **options)


def own_rows(pool, made, key, weights):
    """[clients] how many rows are of the group's own classes, and how many there are."""
    owner, part = deal_classes(pool, weights, key), made.phases[0].partition
    held = [np.concatenate([part.rows(c, s) for s in SPLITS]) for c in range(part.clients)]
    y = pool.y.numpy()
    own = [int((owner[y[rows]] == made.group[c]).sum()) for c, rows in enumerate(held)]
    return np.array(own), np.array([len(rows) for rows in held])


def test_classes_and_clients_go_by_the_sizes_of_groups():
    assert share_whole(10, [1, 1, 1, 1]).tolist() == [3, 3, 2, 2]
    assert share_whole(10, [1] * 8).tolist() == [2, 2, 1, 1, 1, 1, 1, 1]
    assert share_whole(10, [4, 3, 2, 1]).tolist() == [3, 3, 2, 2]  # one each, then 2.4, 1.8, 1.2, 0.6 of six
    assert np.bincount(deal_groups(20, [3, 1], 5)).tolist() == [15, 5]
    pool = pool_of(np.arange(100) % 10)
    assert np.bincount(deal_classes(pool, [1] * 8, 1)).tolist() == [2, 2, 1, 1, 1, 1, 1, 1]


def test_iid_clients_hold_exactly_the_share_and_keep_their_numbers():
    pool, before, made = laid()
    own, sizes = own_rows(pool, made, 3, (1, 1))
    assert own.tolist() == count_own(0.75, sizes).tolist()  # iid ones have half to begin with
    after = made.phases[0].partition
    assert [len(after.rows(c, s)) for c in range(8) for s in SPLITS] == [
        len(before.rows(c, s)) for c in range(8) for s in SPLITS
    ]
    assert made.pool is pool
    assert np.bincount(made.group).tolist() == [4, 4]
    assert made.test_group is None


@quick
@given(
    keys,
    st.sampled_from(["iid", "dirichlet", "quantity", "shards"]),
    st.integers(2, 5),
    st.floats(0.05, 0.7),
    st.booleans(),
)
def test_rows_are_exchanged_none_is_lost_or_doubled(key, kind, count, share, uneven):
    sizes = [3.0] + [1.0] * (count - 1) if uneven else None
    try:
        pool, before, made = laid(kind, 10, count, share, 800, 10, key, sizes)
    except DataError as error:  # uneven clients: a group's classes have too few rows
        assert "groups.share" in str(error)  # noqa: PT017
        return
    after = made.phases[0].partition
    assert sorted(after.order) == sorted(before.order)
    own, held = own_rows(pool, made, key, Groups("labels", count, share=share, sizes=sizes).weights)
    assert (own >= count_own(share, held)).all()


def test_what_a_partition_had_dealt_stays_where_it_may():
    """With a share that everybody has anyway, nothing moves."""
    _, before, made = laid(share=0.2)
    after = made.phases[0].partition
    assert after.order.tolist() == before.order.tolist()


def test_a_share_that_classes_cant_feed_is_refused_with_the_numbers():
    with pytest.raises(DataError, match=r"groups.share = 1.0: the \d+ clients of group \d want \d+ rows"):
        laid(count=3, share=1.0)


def test_a_million_by_hash_lean_as_well():
    pool, before, made = laid("procedural", 1_000_000, 2, 0.8, largest=20, smallest=8)
    part = made.phases[0].partition
    owner = deal_classes(pool, (1, 1), 3)
    for client in (0, 999_999):
        for split in SPLITS:
            rows = part.rows(client, split)
            own = (owner[pool.y.numpy()[rows]] == made.group[client]).sum()
            assert len(set(rows.tolist())) == len(rows) == len(before.rows(client, split))
            assert own >= count_own(0.8, np.array(len(rows)))
    tested = {row for c in range(50) for row in part.rows(c, "test").tolist()}
    assert not tested & {row for c in range(50) for row in part.rows(c, "train").tolist()}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Groups("labels", 2), r"groups.share = None"),
        (lambda: Groups("rotation", 2, share=0.5), r"groups.share = 0.5"),
        (lambda: Groups("labels", 2, share=0.5, sizes=[1.0]), r"groups.sizes = \[1.0\]: must be 2 weights"),
        (lambda: laid("by_user"), "'by_user' says whose each row is"),
        (lambda: laid(count=5), r"groups.count = 5: .* has 4 classes"),
    ],
)
def test_what_cant_be_is_said(wrong, said):
    with pytest.raises(ConfigError, match=said):
        wrong()


def test_changes_that_deal_rows_anew_are_refused():
    pool = pool_of(np.arange(400) % 4)
    with pytest.raises(ConfigError, match=r"changes.kind = 'labels'"):
        arrange(
            pool,
            divide(pool, "iid", 8, 1),
            1,
            groups=Groups("labels", 2, share=0.5),
            changes=[Change(1.0, "labels", None, 1.0)],
            kind="iid",
        )
