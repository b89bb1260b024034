import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.core.errors import ConfigError, DataError
from potluck.fleet import Always, DayNight, Intervals, OnOff

times = st.floats(0, 1e7)
nodes = st.integers(0, 2**31 - 1)
onoffs = st.builds(OnOff, st.integers(0, 2**64 - 1), st.floats(1, 1e5), st.floats(0.01, 0.99) | st.just(1.0))


@st.composite
def nights(draw):
    """Any night with any spread that it allows, in days of a second to a day and a bit."""
    begin, hours = draw(st.floats(0, 24)), draw(st.floats(0.6, 23.4))
    spread = draw(st.floats(0, 1)) * (min(hours, 24 - hours) - 0.55) / 2
    end = begin + hours
    end = end - 24 if end > 24 else end
    period = draw(st.floats(1, 1e5))
    return DayNight(draw(st.integers(0, 2**64 - 1)), (begin, end), draw(st.integers(1, 24)), spread, period)


@st.composite
def traces(draw):
    """Up to five nodes with up to five periods each; some have none."""
    spans = []
    for _ in range(draw(st.integers(1, 5))):
        marks = sorted(draw(st.lists(st.integers(0, 50), unique=True, max_size=10)))
        spans.append([(float(a), float(b)) for a, b in zip(marks[::2], marks[1::2], strict=False)])
    return spans


def agree(availability, node, when):
    """What the answers say of one moment must fit together, and hold up to the moments that they name."""
    on, end, begin = (
        ask(node, when) for ask in (availability.online, availability.until, availability.next_online)
    )
    if on:
        assert begin == when
        assert end > when
        if end < math.inf:
            assert not availability.online(node, end)
            assert availability.online(node, math.nextafter(end, -math.inf))
            assert availability.until(node, (when + end) / 2) == end or (when + end) / 2 == end
    else:
        assert end == when
        assert begin > when
        if begin < math.inf:
            assert availability.online(node, begin)
            assert not availability.online(node, math.nextafter(begin, -math.inf))
            assert availability.next_online(node, (when + begin) / 2) == begin
    for moment in (when, end, begin):
        if moment < math.inf:
            many = availability.online_many(np.array([node, node]), moment)
            assert many.dtype == np.bool_
            assert many.tolist() == [availability.online(node, moment)] * 2
    assert availability.change(when) > when


@given(onoffs | nights(), nodes, times)
def test_windows_agree_with_themselves(windows, node, when):
    agree(windows, node, when)


@given(onoffs | nights(), st.lists(nodes, max_size=50), times)
def test_many_are_the_same(windows, several, when):
    found = windows.online_many(np.array(several, dtype=np.int64), when)
    assert found.tolist() == [windows.online(node, when) for node in several]


@given(onoffs | nights(), nodes, times)
def test_windows_repeat_each_period(onoff, node, when):
    if getattr(onoff, "share", 0) == 1:
        assert onoff.until(node, when) == onoff.change(when) == math.inf
        return
    begin = onoff.next_online(node, onoff.until(node, when))
    again = onoff.next_online(node, onoff.until(node, begin))
    assert again - begin == pytest.approx(onoff.period, rel=1e-6)
    assert 0 < onoff.until(node, begin) - begin < onoff.period


@settings(max_examples=30)
@given(onoffs.filter(lambda o: o.share < 1) | nights(), nodes, st.floats(0, 1e5))
def test_looking_again_and_again_meets_every_device(onoff, node, when):
    latest = onoff.until(node, onoff.next_online(node, when))
    while when < latest and not onoff.online(node, when):
        when = onoff.change(when)
    assert onoff.online(node, when)


@given(traces(), st.integers(-1, 55) | st.floats(-1, 55))
def test_intervals_agree_with_themselves_and_the_trace(spans, when):
    trace = Intervals.of(spans)
    for node, own in enumerate(spans):
        agree(trace, node, float(when))
        assert trace.online(node, when) == any(start <= when < end for start, end in own)
    everyone = np.arange(len(spans))
    assert trace.online_many(everyone, when).tolist() == [trace.online(int(i), when) for i in everyone]
    later = [start for own in spans for start, _ in own if start > when]
    assert trace.change(when) == min(later, default=math.inf)


