"""Every key of [fleet]: read, checked, resolved, built."""

import numpy as np
import pytest

import potluck
from potluck.core.errors import ConfigError, PotluckError
from potluck.experiment import Experiment
from potluck.experiment.prepare import prepare
from potluck.fleet import DayNight, Intervals, Jitter, OnOff, Topology, list_machines

SMALL = {
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    "model": {"name": "linear"},
    "stop": {"rounds": 2},
    "run": {"executor": "loop"},
    "algorithms": {"fedavg": {"clients": 3}},
}

WHOLE = """
[fleet]
source = "mix"
preset = "d3"
edges = 2
availability = "day_night"
night = [0, 12]
zones = 3
night_spread = 2

[fleet.tiers.edge]
up = 1e8
down = 2e8
latency = 0.01
compute = 5

[fleet.links.edge]
latency = [0.005, 0.02]
[fleet.links.cloud]
latency = 0.1

[fleet.jitter]
rates = 0.3

[[fleet.claims]]
share = 0.25
up = 2
[[fleet.claims]]
nodes = [1]
compute = 0.5
"""


def built(fleet, **changes):
    return prepare(Experiment(**SMALL | changes, fleet=fleet)).federation.fleet


def test_a_whole_table(tmp_path):
    (tmp_path / "e.toml").write_text(WHOLE)
    read = Experiment.from_file(tmp_path / "e.toml")
    full = Experiment(**SMALL, fleet=read.fleet).resolve()
    (tmp_path / "full.toml").write_text(full.to_toml())
    again = Experiment.from_file(tmp_path / "full.toml")
    assert again.resolve().to_toml() == full.to_toml()
    for fleet in (built(read.fleet), prepare(again).federation.fleet):
        assert sorted(fleet.true.compute) == [41.0] * 4 + [410.0] * 4
        assert (fleet.availability.night, fleet.availability.zones) == ([0, 12], 3)
        assert isinstance(fleet.jitter, Jitter)
        assert (fleet.jitter.rates, fleet.jitter.every, fleet.jitter.compute) == (0.3, 60.0, 0.0)
        assert (fleet.claimed.up == 2 * fleet.true.up).sum() == 2
        assert fleet.claimed.compute[1] == fleet.true.compute[1] / 2
        edged = list_machines(fleet, Topology.build(8, ("edge",), fleet.groups))
        assert edged.latency[9:].tolist() == [0.01, 0.01]
        assert (edged.up[9], edged.down[9], edged.compute[9]) == (1e8, 2e8, 5)
        assert 0.005 <= edged.latency[:8].min() < edged.latency[:8].max() <= 0.02
        assert list_machines(fleet, Topology.build(8)).latency[:8].tolist() == [0.1] * 8


def test_sources_of_every_kind(tmp_path):
    np.savez(tmp_path / "t.npz", compute=np.full(9, 7.0), bandwidth_kbps=np.full(9, 5.0))
    (tmp_path / "t.csv").write_text("compute,down\n1,2\n3,4\n")
    trace = built({"source": "trace", "path": str(tmp_path / "t.npz"), "up_share": 1.0})
    assert (trace.true.compute[0], trace.true.up[0]) == (7.0, 5000.0)
    again = built({"source": "trace", "path": str(tmp_path / "t.npz"), "replace": True}, data={"clients": 20})
    assert len(again) == 20
    assert built({"source": "table", "path": str(tmp_path / "t.csv")}).true.down[:3].tolist() == [2, 4, 2]
    rows = [{"compute": 1.0, "down": 2.0}, {"compute": 3.0, "down": 4.0}]
    assert built({"source": "table", "rows": rows}).true.compute[:3].tolist() == [1, 3, 1]
    assert built({"source": "fedrac40"}).true.down[1] == pytest.approx(4.1e6)
    assert set(built({"source": "mix", "slowdown": 4.0, "slow_share": 0.25}).true.compute) == {41.0, 164.0}


def test_availability_of_every_kind(tmp_path):
    np.savez(tmp_path / "t.npz", node=[0, 1], start=[0.0, 5.0], end=[9.0, 9.0])
    assert isinstance(built({"availability": "on_off"}).availability, OnOff)
    assert built({"availability": "day_night", "period": 240.0}).availability.period == 240.0
    assert isinstance(built({"availability": "day_night"}).availability, DayNight)
    found = built({"availability": "intervals", "intervals": str(tmp_path / "t.npz")}).availability
    assert isinstance(found, Intervals)
    assert [found.online(i, 1.0) for i in range(4)] == [True, False, True, False]


