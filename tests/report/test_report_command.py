"""`potluck report`: which folders it takes, what it writes, and the page itself in a browser."""

import importlib
import json
import re
import shutil
from pathlib import Path

import pytest
from unpacked import read_figures

from potluck.cli import main
from potluck.experiment import Experiment, compare, run
from potluck.report.gather import gather, is_one_federation

SETTING = dict(
    data={"source": "synthetic", "rows": 300, "dimension": 4, "classes": 3, "clients": 8},
    fleet={"edges": 2},
    model={"name": "linear"},
    stop={"rounds": 3},
    evaluate={"target": 0.4},
    run={"executor": "loop"},
    algorithms={"fedavg": {"clients": 2}},
)
SMALL = Experiment(name="small", **SETTING)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A comparison of two algorithms and two seeds, and a single run with another learning rate."""
    folder = tmp_path_factory.mktemp("runs")
    compare(SMALL, ["fedavg", "fededge"], [1, 2], folder / "both")
    run(SMALL.with_values(name="other", train={"lr": 0.5}), folder / "alone")
    run(SMALL.with_values(name="crowded", data={**SETTING["data"], "clients": 9}), folder / "crowded")
    return folder


@pytest.fixture
def potluck(capsys):
    """Runs a command in this process: exit code, stdout, stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return call


def test_a_comparison_is_drawn_into_its_own_folder(runs, potluck, tmp_path):
    code, out, err = potluck("report", runs / "both", "--csv", tmp_path / "data")
    assert (code, err) == (0, "")
    assert out.startswith(f"report: {runs / 'both' / 'report.html'}\n")
    assert "winner" in out or "came out ahead" in out  # two seeds
    page = (runs / "both" / "report.html").read_text()
    for title in ("Accuracy over time", "The fleet", "Who holds what", "The anatomy of a round"):
        assert page.count(f"<h3>{title}</h3>") == 1
    assert "<option>fedavg</option><option>fededge</option>" in page
    assert "Inside fededge</h2>" in page
    assert "<h3>Rounds of the edges&#x27; own</h3>" in page
    files = {place.name for place in (tmp_path / "data").iterdir()}
    assert {"table.csv", "accuracy-over-time.csv", "the-fleet.csv", "traffic-by-tier.csv"} <= files
    carried = {choice["file"]: choice["csv"] for choices in read_figures(page) for choice in choices}
    assert carried.keys() == files - {"table.csv"}
    assert carried["the-fleet.csv"] == (tmp_path / "data" / "the-fleet.csv").read_text()


def test_compare_ends_with_a_sentence(potluck, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL.to_toml())
    code, out, _ = potluck(
        "compare", "small.toml", "--algorithms", "fedavg,fedprox", "--set", "stop.rounds=2"
    )
    assert code == 0
    assert re.search(r"report: runs/small/report.html\n(.+ came out ahead|No clear winner): ", out)
    code, out, _ = potluck("show", "runs/small", "--json")
    assert json.loads(out)["verdict"].endswith(".")


