"""What is said of figures is true of what they show."""

import numpy as np
import plotly.graph_objects as go
import pytest
from test_report_figures import compared, crowd, line, made

from potluck.core.errors import ConfigError
from potluck.core.notes import Crowd
from potluck.report import captions, crowds
from potluck.report.canvas import make_figure, make_logarithmic, pick_size_unit
from potluck.report.contents import draw_all
from potluck.report.page import join_units
from potluck.report.plain_labels import make_plain


def looked(algorithm, *times):
    """Below a target of 60 % but at the last time."""
    scores = [0.1] * (len(times) - 1) + [0.9]
    points = zip(times, scores, strict=True)
    return made(*(line(t, "accuracy_mean", a, view="global") for t, a in points), algorithm=algorithm)


def test_times_to_the_target_say_how_late_they_may_be():
    race = compared(looked("fast", 0.0, 5.0, 10.0), looked("slow", 0.0, 4.0, 30.0), evaluate={"target": 0.6})
    assert captions.tell_looks(race) == (
        "Times to the target are read off evaluations, so that they may be late by up to "
        "5.0 s (fast), 26 s (slow)."
    )
    alike = compared(looked("fast", 0.0, 5.0), looked("slow", 0.0, 5.0, 10.0), evaluate={"target": 0.6})
    assert captions.tell_looks(alike).endswith("late by up to 5.0 s.")
    assert captions.tell_looks(compared(looked("fast", 0.0), evaluate={"target": 0.6})) == ""


def test_nobody_is_said_to_cross_a_line_that_nobody_reached():
    race = compared(looked("fast", 0.0, 5.0), evaluate={"target": 0.95})
    assert "nobody got there" in captions.tell_race(race)
    assert "crosses the dotted line first" in captions.tell_race(
        compared(looked("a", 0.0, 5.0), evaluate={"target": 0.6})
    )


def test_who_ends_later_than_others_is_named():
    def race(**ends):
        runs = (made(line(0.0, "accuracy_mean", 0.1), algorithm=name, end=end) for name, end in ends.items())
        return captions.tell_race(compared(*runs, stop={"seconds": 90}))

    assert race(a=90.0, b=109.0).endswith("After 1 min 30 s no round begins; b ends later, with last tasks.")
    assert "begins" not in race(a=90.0, b=90.5)


def test_nothing_is_said_that_a_figure_does_not_show():
    alone = compared(made(devices=crowd()))
    several = compared(made(line(0.0, "attackers", [3])), made(seed=2), seeds=[1, 2])
    assert "dots are seeds" not in captions.tell_times(alone)
    assert "dots are seeds" in captions.tell_times(several)
    assert "attackers" not in captions.tell_devices(alone)
    assert captions.tell_devices(several).endswith("best tenth; attackers are left out.")
    even = made(devices=crowd(rows=[[4, 6], [5, 5], [5, 5], [5, 5]]))
    assert "Larger dots" not in captions.tell_speeds(even)
    assert "Larger dots hold more rows." in captions.tell_speeds(alone.runs[0])


def test_who_holds_what_says_how_much_and_in_which_order():
    assert captions.tell_holdings(made()) == ""
    assert captions.tell_holdings(made(devices=crowd())).endswith(
        "On average they know 1.0 of 2, before anything is trained. "
        "Devices stand in the order of their main class."
    )
    assert captions.tell_holdings(made(devices=crowd(user=[0, 0, 1, 1]))).endswith(
        "of one user stand together."
    )


def test_numbers_and_their_units_stay_together():
    assert join_units("10 s, 95.6 % and 2 MB of 3 seeds in 5 mins") == (
        "10\N{NO-BREAK SPACE}s, 95.6\N{NO-BREAK SPACE}% and 2\N{NO-BREAK SPACE}MB of 3 seeds in 5 mins"
    )


def test_links_are_compared_where_there_are_several_tiers():
    device, edge = (line(1.0, "bytes_up", 1e6, group=tier) for tier in ("device", "edge"))
    assert captions.tell_traffic(compared(made(device))) == "Look at who sends most. Up is towards the cloud."
    assert "which links carry the load" in captions.tell_traffic(compared(made(device, edge)))


@pytest.mark.parametrize(
    ("trait", "told"),
    [
        ("classes", "Here a device holds 1.0 of 2 classes."),
        ("kinds", "Here there are 2 kinds, hidden from all."),
        ("edges", "Here there are 2 edges, and 1 of the devices lie."),
        ("users", "Here 1 of 3 users have several."),
        ("sizes", "Here the slowest computes 100 times as long as the fastest."),
    ],
)
def test_how_far_a_crowd_is_of_a_kind(trait, told):
    hidden = [line(0.0, "hidden_group", n % 2, node=n) for n in range(4)]
    run = made(*hidden, line(0.0, "attackers", [3]), devices=crowd(edge=[0, 0, 1, 1], user=[0, 0, 1, 2]))
    assert crowds.measure_crowd(trait, run) == told
    assert crowds.measure_crowd(trait, made()) == ""
    assert crowds.draw_crowd(trait, "told").startswith("<svg viewBox=")


def test_a_crowd_of_no_known_kind_is_refused():
    with pytest.raises(ConfigError, match=r"Crowd\.trait"):
        Crowd("planets", "For planets.")


def test_log_axes_are_labelled_in_whole_numbers_and_close_values_have_none():
    axis = make_figure("", "").layout.xaxis
    make_logarithmic(axis, [20.0, 900.0])
    assert axis.type == "log"
    assert list(axis.ticktext)[3:9] == ["10", "20", "50", "100", "200", "500"]
    close = make_figure("", "").layout.xaxis
    make_logarithmic(close, [24.0, 25.0])
    assert close.type is None
    assert [pick_size_unit(most)[1] for most in (3e3, 3e6, 3e9)] == ["kB", "MB", "GB"]


def test_numbers_of_a_figure_are_as_long_as_can_be_seen():
    figure = go.Figure(go.Scatter(x=np.array([1.0, 1 / 3]), y=[float("nan"), 123456789.0]))
    (trace,) = make_plain(figure)["data"]
    assert (trace["x"], trace["y"]) == ([1, 0.333333], [None, 123457000])


def test_all_algorithms_have_one_colour_everywhere():
    race = compared(looked("fast", 0.0, 5.0), looked("slow", 0.0, 9.0))
    curves = {
        trace.name: trace.marker.color if trace.type == "bar" else trace.line.color
        for each in draw_all(race)
        if each.group == "The race"
        for trace in each.figure.data
    }
    assert curves == {"fast": "#0072B2", "slow": "#E69F00"}