def test_a_run_at_night():
    night = {"availability": "day_night", "night": [12, 20], "period": 240.0, "source": "fedrac40"}
    experiment = Experiment(**SMALL, fleet={**night, "jitter": {"compute": 0.2}})
    one, two = (potluck.run(experiment) for _ in range(2))
    assert one.lines == two.lines
    began = min(line["time"] for line in one.lines if line["round"] == 1)
    assert 105 < began < 140  # half past ten at the earliest, in days of 240 seconds


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        (
            {"source": "phones"},
            "fleet.source = 'phones': no such source; known: fedrac40, mix, mobile, table, ",
        ),
        (
            {"tiers": {"edge": {"latncy": 1.0}}},
            "fleet.tiers.edge.latncy = 1.0: no such key; did you mean 'latency'",
        ),
        (
            {"tiers": {"edge": {"up": 0.0}}},
            "fleet.tiers.edge.up = 0.0: should be greater than or equal to 0.001",
        ),
        ({"tiers": {"edge": 3}}, "fleet.tiers.edge = 3: should be a table"),
        ({"tiers": {"egde": {"up": 1.0}}}, "fleet.tiers.egde: no such tier; did you mean 'edge'"),
        ({"links": {"edge": {"latency": "near"}}}, "fleet.links.edge.latency = 'near': should be"),
        ({"links": {"edge": {"latency": [2.0, 1.0]}}}, r"fleet.links.edge.latency = \[2.0, 1.0\]: give two"),
        ({"jitter": {"evry": 1.0}}, "fleet.jitter.evry = 1.0: no such key; did you mean 'every'"),
        ({"jitter": {"every": 0.0}}, "fleet.jitter.every = 0.0: should be greater than or equal to 0.001"),
        ({"jitter": 0.2}, "fleet.jitter = 0.2: should be a table"),
        ({"claims": [{"share": 0.1, "speed": 2.0}]}, "fleet.claims.0.speed = 2.0: no such key; "),
        ({"claims": [{"share": 1.1, "up": 2.0}]}, "fleet.claims.0.share = 1.1: should be less than 1"),
        ({"claims": [{"up": 2.0}]}, "fleet.claims: give nodes or share"),
        ({"claims": {"up": 2.0}}, "fleet.claims: should be a valid list"),
        (
            {"availability": "day_nite"},
            "fleet.availability = 'day_nite': should be one of always, on_off, day_",
        ),
        ({"availability": "intervals"}, "fleet: availability = 'intervals' and intervals = None: "),
        ({"intervals": "x.npz"}, "fleet: availability = 'always' and intervals = 'x.npz': "),
        ({"availability": "day_night", "night": [1.0]}, r"fleet.night = \[1.0\]: give two different hours"),
        ({"source": "trace"}, "fleet.path is missing: source = 'trace' needs it"),
        ({"source": "trace", "path": "no.npz"}, "fleet.path = 'no.npz': no such file .*FedScale"),
        ({"source": "mobile", "path": "x"}, "fleet.path: 'mobile' has no such option"),
        ({"source": "mix"}, "fleet.slowdown = None: give slow / fast"),
        ({"source": "table", "rows": [{"compute": "x"}]}, r"fleet.rows"),
        (
            {"source": "mobile", "compute_spread": 0.5},
            "fleet.compute_spread = 0.5: should be greater than or equal to 1",
        ),
        ({"up": -1.0}, "fleet.up = -1.0: should be greater than or equal to 0.001"),
    ],
)
def test_one_line_for_every_problem(fleet, message):
    with pytest.raises(PotluckError, match=f"experiment: {message}") as caught:
        built(fleet)
    assert "\n" not in str(caught.value)


def test_overrides_reach_nested_tables():
    changed = Experiment(**SMALL).with_overrides(["fleet.tiers.edge.up=5.0", "fleet.jitter.rates=0.1"])
    assert changed.fleet.tiers["edge"].up == 5.0
    assert changed.fleet.jitter.rates == 0.1
    with pytest.raises(ConfigError, match=r"fleet.tiers.edge.upp = 5.0: no such key; did you mean 'up'"):
        changed.with_overrides(["fleet.tiers.edge.upp=5.0"])
