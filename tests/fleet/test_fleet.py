import time
from dataclasses import fields, replace

import numpy as np
import pytest

from potluck.core.errors import ConfigError
from potluck.fleet import (
    COLUMNS,
    REFERENCE_OPS,
    SERVER,
    TRAINING_FACTOR,
    Jitter,
    OnOff,
    Topology,
    build,
    compute_seconds,
    list_machines,
    mobile,
    transfer_seconds,
    uniform,
)

GIB = 2**30


def ratio(column):
    return column.max() / column.min()


@pytest.mark.parametrize("n", [2, 3, 10, 1001])
def test_spreads_are_exact_for_any_number(n):
    profiles = mobile(n, 5, compute_spread=13.0, link_spread=200.0)
    assert ratio(profiles.compute) == pytest.approx(13)
    assert ratio(profiles.down) == ratio(profiles.up) == pytest.approx(200)
    if n % 2:
        assert np.median(profiles.compute) == pytest.approx(41)
        assert np.median(profiles.down) == pytest.approx(6.1e6)
    assert np.array_equal(profiles.up, profiles.down / 2)
    assert profiles.latency.min() >= 0.02
    assert profiles.latency.max() < 0.2
    assert profiles.memory.min() >= 1 * GIB
    assert profiles.memory.max() < 8 * GIB


def test_speeds_are_log_normal_and_independent():
    profiles = mobile(20_001, 5)
    logs = np.log(profiles.down / 6.1e6) / (np.log(200) / 4)  # in standard deviations of the uncut normal
    assert np.percentile(logs, [16, 84]) == pytest.approx([-0.9385, 0.9385], abs=0.01)  # of a normal cut at 2
    assert logs.std() == pytest.approx(0.8796, abs=0.005)
    assert (
        np.abs(np.corrcoef([profiles.compute, profiles.down, profiles.latency, profiles.memory])[0, 1:]).max()
        < 0.03
    )


def test_keys_decide_who_is_fast():
    one, same, other = mobile(100, 1), mobile(100, 1), mobile(100, 2)
    for name in COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(same, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))
    assert np.array_equal(np.sort(one.compute), np.sort(other.compute))


def test_a_spread_of_one_makes_all_alike():
    alike, same = mobile(10, 1, compute_spread=1.0, link_spread=1, latency=[0.05, 0.05]), uniform(10)
    for name in ("compute", "up", "down", "latency"):
        assert getattr(alike, name) == pytest.approx(getattr(same, name))
    assert mobile(1, 1).compute == pytest.approx([41])


def test_take_keeps_the_order_asked_for():
    profiles = mobile(10, 1)
    for nodes in ([7, 2, 2], np.array([9, 0]), range(2, 8, 3), range(4, -1, -1), range(3)):
        taken = profiles.take(nodes)
        assert len(taken) == len(nodes)
        assert np.array_equal(taken.up, [profiles.up[i] for i in nodes])
    assert np.shares_memory(profiles.take(range(3)).memory, profiles.memory)


def test_build_deals_devices_evenly_in_blocks():
    fleet = build("uniform", 11, 3, users=4, compute=10.0)
    assert fleet.user.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3]
    assert fleet.edge.tolist() == fleet.group.tolist() == [-1] * 11
    assert fleet.true is fleet.claimed
    assert fleet.true.compute.tolist() == [10.0] * 11
    for n, users, edges in ((100, 7, 3), (5, 5, 5), (1000, 333, 10)):
        fleet = build("mobile", n, 3, users, edges)
        assert np.ptp(np.bincount(fleet.user)) <= 1
        assert np.ptp(np.bincount(fleet.edge)) <= -(-n // users) + 1  # a user more or less
        Topology.build(n, ("edge", "user"), fleet.groups)  # no user lies across two edges


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "moble"}, "fleet.source = 'moble'.*'mobile'"),
        ({"compute_spred": 2}, "fleet.compute_spred.*'compute_spread'"),
        ({"n": 0}, "fleet.devices = 0"),
        ({"n": 2.5}, "fleet.devices = 2.5"),
        ({"users": 11}, "fleet.users = 11: at most 10"),
        ({"edges": 0}, "fleet.edges = 0"),
        ({"users": 2, "edges": 3}, "fleet.edges = 3: at most 2"),
        ({"compute_spread": 0.5}, "fleet.compute_spread = 0.5.*at least 1"),
        ({"link_spread": "wide"}, "fleet.link_spread = 'wide'"),
        ({"compute": 0.0}, "fleet.compute = 0.0.*above 0"),
        ({"down": -1.0}, "fleet.down = -1.0.*above 0"),
        ({"down": 0.0}, "fleet.down = 0.0.*above 0"),
        ({"down": float("nan")}, "fleet.down = nan"),
        ({"up_share": 0}, "fleet.up_share = 0"),
        ({"latency": 0.1}, r"fleet.latency = 0.1.*\[lowest, highest\]"),
        ({"latency": [0.2, 0.1]}, "fleet.latency"),
        ({"latency": [-1, 0.1]}, "fleet.latency of node"),
        ({"memory": [0, 0]}, "fleet.memory of node 0 = 0.0: give a number from 0.001"),
        ({"source": "uniform", "up": 0}, "fleet.up of node 0 = 0.0: give a number from 1e-06"),
        ({"source": "uniform", "up": [1, 2]}, "fleet.up = .*one number"),
        ({"source": "uniform", "latency": -0.1}, "fleet.latency of node 0 = -0.1: give a number from 0"),
    ],
)
def test_build_names_key_value_and_fix(change, message):
    with pytest.raises(ConfigError, match=message):
        build(**{"source": "mobile", "n": 10, "key": 1, **change})


