import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import ConfigError
from potluck.fleet import Topology


def array(*ids):
    return np.array(ids, dtype=np.int32)


def listed(children):
    return [int(node) for node in children]


def test_flat():
    flat = Topology.build(4)
    assert (flat.root, flat.devices, flat.total, flat.aggregators) == (4, 4, 5, range(4, 5))
    assert flat.children(4) == range(4)
    assert flat.children(2) == range(0)
    assert [flat.parent(node) for node in range(5)] == [4, 4, 4, 4, None]
    assert [flat.tier(node) for node in (0, 4)] == ["device", "cloud"]
    assert [flat.name(node) for node in (3, 4)] == ["device 3", "cloud"]
    assert flat.path(3) == (4,)
    assert flat.path(4) == ()


def test_two_tiers_and_lone_devices():
    tree = Topology.build(6, ("edge",), {"edge": array(0, 1, 0, -1, 1, 1)})
    assert (tree.root, tree.total) == (6, 9)
    assert listed(tree.children(6)) == [3, 7, 8]  # a device without an edge, and the edges
    assert listed(tree.children(7)) == [0, 2]
    assert listed(tree.children(8)) == [1, 4, 5]
    assert tree.path(4) == (8, 6)
    assert tree.path(3) == (6,)
    assert tree.name(8) == "edge 1"
    assert tree.members("edge") == range(7, 9)
    assert tree.members("cloud") == range(6, 7)
    assert tree.members("device") == range(6)


def test_contiguous_children_are_ranges():
    tree = Topology.build(6, ("edge",), {"edge": array(0, 0, 1, 1, 1, 2), "user": array(9, 9, 9, 9, 9, 9)})
    assert [tree.children(node) for node in tree.aggregators] == [
        range(7, 10),
        range(2),
        range(2, 5),
        range(5, 6),
    ]


def test_three_tiers():
    groups = {"edge": array(0, 0, 0, 1, 1, 1, -1, -1), "user": array(0, 0, 1, 2, 2, -1, 3, -1)}
    tree = Topology.build(8, ("edge", "user"), groups)
    # 8 cloud; 9, 10 edges; 11 to 14 users
    assert listed(tree.children(8)) == [7, 9, 10, 14]  # a user on no edge hangs below the cloud
    assert tree.children(9) == range(11, 13)
    assert listed(tree.children(10)) == [5, 13]  # a device of no user hangs below its edge
    assert tree.children(11) == range(2)
    assert tree.path(0) == (11, 9, 8)
    assert tree.path(6) == (14, 8)
    assert [tree.name(node) for node in tree.path(4)] == ["user 2", "edge 1", "cloud"]
    assert [tree.tier(node) for node in tree.aggregators] == ["cloud"] + ["edge"] * 2 + ["user"] * 4


@given(st.data())
def test_parents_and_children_are_inverse(data):
    devices, depth = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 4))
    tiers, groups = [f"tier{i}" for i in range(depth)], {}
    below = np.arange(
        devices
    )  # from the devices upward: whole groups are grouped again, so nobody lies across two
    for tier in reversed(tiers):
        raw = data.draw(st.lists(st.integers(-1, 3), min_size=devices, max_size=devices))
        ids = np.array(raw)[below]
        if ids.max() < 0:
            ids[:] = 0
        known = np.unique(ids[ids >= 0])
        ids = np.where(ids >= 0, np.searchsorted(known, ids), -1)
        groups[tier] = ids.astype(np.int32)
        below = np.array(
            [
                np.flatnonzero((ids == i) if i >= 0 else (below == b))[0]
                for i, b in zip(ids, below, strict=True)
            ]
        )
    tree = Topology.build(devices, tiers, groups)
    seen = []
    for node in tree.aggregators:
        own = listed(tree.children(node))
        assert own == sorted(own) != []
        assert isinstance(tree.children(node), range) == (own == list(range(own[0], own[-1] + 1)))
        assert all(tree.parent(child) == node for child in own)
        seen += own
    assert sorted([*seen, tree.root]) == list(range(tree.total))
    for device in range(devices):
        nearest_first = [
            int(tree.members(t)[groups[t][device]]) for t in reversed(tiers) if groups[t][device] >= 0
        ]
        assert tree.path(device) == (*nearest_first, tree.root)


@pytest.mark.parametrize(
    ("tiers", "groups", "message"),
    [
        (
            ["edge", "user"],
            {"edge": array(0, 1, 1), "user": array(0, 0, 1)},
            "user 0 has devices below edge . and edge .",
        ),
        (
            ["edge", "user"],
            {"edge": array(0, -1, 0), "user": array(0, 0, 1)},
            "user 0 has devices below .*cloud",
        ),
        (["edge"], {"edge": array(0, 2, 2)}, "edge 1 of 3 has no devices"),
        (["user"], {"user": array(0, 2, 2)}, "user 1 of 3 has no devices: number them without gaps"),
        (
            ["user"],
            {"user": array([0, 1], [0, 0], [1, 1])},
            "'user': a device belongs to one of them or none",
        ),
        (["edge"], {"edge": array(-1, -1, -1)}, "no device belongs to one; set fleet.edges"),
        (["edge"], {"edge": array(-2, 0, 0)}, "edge -2"),
        (["edge"], {"edge": array(0, 0)}, "2 entries; give one for each of 3"),
        (["egde"], {"edge": array(0, 0, 0)}, "'egde'.*'edge'"),
        (["edge", "edge"], {"edge": array(0, 0, 0)}, "'edge' is taken"),
        (["cloud"], {"cloud": array(0, 0, 0)}, "'cloud' is taken"),
    ],
)
def test_impossible_trees_are_refused(tiers, groups, message):
    with pytest.raises(ConfigError, match=message):
        Topology.build(3, tiers, groups)


def test_wrong_nodes_and_tiers_are_named():
    tree = Topology.build(3)
    for ask in (tree.parent, tree.children, tree.tier, tree.name, tree.path):
        for node in (-1, 4):
            with pytest.raises(IndexError, match=f"node {node}: nodes are 0 to 3"):
                ask(node)
    with pytest.raises(ConfigError, match=r"'devise'.*'device'"):
        tree.members("devise")
    with pytest.raises(ConfigError, match="devices = 0"):
        Topology.build(0)
