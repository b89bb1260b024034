"""Groups that the source knows of, and groups within groups."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_drift import all_rows, pictures
from test_partition import SPLITS

from potluck.core.errors import ConfigError
from potluck.data import Groups, arrange, divide
from potluck.data.own_classes import deal_classes
from potluck.data.views import View

LABELS = Groups("labels", 2, share=0.75)


def people(numbers=(7, 7, 3, 3, 3, 7)):
    """Six writers of two populations."""
    pool = pictures()
    return replace(pool, people=np.array(numbers)[pool.user])


def test_groups_are_the_populations_of_the_source():
    pool = people()
    partition = divide(pool, "split_users", None, 1, rows_per_client=10)
    made = arrange(pool, partition, 1, groups=Groups("source", 2), kind="split_users", rows_per_client=10)
    writer = [pool.user[all_rows(partition, c)][0] for c in range(partition.clients)]
    assert made.group.tolist() == [(1, 1, 0, 0, 0, 1)[w] for w in writer]  # 3 is before 7
    assert made.pool is pool
    assert made.phases[0].partition is partition
    assert made.test_group is None


def test_groups_within_groups_by_hand():
    """Turned or not, and of either classes: of group g, g // 2 is turned, g % 2 says which classes."""
    pool, groups = pictures(960), Groups("rotation", 2, within=LABELS)
    partition = divide(pool, "iid", 16, 3)
    made = arrange(pool, partition, 3, groups=groups, kind="iid")
    assert np.bincount(made.group).tolist() == [4, 4, 4, 4]
    assert made.test_group is None
    owner, part = deal_classes(pool, (1.0, 1.0), 3), made.phases[0].partition
    for c in range(16):
        rows = np.sort(np.concatenate([part.rows(c, s) for s in SPLITS]))
        before = made.origin[rows]
        assert torch.equal(made.pool.x[rows], View(degrees=180.0 * (made.group[c] // 2)).of(pool, before)[0])
        own = owner[pool.y.numpy()[before]] == made.group[c] % 2
        assert own.sum() == np.floor(0.75 * len(rows) + 0.5)
    swapped = arrange(pool, partition, 3, groups=replace(LABELS, within=Groups("rotation", 2)), kind="iid")
    for c in range(16):
        rows = np.sort(np.concatenate([swapped.phases[0].partition.rows(c, s) for s in SPLITS]))
        before = swapped.origin[rows]
        turned = View(degrees=180.0 * (swapped.group[c] % 2)).of(pool, before)[0]
        assert torch.equal(swapped.pool.x[rows], turned)


def test_two_ways_to_see_at_once():
    pool, groups = pictures(), Groups("rotation", 2, within=Groups("permutation", 3, sizes=[2.0, 1.0, 1.0]))
    partition = divide(pool, "iid", 14, 3)
    made = arrange(pool, partition, 3, groups=groups, kind="iid")
    assert groups.weights == (2, 1, 1, 2, 1, 1)
    assert np.bincount(made.group).tolist() == [3, 2, 2, 3, 2, 2]  # one each; 2, 1, 1 of eight more
    names = Groups("permutation", 3).views(pool, 3)
    for c in range(14):
        rows = np.sort(all_rows(made.phases[0].partition, c))
        view = replace(names[made.group[c] % 3], degrees=180.0 * (made.group[c] // 3))
        x, y = view.of(pool, made.origin[rows])
        assert torch.equal(made.pool.x[rows], x)
        assert torch.equal(made.pool.y[rows], y)
    assert set(made.test_group) == set(range(6))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: Groups("rotation", 2, within=Groups("rotation", 2)),
            r"within.kind = 'rotation': .* one other",
        ),
        (lambda: Groups("source", 2, within=LABELS), r"within.kind = 'labels': .* of a source neither"),
        (lambda: Groups("affine", 2, within=Groups("source", 2)), r"within.kind = 'source'"),
        (lambda: Groups("affine", 2, within=Groups("rotation", 2, within=LABELS)), r"within.kind = 'labels'"),
        (lambda: Groups("source", 2, sizes=[1.0, 2.0]), r"groups.sizes: kind = 'source'"),
    ],
)
def test_what_cannot_be_within_is_refused(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize(
    ("pool", "kind", "count", "said"),
    [
        (pictures(), "by_user", 2, r"groups.kind = 'source': .* doesn't say which population"),
        (people(), "by_user", 3, r"groups.count = 3: clients are of 2 populations of .* \(3, 7\); set 2"),
        (people([1] * 6), "by_user", 2, r"of 1 populations .* leave groups out"),
        (people(), "iid", 2, r"client 0 has rows of several populations; use partition 'by_user'"),
        (people(), "procedural", 2, r"rows must be somebody's; use partition 'by_user'"),
    ],
)
def test_populations_must_be_there_and_apart(pool, kind, count, said):
    partition = divide(pool, kind, None if kind == "by_user" else 6, 1)
    with pytest.raises(ConfigError, match=said):
        arrange(pool, partition, 1, groups=Groups("source", count), kind=kind)