def test_a_run_has_a_page_too(runs, potluck, tmp_path):
    code, out, _ = potluck("report", runs / "alone", "--out", tmp_path / "new" / "page.html", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["report"] == str(tmp_path / "new" / "page.html")
    assert told["verdict"] == ""  # nobody to win against
    page = (tmp_path / "new" / "page.html").read_text()
    assert "<h3>The anatomy of a round</h3>" in page
    assert "Unfinished" not in page


def test_runs_that_differ_in_their_seed_belong_together(runs):
    found = gather([runs / "both" / "fedavg-2", runs / "both" / "fedavg-1", runs / "both" / "fedavg-1"])
    assert found.algorithms == ["fedavg"]
    assert sorted(run.summary["seed"] for run in found.runs) == [1, 2]
    assert found.experiment.seeds == [1, 2]


def test_settings_that_would_share_a_name_are_told_apart(runs):
    found = gather([runs / "both", runs / "alone"])
    assert found.algorithms == ["small: fedavg", "fededge", "other: fedavg"]
    assert is_one_federation(found)  # the learning rate is the method's, not the crowd's
    assert len(found.of("small: fedavg")) == 2


def test_copies_of_a_run_are_told_apart_by_their_folders(runs, tmp_path):
    shutil.copytree(runs / "alone", tmp_path / "copy")
    found = gather([runs / "alone", tmp_path / "copy"])
    assert found.algorithms == [f"{runs.name}: fedavg", f"{tmp_path.name}: fedavg"]


def test_runs_of_different_crowds_have_no_winner(runs, potluck, tmp_path):
    code, out, _ = potluck("report", runs / "alone", runs / "crowded", "--out", tmp_path / "page.html")
    assert code == 0
    assert out == f"report: {tmp_path / 'page.html'}\n"
    page = (tmp_path / "page.html").read_text()
    assert "not of one crowd" in page
    assert page.count("<h3>The fleet</h3>") == 1  # a reader chooses whose
    assert "<option>crowded: fedavg</option>" in page


def test_a_folder_of_runs(runs):
    found = gather([runs])
    assert len(found.runs) == 6
    assert found.algorithms == ["other: fedavg", "small: fedavg", "fededge", "crowded: fedavg"]
    assert found.experiment.name == runs.name


def test_a_study_is_told_by_scenario_and_arm(runs, tmp_path):
    for scenario in ("few", "many"):
        more = {**SETTING["data"], "clients": {"few": 8, "many": 9}[scenario]}
        for arm, lr in (("plain", 0.1), ("eager", 0.5)):
            for seed in (1, 2):
                one = SMALL.with_values(name=arm, seed=seed, data=more, train={"lr": lr}, stop={"rounds": 1})
                run(one, tmp_path / scenario / f"{arm}-{seed}")
    found = gather([tmp_path])
    assert found.algorithms == [
        "few, eager: fedavg",
        "few, plain: fedavg",
        "many, eager: fedavg",
        "many, plain: fedavg",
    ]
    assert {len(found.of(name)) for name in found.algorithms} == {2}


def test_a_folder_without_runs_is_named(potluck, tmp_path):
    code, out, err = potluck("report", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(
        f"potluck: {tmp_path}: holds no run (a run's folder has experiment.toml and plan.json)"
    )
    assert err.count("\n") == 1
    code, _, err = potluck("report", tmp_path / "none")
    assert code == 2
    assert f"{tmp_path / 'none'}: no such folder" in err


def test_a_comparison_that_has_not_begun(potluck, tmp_path):
    (tmp_path / "experiment.toml").write_text(SMALL.with_values(compare=["fedavg"], seeds=[1]).to_toml())
    code, _, err = potluck("report", tmp_path)
    assert code == 2
    assert "no run has begun" in err


def test_an_unfinished_run_says_so(runs, potluck, tmp_path):
    shutil.copytree(runs / "both", tmp_path / "both")
    for name in ("summary.json", "devices.json"):
        (tmp_path / "both" / "fedavg-2" / name).unlink()
    code, out, _ = potluck("report", tmp_path / "both")
    assert code == 0
    assert "fedavg-2: unfinished, drawn as far as it is" in out
    assert "No verdict yet: fedavg-2 is unfinished." in out
    page = (tmp_path / "both" / "report.html").read_text()
    assert "Unfinished: fedavg-2 (round 3). Numbers are those so far." in page
    assert "No verdict yet" in page


def test_runs_of_earlier_versions_are_drawn_without_their_devices(runs, potluck, tmp_path):
    shutil.copytree(runs / "alone", tmp_path / "old")
    (tmp_path / "old" / "devices.json").unlink()
    assert potluck("report", tmp_path / "old")[0] == 0
    page = (tmp_path / "old" / "report.html").read_text()
    assert "No devices.json in the folder of these runs" in page
    assert "<h3>Accuracy over time</h3>" in page
    assert "The anatomy" not in page


def test_help_says_what_there_is(potluck):
    code, out, _ = potluck("report", "--help")
    assert code == 0
    assert "Example: potluck report runs/demo" in out
    for word in ("--out", "--csv", "unfinished", "seed"):
        assert word in out.lower()


# --------------------------------------------------------------------------------------------- in a browser

POLICY = """<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
"""
PLOTS = "[...document.querySelectorAll('.plotly-graph-div')]"
DRAWN = f"{PLOTS}.map(plot => !!plot.querySelector('svg .trace, svg .hm'))"
SECOND = """(() => {
  const select = document.querySelector('#the-anatomy-of-a-round select');
  select.selectedIndex = 1;
  select.dispatchEvent(new Event('change'));
  return document.querySelector('#the-anatomy-of-a-round .data').download;
})()"""


@pytest.fixture(scope="module")
def chromium():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "docs")
        helper = importlib.import_module("_browser")
    if helper.find_chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    return helper


@pytest.fixture(scope="module")
def systems(tmp_path_factory):
    """FedAvg and the five systems: the demo, with little time."""
    folder = tmp_path_factory.mktemp("systems")
    demo = Experiment.from_file(Path(__file__).parents[2] / "examples" / "demo.toml")
    compare(demo.with_overrides(["stop.seconds=12", "evaluate.seconds=6"]), out=folder / "demo")
    return folder


@pytest.mark.parametrize(
    ("where", "which"), [("runs", "both"), pytest.param("systems", "demo", marks=pytest.mark.slow)]
)
def test_the_page_in_a_browser(where, which, potluck, tmp_path, request, chromium):
    """No error, no warning, nothing fetched (a policy forbids it); all is drawn, on phones, too."""
    place = tmp_path / "page.html"
    assert potluck("report", request.getfixturevalue(where) / which, "--out", place)[0] == 0
    text = place.read_text()
    assert len(text) < 2_000_000
    assert not re.findall(r'\b(?:src|href|action)="(?!#)[^"]*"', text.split("</style>")[1])
    place.write_text(text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{POLICY}'))
    with chromium.open_browser() as browser:
        for width, scheme, unfolded in ((1400, "light", True), (400, "dark", False)):
            browser.fit(width, 900, scheme)
            browser.open(place.as_uri())
            browser.wait(lambda: browser.ask("document.body.dataset.drawn"))
            drawn = browser.ask(DRAWN)
            assert all(drawn)
            assert len(drawn) == text.count("<figure>") > 8
            assert browser.ask("document.documentElement.scrollWidth") == width
            assert browser.ask("document.querySelector('nav details').open") == unfolded
            assert browser.ask("document.querySelectorAll('[data-title*=loud]').length") == 0  # no clouds
            link = "document.querySelector('#accuracy-over-time .data').href"
            assert browser.ask(link).startswith("data:text/csv;charset=utf-8,trace%2Cvirtual%20time")
        second = browser.ask("document.querySelector('#the-anatomy-of-a-round select').options[1].text")
        assert browser.ask(SECOND) == f"the-anatomy-of-a-round-{second}.csv"
        assert browser.said == []
        assert {address for address in browser.asked if not address.startswith("data:")} == {place.as_uri()}