def test_lies_change_claims_only():
    honest = build("mobile", 10, 3)
    fleet = honest.claim([2, 5], up=[1e9, 2e9], compute=1.0)
    assert fleet.true is honest.true
    assert honest.claimed is honest.true
    assert fleet.claimed.up[[2, 5]].tolist() == [1e9, 2e9]
    assert fleet.claimed.compute[[2, 5]].tolist() == [1.0, 1.0]
    others = [i for i in range(10) if i not in (2, 5)]
    assert np.array_equal(fleet.claimed.up[others], honest.true.up[others])
    assert fleet.claimed.down is honest.true.down
    again = fleet.claim(range(1), up=7.0)
    assert again.claimed.up[[0, 2]].tolist() == [7.0, 1e9]
    for nodes, columns, message in (
        ([10], {"up": 1.0}, "node 10 can't claim.*0 to 9"),
        ([-1], {"up": 1.0}, "node -1"),
        ([1], {"upp": 1.0}, "'upp'.*'up'"),
        ([1], {"up": 0.0}, "fleet.up of node 1 = 0.0"),
        ([1, 2], {"up": [1.0, 2.0, 3.0]}, "3 claims by 2 nodes"),
    ):
        with pytest.raises(ConfigError, match=message):
            honest.claim(nodes, **columns)
    with pytest.raises(ConfigError, match=r"fleet.up has shape \(3,\).*10 nodes"):
        replace(honest.true, up=np.ones(3)).check()
    with pytest.raises(ConfigError, match=r"fleet.user has 3 entries.*10 devices"):
        replace(honest, user=np.zeros(3, np.int32))


def test_durations_by_hand():
    assert REFERENCE_OPS == 28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    # LeNet-5 itself: 60 samples, 2 epochs, 41 ms a forward pass, three passes' worth each
    assert compute_seconds(TRAINING_FACTOR * 60 * 2 * REFERENCE_OPS, 41.0) == pytest.approx(14.76)
    assert compute_seconds(REFERENCE_OPS / 2, 10.0) == pytest.approx(0.005)
    # 61,706 float32 down at 6.1 Mbit/s, 50 ms away: 0.05 + 1,974,592 / 6,100,000
    assert transfer_seconds(61_706 * 4, 6.1e6, 0.05) == pytest.approx(0.373704, abs=1e-6)
    assert transfer_seconds(0, 1e6, 0.02) == 0.02
    rates, away = np.array([8e6, 4e6]), np.array([0.0, 1.0])
    assert transfer_seconds(1e6, rates, away).tolist() == [1.0, 3.0]
    assert compute_seconds(REFERENCE_OPS, np.array([1.0, 2.0])).tolist() == [0.001, 0.002]


def test_machines_appends_aggregators():
    hub = {"compute": 20.0, "latency": 0.001}
    tiers = {"user": hub, "group": {"up": 1.0}}  # no topology here has groups: fine
    fleet = build("uniform", 6, 1, users=3, edges=2, tiers=tiers).claim([0], up=9e9)
    topology = Topology.build(6, ("edge", "user"), fleet.groups)
    table = list_machines(fleet, topology)
    assert len(table) == topology.total == 12
    assert np.array_equal(table.compute, [41.0] * 6 + [1.0] * 3 + [20.0] * 3)
    assert np.array_equal(table.latency, [0.05] * 6 + [0.005] * 3 + [0.001] * 3)
    assert np.array_equal(table.up[6:], [SERVER["up"]] * 6)
    assert table.up[0] == 3.05e6
    assert list_machines(fleet, topology, claimed=True).up[0] == 9e9
    with pytest.raises(ConfigError, match="6 devices, topology of 5"):
        list_machines(fleet, Topology.build(5))


MAVERICK = {
    "edge": {"latency": [0.005, 0.02]},
    "cloud": {"latency": [0.075, 0.15]},
}  # half of its round trips


