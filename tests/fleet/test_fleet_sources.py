import csv
import io
import time
from importlib import resources

import numpy as np
import pytest

from potluck.core.errors import ConfigError, DataError, PotluckError
from potluck.fleet import COLUMNS, build, fedrac40, mix, table, trace

GIB = 2**30


# ----------------------------------------------------------------------------------------------------- mix


@pytest.mark.parametrize(("preset", "times"), [("d1", 1), ("d2", 5), ("d3", 10), ("d4", 20)])
def test_the_mixes_of_classter(preset, times):
    profiles = mix(100, 3, preset=preset, compute=8.0)
    assert sorted(profiles.compute) == [8.0] * 50 + [8.0 * times] * 50
    assert set(profiles.down) == {6.1e6}
    same = mix(100, 3, slowdown=times, compute=8.0)
    assert np.array_equal(same.compute, profiles.compute)


def test_a_mix_of_ones_own():
    some = mix(1000, 3, slowdown=2.5, slow_share=0.1)
    slow = np.flatnonzero(some.compute > 41)
    assert len(slow) == 100
    assert some.compute[slow[0]] == 41 * 2.5
    assert 300 < slow.mean() < 700  # drawn, not the first ones
    assert not np.array_equal(some.compute, mix(1000, 4, slowdown=2.5, slow_share=0.1).compute)


# --------------------------------------------------------------------------------------------------- trace


@pytest.fixture
def phones(tmp_path):
    """Five measured phones, in an npz as the public one is."""
    compute, kbps = (
        np.array([15, 20, 41, 100, 199], np.float32),
        np.array([1e3, 2e3, 6e3, 5e4, 2e5], np.float32),
    )
    np.savez(tmp_path / "phones.npz", compute=compute, bandwidth_kbps=kbps)
    return str(tmp_path / "phones.npz")


def test_a_trace_is_drawn_once_or_again(phones):
    all_five = trace(5, 3, path=phones)
    assert sorted(all_five.compute) == [15, 20, 41, 100, 199]
    order = np.argsort(all_five.compute)
    assert all_five.down[order].tolist() == [1e6, 2e6, 6e6, 5e7, 2e8]  # the links of the same phones
    assert np.array_equal(all_five.up, all_five.down / 2)
    assert len(set(trace(3, 3, path=phones).compute)) == 3
    many = trace(5000, 3, path=phones, replace=True, up_share=1.0)
    assert np.bincount(np.searchsorted([15, 20, 41, 100, 199], many.compute)) == pytest.approx(1000, rel=0.1)
    assert np.array_equal(many.up, many.down)
    assert many.latency.min() >= 0.02
    with pytest.raises(ConfigError, match=r"fleet.replace = false: .*phones.npz has 5 devices for 6; set it"):
        trace(6, 3, path=phones)


def test_traces_are_found_below_the_data_folder(phones, monkeypatch, tmp_path):
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path))
    assert sorted(build("trace", 5, 1, path="phones.npz").true.compute) == [15, 20, 41, 100, 199]
    said = rf"fleet.path = 'none.npz': no such file \(looked for {tmp_path}/none.npz .*FedScale"
    with pytest.raises(DataError, match=said):
        build("trace", 5, 1, path="none.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"compute": [1.0]}, "has no array 'bandwidth_kbps', only compute"),
        ({"compute": [1.0, 2.0], "bandwidth_kbps": [1.0]}, r"shapes compute \(2,\), bandwidth_kbps \(1,\)"),
        ({"compute": [], "bandwidth_kbps": []}, r"shapes compute \(0,\)"),
        ({"compute": [1.0, 0.0], "bandwidth_kbps": [1, 1]}, r"compute\[1\] = 0.0; give finite.*above 0"),
        ({"compute": [1.0], "bandwidth_kbps": [np.nan]}, r"bandwidth_kbps\[0\] = nan"),
        ({"compute": ["a"], "bandwidth_kbps": [1]}, "compute holds <U1; give numbers"),
    ],
)
def test_a_damaged_trace_is_named(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=f"x.npz: {message}"):
        trace(1, 1, path=str(tmp_path / "x.npz"))


def test_a_million_devices_of_a_trace(phones):
    began = time.process_time()
    fleet = build("trace", 1_000_000, 1, path=phones, replace=True, claims=[{"share": 0.1, "up": 2.0}])
    assert time.process_time() - began < 2.0  # measured: 0.3
    assert (fleet.claimed.up > fleet.true.up).sum() == 100_000


