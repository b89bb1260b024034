from html import escape
from html.parser import HTMLParser

import pytest
from rich.console import Console
from unpacked import read_figures, unpack

import potluck
from potluck.cli.tables import show_comparison, show_run
from potluck.core import units
from potluck.experiment import Comparison, Experiment, Run
from potluck.metrics import Estimate
from potluck.report import columns as tables
from potluck.report import curves, per_device
from potluck.report.columns import list_columns, tell_global_test
from potluck.report.page import render


def run(algorithm, seed, times, accuracies, sent=1e6):
    """A run with these accuracies at these virtual times; `sent` bytes up a second, half as many down."""
    lines = []
    for i, (time, accuracy) in enumerate(zip(times, accuracies, strict=True)):
        at = {"round": 2 * i, "time": time}
        lines.append({**at, "metric": "accuracy_mean", "value": accuracy, "view": "global"})
        lines.append({**at, "metric": "bytes_up", "value": sent * time, "group": "device"})
        lines.append({**at, "metric": "bytes_down", "value": sent * time / 2, "group": "device"})
    summary = {
        "algorithm": algorithm,
        "seed": seed,
        "view": "global",
        "accuracy_mean": accuracies[-1],
        "accuracy_worst10": accuracies[-1] / 2,
        "accuracy_best10": 1.0,
        "global_accuracy": 0.5,
        "global_view": "global",
        "global_models": 1,
        "global_used": True,
        "virtual_seconds": times[-1],
        "rounds": 2 * (len(times) - 1),
        "bytes_up": sent * times[-1],
        "bytes_down": sent * times[-1] / 2,
        "device_seconds": 60.0,
        "finished": "now",
        "remarks": [],
    }
    return Run(Experiment(), summary, None, _lines=lines)


@pytest.fixture
def compared():
    experiment = Experiment(name="race", seeds=[1, 2], evaluate={"target": 0.6}, stop={"seconds": 40.0})
    runs = [
        run("slow<b>", 1, [0, 20, 40], [0.0, 0.4, 0.8]),
        run("slow<b>", 2, [0, 20, 40], [0.2, 0.6, 0.6]),
        run("fast", 1, [0, 10, 20], [0.0, 0.9, 0.9]),
        run("fast", 2, [0, 10, 20], [0.2, 0.7, 0.8]),
    ]
    return Comparison(experiment, runs)


def named(figure, name):
    return [trace for trace in figure.data if trace.name == name]


def test_curves_are_means_with_bands(compared):
    figure = curves.draw_over_time(compared)
    (line,) = named(figure, "slow<b>")
    assert (list(line.x), list(line.y)) == ([0, 20, 40], pytest.approx([10, 50, 70]))
    (band,) = named(figure, "slow<b>, all seeds")
    assert list(band.x) == [0, 20, 40, 40, 20, 0]
    assert list(band.y) == pytest.approx([20, 60, 80, 60, 40, 0])  # greatest, then least backwards
    assert figure.layout.xaxis.title.text == "virtual time (seconds)"
    assert "accuracy" in figure.layout.yaxis.title.text
    (target,) = figure.layout.shapes
    assert (target.name, target.showlegend, target.y0) == ("target 60 %", True, 60)


def test_units_of_time_fit_the_run():
    long = Comparison(Experiment(), [run("a", 1, [0, 7200], [0.1, 0.5])])
    figure = curves.draw_over_time(long)
    assert figure.layout.xaxis.title.text == "virtual time (hours)"
    assert list(figure.data[0].x) == [0, 2]
    assert len(figure.data) == 1  # one seed, no band


def test_traffic_is_up_and_down_together(compared):
    (line,) = named(curves.draw_over_bytes(compared), "fast")
    assert list(line.x) == pytest.approx([0, 15, 30])  # MB


def test_rounds(compared):
    (line,) = named(curves.draw_over_rounds(compared), "fast")
    assert list(line.x) == [0, 2, 4]


def test_curves_of_different_lengths_end_with_the_shorter():
    runs = [run("a", 1, [0, 10, 20], [0.0, 0.5, 1.0]), run("a", 2, [0, 5], [0.0, 0.5])]
    figure = curves.draw_over_time(Comparison(Experiment(seeds=[1, 2]), runs))
    (line,) = named(figure, "a")
    assert (list(line.x), list(line.y)) == ([0, 5], pytest.approx([0, 37.5]))


def test_devices(compared):
    figure = per_device.draw_spread(compared)
    assert [list(trace.x) for trace in figure.data] == [
        pytest.approx([35, 70, 100]),
        pytest.approx([42.5, 85, 100]),
    ]


