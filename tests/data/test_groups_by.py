"""Hidden groups of users or edges: devices that belong together see the world alike."""

import numpy as np
import pytest

from potluck.core.errors import ConfigError
from potluck.data.groups import Groups
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation

OWNERS = {
    "user": np.array([0, 0, 1, 2, 2, 2], np.int32),
    "edge": np.array([0, 0, 0, 1, 1, 1], np.int32),
}
DATA = {"source": "synthetic", "rows": 400, "dimension": 5, "classes": 4, "partition": "user_devices"}
DATA |= {"users": 6, "devices_per_user": [2, 3]}


@pytest.mark.parametrize(("by", "members"), [("user", 3), ("edge", 2), (None, 6)])
def test_members_are_dealt_evenly(by, members):
    for key in range(10):
        group = Groups("permutation", 2, by=by).deal(OWNERS, 6, key)
        owner = np.arange(6) if by is None else OWNERS[by]
        of = {who: set(group[owner == who].tolist()) for who in range(members)}
        assert all(len(each) == 1 for each in of.values())
        counts = np.bincount([each.pop() for each in of.values()], minlength=2)
        assert np.ptp(counts) == members % 2


def test_sizes_are_of_users():
    group = Groups("permutation", 2, sizes=(1, 2), by="user").deal(OWNERS, 6, 3)
    assert sorted(len(set(OWNERS["user"][group == g].tolist())) for g in (0, 1)) == [1, 2]


@pytest.mark.parametrize(("by", "tier"), [("user", "user"), ("edge", "edge")])
def test_an_experiment_deals_groups_by_tier(by, tier):
    groups = {"kind": "permutation", "count": 2, "by": by}
    made = build_federation(Experiment(data=DATA | {"groups": groups}, fleet={"edges": 4}))
    owner = made.fleet.groups[tier]
    assert set(made.fleet.group.tolist()) == {0, 1}
    assert all(len(set(made.fleet.group[owner == who].tolist())) == 1 for who in owner)


@pytest.mark.parametrize(
    ("by", "more", "told"),
    [
        ("edge", {}, r"data\.groups\.by = 'edge': some device belongs to no edge; set fleet\.edges"),
        ("user", {"count": 7}, r"data\.groups\.count = 7: more than the 6 users"),
        ("cloud", {}, r"by"),
    ],
)
def test_who_there_is_not_is_named(by, more, told):
    groups = {"kind": "permutation", "count": 2, "by": by} | more
    with pytest.raises(ConfigError, match=told):
        build_federation(Experiment(data=DATA | {"groups": groups}))


def test_groups_know_by_whom_they_are_dealt():
    with pytest.raises(ConfigError, match=r"groups\.by = 'cloud': must be 'user' or 'edge'"):
        Groups("permutation", 2, by="cloud")