# --------------------------------------------------------------------------------------------------- table

ROWS = [{"compute": 10, "down": 4e6}, {"compute": 20.0, "down": 8e6}, {"compute": 30.0, "down": 2e6}]


def test_a_table_goes_round():
    found = table(5, rows=ROWS)
    assert found.compute.tolist() == [10, 20, 30, 10, 20]
    assert found.up.tolist() == [2e6, 4e6, 1e6, 2e6, 4e6]
    assert found.latency.tolist() == [0.05] * 5
    assert table(2, rows=ROWS, latency=0.1, memory=1e9).memory.tolist() == [1e9] * 2
    full = [{"compute": 1, "up": 2, "down": 3, "latency": 0, "memory": 5}]
    assert [getattr(table(1, rows=full), name)[0] for name in COLUMNS] == [1, 2, 3, 0, 5]


def test_tables_from_files(tmp_path):
    (tmp_path / "a.csv").write_text("# phones\ncompute, down\n10, 4e6\n\n20, 8e6\n30, 2e6\n")
    (tmp_path / "a.toml").write_text(
        "[[rows]]\ncompute = 10\ndown = 4e6\n[[rows]]\ncompute = 20\ndown = 8e6\n"
    )
    for name, n in (("a.csv", 3), ("a.toml", 2)):
        found = build("table", n, 1, path=str(tmp_path / name)).true
        assert found.compute.tolist() == [10, 20, 30][:n]
        assert found.down.tolist() == [4e6, 8e6, 2e6][:n]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "compute,up\n1,2\n", "row 1 has compute, up; give compute, down, up in every row"),
        ("a.csv", "compute,down,dwon\n1,2,3\n", "no such column 'dwon'; did you mean 'down'"),
        ("a.csv", "compute,down\n1,fast\n", "down of row 1 = 'fast'; give a number"),
        ("a.csv", "compute,down\n1,2\n3\n", "down of row 2 = None; give a number"),
        ("a.csv", "compute,down\n1,2\n3,4,5\n", r"row 2 has compute, down, \(one too many\); give"),
        ("a.csv", "compute,down\n", "has no rows"),
        ("a.csv", "", "has no rows"),
        ("a.csv", "compute,down\n1,2,3\n", r"no such column '\(one too many\)'; known"),
        ("a.toml", "rows = 3\n", r"has no rows; write \[\[rows\]\]"),
        ("a.toml", "rows = [3]\n", "row 1 has 3"),
        ("a.toml", "rows = [\n", "not valid TOML"),
    ],
)
def test_damaged_tables_are_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=f"{name}: {message}"):
        table(2, path=str(tmp_path / name))


# ------------------------------------------------------------------------------------------------- Fed-RAC


def test_the_forty_phones_of_fedrac():
    text = (resources.files("potluck.fleet") / "fedrac40.csv").read_text()
    rows = list(csv.reader(io.StringIO("".join(s for s in text.splitlines(True) if s[0] != "#"))))[1:]
    printed = np.array(rows, float)
    assert np.array_equal(printed[:, 0], np.arange(1, 41))
    assert printed[[0, 15, 39], 1:].tolist() == [[1.6, 10.88, 8], [3.2, 19.43, 4], [2.1, 32, 6]]  # p1 p16 p40
    phones = fedrac40(40)
    assert np.median(printed[:, 1]) == 2.1
    assert phones.compute == pytest.approx(41 * 2.1 / printed[:, 1])
    assert phones.compute.max() / phones.compute.min() == pytest.approx(4)  # 3.2 GHz and 0.8
    assert phones.down == pytest.approx(printed[:, 2] * 1e6)
    assert phones.up == pytest.approx(phones.down / 2)
    assert phones.memory == pytest.approx(printed[:, 3] * GIB)
    around = build("fedrac40", 50, 1, compute=21.0, up_share=1.0, latency=0.1).true
    assert around.compute[40:] == pytest.approx(around.compute[:10])
    assert around.compute[34] == pytest.approx(21)  # p35 has the median speed
    assert np.array_equal(around.up, around.down)


def test_the_forty_phones_lie_apart_as_the_paper_needs():
    """Dunn's index of the best three clusters of Table III, all resources counting the same."""
    from scipy.spatial.distance import cdist
    from sklearn.cluster import KMeans

    phones = fedrac40(40)
    resources = np.stack([1 / phones.compute, phones.up, phones.memory], 1)
    scaled = (resources - resources.min(0)) / np.ptp(resources, 0) / 3**0.5
    label = KMeans(3, n_init=50, random_state=0).fit(scaled).labels_
    apart, one = cdist(scaled, scaled), label[:, None] == label[None]
    assert apart[~one].min() / apart[one].max() == pytest.approx(0.1359, abs=5e-5)