def test_columns(compared):
    table = {column.name: (column.texts, column.best) for column in list_columns(compared)}
    assert table["accuracy"] == (["70.0 %", "85.0 %"], {1})
    assert table["time to 60 %"] == (["30 s", "10 s"], {1})  # 40 and 20 s; 10 and 10 s
    assert table["speed-up"][0] == ["1.0x", "3.0x"]
    assert table["traffic"][0] == ["60.0 MB", "30.0 MB"]


def test_it_is_said_which_models_the_global_test_is_of(compared):
    several = {"global_view": "tier", "global_models": 4, "global_used": True}
    own = {"global_view": "classter", "global_models": 1, "global_used": False}
    assert tell_global_test(compared.tested) == (
        "global test: on rows that no device holds, the model that all devices use (view global)"
    )
    told = [
        {**run.summary, **more} for run, more in zip(compared.runs, [several] * 2 + [own] * 2, strict=True)
    ]
    runs = [
        Run(run.experiment, s, None, _lines=run.lines) for run, s in zip(compared.runs, told, strict=True)
    ]
    mixed = Comparison(compared.experiment, runs)
    sentence = tell_global_test(mixed.tested)
    assert sentence == (
        "global test: on rows that no device holds, "
        "slow<b>: mean over devices of the model that each uses (view tier, 4 models); "
        "fast: the shared model (view classter), while devices use models of their own"
    )
    assert escape(sentence) in render(mixed)
    assert "slow<b>: mean over devices of the model that each uses" in printed(show_comparison(mixed))
    more = {
        "evaluated_on": "test",
        "target": None,
        "participants": 1,
        "tasks": 1,
        "lost": {},
        "wall_seconds": 1,
    }
    alone = printed(show_run(Run(runs[0].experiment, {**runs[0].summary, **more}, None)))
    assert "50.0 % on rows that no device holds: mean over devices of the model that each uses" in alone


def printed(what):
    """As a terminal shows it, its lines joined."""
    shown = Console(width=200)
    with shown.capture() as capture:
        shown.print(what)
    return " ".join(capture.get().split())


def test_a_target_that_one_seed_missed_is_not_reached(compared):
    runs = [*compared.runs[:3], run("fast", 2, [0, 10], [0.0, 0.5])]
    table = {column.name: column.texts for column in list_columns(Comparison(compared.experiment, runs))}
    assert table["time to 60 %"] == ["30 s", "not reached"]
    assert "speed-up" not in table  # nobody has one
    told = {column.name: column.texts for column in list_columns(compared)}
    assert told["speed-up"][0] == "1.0x"


class Page(HTMLParser):
    """What a page says, and what it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.text, self.tags = [], [], [""]
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = [value for key, value in attrs if key in ("src", "href", "srcset", "data", "action")]
        self.fetched += [value for value in found if not value.startswith(("data:", "#"))]

    def handle_data(self, data):
        if self.tags[-1] not in ("script", "style"):
            self.text.append(data)


def test_the_page_stands_alone(compared, tmp_path):
    where = potluck.write_report(compared, tmp_path / "report.html")
    text = where.read_text(encoding="utf-8")
    page = Page(text)
    assert page.fetched == []
    assert "@import" not in text.split("<script>")[0]
    figures = read_figures(text)
    assert len(figures) == page.tags.count("figure") == 6
    assert "plotly.js v" in unpack(text, "plotly")
    assert len(text) < 2_000_000
    assert "prefers-color-scheme: dark" in text
    said = " ".join(page.text)
    for title in ("race", "Accuracy over time", "Accuracy over traffic", "Accuracy over rounds", "Look at"):
        assert title in said
    assert "slow<b>" in said  # escaped: it arrives as text
    assert "b" not in page.tags
    assert page.tags.count("figcaption") == page.tags.count("figure")
    assert all(choice["csv"].startswith("trace,") for choices in figures for choice in choices)


def test_a_page_of_runs_that_were_never_evaluated():
    empty = run("a", 1, [0], [0.0])
    bare = Run(
        empty.experiment, {**empty.summary, "accuracy_mean": None, "accuracy_worst10": None}, _lines=[]
    )
    assert "–" in render(Comparison(Experiment(), [bare]))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (95, "1 min 35 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (None, "–"),
    ],
)
def test_durations(seconds, text):
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1.5e6, "1.5 MB"), (999_700, "1.0 MB"), (1e15, "1000 TB")],
)
def test_sizes(count, text):
    assert units.size(count) == text


def test_numbers():
    told = [units.number(value) for value in (0.123456, 325.4, 999.6, 5_892.0, -81_149_000.0)]
    assert told == ["0.123", "325", "1,000", "5,890", "-81,100,000"]


def test_percents():
    assert tables.tell_percents(Estimate(0.956, 0.004)) == "95.6 ± 0.4 %"
    assert tables.tell_percents(Estimate(0.956, None)) == "95.6 %"
    assert tables.tell_percents(Estimate(None, None)) == "–"