def test_onoff_is_online_for_its_mean_share():
    everyone = np.arange(20_000)
    for share in (0.05, 0.5, 0.8):
        onoff = OnOff(9, 86_400.0, share)
        assert onoff.online_many(everyone, 12_345.6).mean() == pytest.approx(share, abs=0.015)
        lengths = []
        for node in range(2_000):
            begin = onoff.next_online(node, onoff.until(node, 0.0))
            lengths.append((onoff.until(node, begin) - begin) / onoff.period)
        assert np.mean(lengths) == pytest.approx(share, abs=0.02)
        reach = 0.9 * min(share, 1 - share)
        assert share - reach <= min(lengths) <= max(lengths) <= share + reach


def test_onoff_answers_in_microseconds():
    onoff, ask = OnOff(9, 86_400.0, 0.5), range(10_000)
    began = time.perf_counter()
    for node in ask:
        onoff.next_online(node, 1e6)
    assert (time.perf_counter() - began) / len(ask) < 50e-6  # measured: 3; the rest is for busy machines


@pytest.mark.parametrize(
    ("period", "node", "when"), [(86400.1, 769, 228173568.6195957), (7.7, 452, 32.995708566135725)]
)
def test_onoff_where_the_division_rounds_across_a_start(period, node, when):
    for moment in (math.nextafter(when, -math.inf), when, math.nextafter(when, math.inf)):
        agree(OnOff(3, period, 0.5), node, moment)


def test_a_night_by_hand():
    hour = 3600.0
    night = DayNight(7, (22.0, 6.0), spread=0.0)  # all in one zone, all alike
    assert [night.online(3, h * hour) for h in (0, 5.99, 6, 21.99, 22, 29.99, 30)] == [
        *(True, True, False, False),
        *(True, True, False),
    ]
    assert night.until(3, 23 * hour) == 30 * hour
    assert night.until(3, 1 * hour) == 6 * hour  # last evening's
    assert night.next_online(3, 12 * hour) == 22 * hour
    noon = DayNight(7, (10.0, 14.0), spread=0.0, period=24.0)  # days of 24 seconds
    assert [noon.online(3, t) for t in (9.9, 10.0, 13.9, 14.0, 34.0)] == [False, True, True, False, True]
    zones = DayNight(7, (22.0, 6.0), zones=24, spread=0.0)
    starts = {round(zones.next_online(i, zones.until(i, 0.0)) / hour, 9) % 24 for i in range(2000)}
    assert starts == set(range(24))


def test_nights_make_the_crowd_come_and_go():
    everyone, hour = np.arange(20_000), 3600.0
    night = DayNight(9, spread=1.5)
    share = [night.online_many(everyone, h * hour).mean() for h in (2, 12, 20.5, 22, 23.5, 6)]
    assert share == pytest.approx([1, 0, 0, 0.5, 1, 0.5], abs=0.02)
    around = DayNight(9, zones=24)
    assert [around.online_many(everyone, h * hour).mean() for h in (0, 7, 15)] == pytest.approx(
        [1 / 3] * 3, abs=0.02
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"night": (22, 22)}, "night = .*two different hours"),
        ({"night": (0, 24)}, "night = .*two different hours"),
        ({"night": (22, 25)}, "night = .*two different hours"),
        ({"night": (22,)}, "night = .*two different hours"),
        ({"spread": 4}, "night_spread = 4: give hours, 0 to 3.75"),
        ({"spread": -1}, "night_spread = -1: give hours"),
        ({"zones": 0}, "zones = 0: give"),
        ({"zones": 25}, "zones = 25: give"),
        ({"period": 0}, "period = 0: give"),
    ],
)
def test_nights_name_key_value_and_fix(settings, message):
    with pytest.raises(ConfigError, match=f"fleet.{message}"):
        DayNight(1, **settings)


def test_always():
    agree(Always(), 3, 5.0)
    assert Always().until(3, 5.0) == Always().change(5.0) == math.inf