# -------------------------------------------------------------------------------------------------- claims


def test_some_claim_more_than_is_true():
    lies = [{"share": 0.1, "up": 2.0, "compute": 0.5}, {"nodes": [3, 7], "memory": 10.0}]
    fleet = build("mobile", 100, 3, claims=lies)
    liars = np.flatnonzero(fleet.claimed.up != fleet.true.up)
    assert len(liars) == 10
    assert fleet.claimed.up[liars] == pytest.approx(2 * fleet.true.up[liars])
    assert fleet.claimed.compute[liars] == pytest.approx(fleet.true.compute[liars] / 2)
    assert np.flatnonzero(fleet.claimed.memory != fleet.true.memory).tolist() == [3, 7]
    assert fleet.claimed.memory[7] == 10 * fleet.true.memory[7]
    assert fleet.claimed.down is fleet.true.down
    assert build("mobile", 100, 3).true.up.tolist() == fleet.true.up.tolist()
    few = build("mobile", 3, 3, claims=[{"share": 0.01, "up": 2.0}])
    assert (few.claimed.up != few.true.up).sum() == 1


# ---------------------------------------------------------------------------------------------- validation


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("mix", {}, "fleet.slowdown = None: give slow / fast .*d1: 1, d2: 5, d3: 10, d4: 20"),
        ("mix", {"preset": "d5"}, "fleet.preset = 'd5': no such preset; "),
        ("mix", {"preset": "d2", "slowdown": 3.0}, "fleet.preset = 'd2' and fleet.slowdown = 3.0: give one"),
        ("mix", {"slowdown": 0.5}, "fleet.slowdown = 0.5: .*at least 1"),
        ("mix", {"slowdown": 2, "slow_share": 1.0}, r"fleet.slow_share = 1.0: .*in \(0, 1\)"),
        ("mix", {"slowdown": 2, "slow_share": 0}, "fleet.slow_share = 0: "),
        ("mix", {"slowdown": 2, "down": -1.0}, "fleet.down of node 0 = -1.0: give a number from 1e-06"),
        ("trace", {}, "fleet.path is missing: source = 'trace' needs it"),
        ("trace", {"path": "x", "up_share": 0.0}, "fleet.up_share = 0.0: "),
        ("table", {}, "fleet.rows or fleet.path: a table needs one of them"),
        ("table", {"rows": ROWS, "path": "x"}, "fleet.rows or fleet.path: a table needs one of them"),
        ("table", {"rows": []}, "fleet.rows: has no rows"),
        ("table", {"rows": [{"compute": 1.0}]}, "fleet.rows: row 1 has compute; give compute, down"),
        (
            "table",
            {"rows": [{"compute": -1, "down": 1}]},
            "fleet.compute of node 0 = -1.0: give a number from 1e-12",
        ),
        ("table", {"rows": [*ROWS, {"compute": 1, "down": 1, "up": 1}]}, "row 4 has compute, down, up"),
        ("fedrac40", {"compute": 0}, "fleet.compute = 0: give the ms"),
        ("fedrac40", {"memory": 1.0}, "fleet.memory: 'fedrac40' has no such option"),
        ("mobile", {"claims": [{"up": 2.0}]}, "fleet.claims: give nodes or share"),
        (
            "mobile",
            {"claims": [{"share": 0.1, "nodes": [1], "up": 2.0}]},
            "fleet.claims: give nodes or share",
        ),
        ("mobile", {"claims": [{"share": 1.5, "up": 2.0}]}, r"fleet.claims.share = 1.5: .*\(0, 1\)"),
        ("mobile", {"claims": [{"share": 0.5}]}, "fleet.claims: say what is claimed"),
        ("mobile", {"claims": [{"share": 0.5, "upp": 2.0}]}, "fleet: no column 'upp'; did you mean 'up'"),
        ("mobile", {"claims": [{"share": 0.5, "up": 0}]}, "fleet.claims.up = 0: give a factor above 0"),
        ("mobile", {"claims": [{"nodes": [10], "up": 2.0}]}, "node 10 can't claim anything"),
    ],
)
def test_sources_name_key_value_and_fix(source, options, message):
    with pytest.raises(PotluckError, match=message) as caught:
        build(source, 10, 1, **options)
    assert "\n" not in str(caught.value)
