import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.errors import ConfigError, DataError
from potluck.fleet import Always, Intervals, OnOff

times = st.floats(0, 1e7)
nodes = st.integers(0, 2**31 - 1)
onoffs = st.builds(OnOff, st.integers(0, 2**64 - 1), st.floats(1, 1e5), st.floats(0.01, 0.99) | st.just(1.0))


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


@given(onoffs, nodes, times)
def test_onoff_agrees_with_itself(onoff, node, when):
    agree(onoff, node, when)


@given(onoffs, st.lists(nodes, max_size=50), times)
def test_onoff_many_are_the_same(onoff, several, when):
    found = onoff.online_many(np.array(several, dtype=np.int64), when)
    assert found.tolist() == [onoff.online(node, when) for node in several]


@given(onoffs, nodes, times)
def test_onoff_repeats_each_period(onoff, node, when):
    if onoff.share == 1:
        assert onoff.until(node, when) == onoff.change(when) == math.inf
        return
    begin = onoff.next_online(node, onoff.until(node, when))
    again = onoff.next_online(node, onoff.until(node, begin))
    assert again - begin == pytest.approx(onoff.period, rel=1e-6)
    assert 0 < onoff.until(node, begin) - begin < onoff.period


@settings(max_examples=30)
@given(onoffs.filter(lambda o: o.share < 1), nodes, st.floats(0, 1e5))
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
    with pytest.raises(ConfigError, match=f"availability.{message}.*give"):
        OnOff(1, period, share)