def test_a_trace_by_hand():
    trace = Intervals.of([[(0.0, 10.0), (20.0, 30.0)], [], [(5.0, math.inf)]])
    assert [trace.online(0, t) for t in (0.0, 9.9, 10.0, 20.0, 30.0)] == [True, True, False, True, False]
    assert trace.until(0, 25.0) == 30.0
    assert trace.next_online(0, 10.0) == 20.0
    assert trace.next_online(0, 30.0) == trace.next_online(1, 0.0) == trace.until(2, 7.0) == math.inf
    assert [trace.change(t) for t in (-1.0, 0.0, 5.0, 20.0)] == [0.0, 5.0, 20.0, math.inf]
    nobody = Intervals.of([[], []])
    assert nobody.online_many(np.arange(2), 0.0).tolist() == [False, False]


@pytest.mark.parametrize(
    "spans", [[(2, 1)], [(1, 1)], [(5, 6), (1, 2)], [(1, 3), (2, 4)], [(1, 2), (2, 3)], [(math.nan, 1)]]
)
def test_a_damaged_trace_names_its_node(spans):
    with pytest.raises(DataError, match="availability of node 2"):
        Intervals.of([[(0, 1)], [], spans, [(0, 1)]])


def test_a_trace_of_unequal_arrays_is_refused():
    with pytest.raises(DataError, match="2 starts, 1 ends; give 2 each"):
        Intervals(np.array([0, 2]), np.array([0.0, 2.0]), np.array([1.0]))


@pytest.mark.parametrize(
    ("period", "share", "message"), [(0, 0.5, "period = 0"), (1, 0, "share = 0"), (1, 1.1, "share = 1.1")]
)
def test_onoff_names_key_value_and_fix(period, share, message):
    with pytest.raises(ConfigError, match=f"fleet.{message}.*give"):
        OnOff(1, period, share)


# -------------------------------------------------------------------------------------------------- files


def saved(tmp_path, **arrays):
    np.savez(tmp_path / "online.npz", **arrays)
    return str(tmp_path / "online.npz")


def test_a_trace_from_a_file(tmp_path):
    spans = [[(0.0, 10.0), (20.0, 30.0)], [(4.0, 5.0)], [(5.0, 99.0)]]
    rows = [(n, a, b) for n, own in enumerate(spans) for a, b in own]
    node, start, end = (np.array(column) for column in zip(*reversed(rows), strict=True))  # in any order
    read, made = Intervals.read(saved(tmp_path, node=node, start=start, end=end)), Intervals.of(spans)
    assert np.array_equal(read.first, made.first)
    assert np.array_equal(read.starts, made.starts)
    assert np.array_equal(read.ends, made.ends)


@given(traces().filter(any), st.integers(0, 20), st.floats(-1, 55))
def test_with_more_devices_than_nodes_the_nodes_go_round(spans, node, when):
    trace = Intervals.of(spans)
    agree(trace, node, when)
    assert trace.online(node, when) == trace.online(node % len(spans), when)
    everyone = np.arange(21)
    assert trace.online_many(everyone, when).tolist() == [trace.online(int(i), when) for i in everyone]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"node": [0], "start": [0.0]}, "has no array 'end', only node, start"),
        ({"node": [0, 1], "start": [0.0], "end": [1.0]}, r"shapes node \(2,\), start \(1,\)"),
        ({"node": [0, 2, 2], "start": [0, 1, 5], "end": [1, 2, 6]}, "nodes from 0 to 2.*without gaps"),
        ({"node": [7], "start": [0], "end": [1]}, "nodes from 7 to 7.*number them from 0"),
        ({"node": [-1], "start": [0], "end": [1]}, "nodes from -1"),
        ({"node": [0.5], "start": [0], "end": [1]}, "give whole numbers for node"),
        ({"node": [0, 0], "start": [0, 1], "end": [3, 4]}, r"availability of node 0: \[1.0, 4.0\)"),
        ({"node": [0], "start": [3], "end": [1]}, r"availability of node 0: \[3.0, 1.0\) is empty"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, arrays, message):
    with pytest.raises(DataError, match=f"online.npz: {message}"):
        Intervals.read(saved(tmp_path, **arrays))


def test_a_missing_file_says_where_it_can_be_had(monkeypatch, tmp_path):
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path))
    with pytest.raises(DataError, match=rf"fleet.intervals = 'x.npz': no such file .*{tmp_path}.*FedScale"):
        Intervals.read("x.npz")
