"""`potluck report`: which folders it takes, what it writes, and the page itself in a browser."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


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
    for title in ("Accuracy over time", "The fleet", "Who holds what", "The anatomy of a round: fededge"):
        assert f"<h2>{title}</h2>" in page
    assert "Rounds of the edges&#x27; own: fededge" in page
    files = {place.name for place in (tmp_path / "data").iterdir()}
    assert {"table.csv", "accuracy-over-time.csv", "the-fleet.csv", "traffic-by-tier.csv"} <= files
    link = re.search(r'download="the-fleet.csv" href="data:text/csv;base64,([^"]+)"', page)[1]
    assert base64.b64decode(link).decode() == (tmp_path / "data" / "the-fleet.csv").read_text()


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
    assert "<h2>The anatomy of a round</h2>" in page
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
    assert "<h2>The fleet: crowded: fedavg</h2>" in page


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
    assert "<h2>Accuracy over time</h2>" in page
    assert "The anatomy" not in page


def test_help_says_what_there_is(potluck):
    code, out, _ = potluck("report", "--help")
    assert code == 0
    assert "Example: potluck report runs/demo" in out
    for word in ("--out", "--csv", "Unfinished", "seed"):
        assert word in out


# --------------------------------------------------------------------------------------------- in a browser

WATCH = """<script>
window.wrong = [];
addEventListener("error", e => wrong.push(String(e.message)), true);
addEventListener("unhandledrejection", e => wrong.push(String(e.reason)));
addEventListener("securitypolicyviolation", e => wrong.push("fetched " + e.blockedURI));
for (const say of ["error", "warn"]) console[say] = (...words) => wrong.push(words.join(" "));
</script>
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
"""
TELL = """<script>
addEventListener("load", () => setTimeout(() => {
  const plots = [...document.querySelectorAll(".plotly-graph-div")];
  const drawn = plots.filter(plot => plot.querySelector("svg .trace, svg .hm"));
  const told = {wrong, plots: plots.length, drawn: drawn.length,
                buttons: document.querySelectorAll("[data-title*=loud]").length,
                fetched: performance.getEntriesByType("resource").map(entry => entry.name)};
  document.body.setAttribute("data-told", JSON.stringify(told));
}, 500));
</script>"""


@pytest.fixture(scope="module")
def systems(tmp_path_factory):
    """FedAvg and the five systems: the demo, with little time."""
    folder = tmp_path_factory.mktemp("systems")
    demo = Experiment.from_file(Path(__file__).parents[2] / "examples" / "demo.toml")
    compare(demo.with_overrides(["stop.seconds=12", "evaluate.seconds=6"]), out=folder / "demo")
    return folder


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize(("where", "which"), [("runs", "both"), ("systems", "demo")])
def test_the_page_in_a_browser(where, which, potluck, tmp_path, request):
    """No error, no warning, nothing fetched (a policy forbids it), every figure drawn."""
    place = tmp_path / "page.html"
    assert potluck("report", request.getfixturevalue(where) / which, "--out", place)[0] == 0
    text = place.read_text()
    assert not re.findall(
        r'\b(?:src|href|action)="(?!data:|#)[^"]*"', text.split("</style>")[1].split("<body>")[1]
    )
    watched = text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{WATCH}').replace(
        "</body>", f"{TELL}</body>"
    )
    place.write_text(watched)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [BROWSER, *flags, profile, place.as_uri()], capture_output=True, text=True, timeout=120
    )
    found = re.search(r'data-told="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    told = json.loads(found[1].replace("&quot;", '"'))
    assert told["wrong"] == []
    assert told["fetched"] == []
    assert told["buttons"] == 0  # nothing offers to send data to a cloud
    assert told["plots"] == told["drawn"] == text.count("<figure>") > 8