def test_latency_depends_on_the_tier_above():
    fleet = build("uniform", 1000, 1, edges=4, links=MAVERICK)
    flat, edged = Topology.build(1000), Topology.build(1000, ("edge",), fleet.groups)
    far, near = list_machines(fleet, flat).latency[:1000], list_machines(fleet, edged).latency[:1000]
    assert 0.075 <= far.min() < 0.08 < 0.145 < far.max() <= 0.15
    assert 0.005 <= near.min() < 0.006 < 0.019 < near.max() <= 0.02
    assert (far - 0.075) / 0.075 == pytest.approx((near - 0.005) / 0.015)  # the same place in both ranges
    assert np.array_equal(list_machines(fleet, edged).latency[1000:], [SERVER["latency"]] * 5)
    assert np.array_equal(list_machines(fleet, flat).down[:1000], fleet.true.down)
    user = Topology.build(1000, ("user",), {"user": np.zeros(1000, np.int32)})
    assert np.array_equal(
        list_machines(fleet, user).latency[:1000], fleet.true.latency
    )  # nothing said of users
    lone = replace(fleet, edge=np.where(np.arange(1000) < 500, 0, -1).astype(np.int32))
    both = list_machines(lone, Topology.build(1000, ("edge",), lone.groups)).latency
    assert np.array_equal(both[:1000], np.where(np.arange(1000) < 500, near, far))


def test_links_may_change_rates_and_lies_keep_their_proportion():
    links = {"edge": {"down": [1e8, 1e8], "latency": [0.0, 0.0]}, "cloud": {"latency": [0.1, 0.1]}}
    fleet = build("uniform", 4, 1, edges=2, links=links, claims=[{"nodes": [1], "latency": 0.5, "down": 3.0}])
    edged = Topology.build(4, ("edge",), fleet.groups)
    assert list_machines(fleet, edged).down[:4].tolist() == [1e8] * 4
    assert list_machines(fleet, edged, claimed=True).down[:4].tolist() == [1e8, 3e8, 1e8, 1e8]
    assert list_machines(fleet, Topology.build(4)).down[:4].tolist() == [6.1e6] * 4
    told = list_machines(fleet, Topology.build(4), claimed=True)
    assert told.latency[:4].tolist() == [0.1, 0.05, 0.1, 0.1]
    assert told.down[:4].tolist() == [6.1e6, 3 * 6.1e6, 6.1e6, 6.1e6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tiers": {"usr": {"up": 1.0}}}, "fleet.tiers.usr: no such tier; did you mean 'user'"),
        ({"tiers": {"user": {"computes": 1.0}}}, "fleet.tiers.user.computes: no such column.*'compute'"),
        ({"tiers": {"edge": {"down": 0.0}}}, "fleet.tiers.edge.down = 0.0: give numbers from 1e-06"),
        ({"tiers": {"edge": {"latency": -1}}}, "fleet.tiers.edge.latency = -1: give numbers from 0"),
        ({"tiers": {"edge": {"up": [1, 2]}}}, r"fleet.tiers.edge.up = \[1, 2\]"),
        ({"links": {"device": {"latency": [0, 1]}}}, "fleet.links.device: no such tier"),
        ({"links": {"edge": {"memory": [1, 2]}}}, "fleet.links.edge.memory: no such column"),
        ({"links": {"edge": {"latency": [0.2, 0.1]}}}, r"fleet.links.edge.latency = \[0.2, 0.1\]: give two"),
        ({"links": {"edge": {"latency": 0.1}}}, "fleet.links.edge.latency = 0.1: give two"),
        (
            {"links": {"cloud": {"up": [0.0, 1.0]}}},
            r"fleet.links.cloud.up = \(0.0, 1.0\): give numbers from 1e-06",
        ),
    ],
)
def test_wrong_tiers_and_links_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        build("uniform", 4, 1, edges=2, **change)


def test_a_million_devices_cost_megabytes():
    n = 1_000_000
    began = time.process_time()  # others may use the machine too
    fleet = build(
        *("mobile", n, 1, 250_000, 100, OnOff(2, 86_400.0, 0.3)),
        links=MAVERICK,
        jitter=Jitter(3),
    )
    flat = Topology.build(n)
    took = time.process_time() - began
    assert took < 1.0
    held = sum(getattr(fleet.true, name).nbytes for name in COLUMNS)
    held += sum(column.nbytes for column in fleet.groups.values())
    assert held < 100e6
    assert flat.children(flat.root) == range(n)
    assert not any(isinstance(getattr(flat, f.name), np.ndarray) for f in fields(flat))
    assert flat._links is None
    began = time.process_time()
    deep = Topology.build(n, ("edge", "user"), fleet.groups)
    table = list_machines(fleet, deep)
    assert time.process_time() - began < 1.0
    assert sum(array.nbytes for array in deep._links) < 20e6
    assert len(table) == n + 1 + 100 + 250_000
    assert deep.children(deep.root) == range(n + 1, n + 101)
