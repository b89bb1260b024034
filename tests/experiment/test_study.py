"""Studies: what is run, what is told, and what a killed one does again (nothing)."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import try_rates

import potluck
from potluck import metrics
from potluck.cli import main
from potluck.core.errors import ConfigError
from potluck.experiment import study_runner
from potluck.experiment.study import LIMIT, Arm, Measure, Scale, Study, overlay
from potluck.report import reproduction

ROOT = Path(__file__).resolve().parents[2]
HEAD = "from potluck.experiment.study import Arm, Measure, Scale, Study\n"
BASE = """
BASE = {
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    "model": {"name": "linear"},
    "stop": {"rounds": ROUNDS},
    "evaluate": {"rounds": 100, "target": 0.5},
    "run": {"executor": "loop", "snapshot_every": 0.5},
}
"""
TWO = (
    HEAD
    + BASE.replace("ROUNDS", "4")
    + """
STUDY = Study(
    title="Two of them", question="Which | one?", notes="See the paper.",
    arms=[Arm("plain", "fedavg", {"clients": 3}), Arm("q = 2", "qfedavg", {"clients": 3, "q": 2.0})],
    quick=Scale(BASE), paper=Scale(BASE, seeds=(1, 2)),
)
"""
)

VARIANTS = """
from dataclasses import replace
STUDIES = {
    "of_one": replace(STUDY, title="One of them", arms=STUDY.arms[:1], quick=Scale(BASE, seeds=(1,))),
    "q": replace(STUDY, title="The other"),
}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with one study in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "two.py").write_text(TWO)
    return tmp_path


@pytest.fixture
def command(here, capsys):
    """Runs a command in this process: exit code, stdout, stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return call


def marks(folder):
    """What would change if a run were made again."""
    names = ("experiment.toml", "records.jsonl", "summary.json")
    found = (folder / name for name in names)
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found if path.exists()}


# ------------------------------------------------------------------------------------------------- running


def test_a_study_runs_and_tells(command, here):
    code, out, err = command("study", "two", "--jobs", "1")
    assert code == 0
    assert "run 6 of 6, about" in err
    assert "## Two of them (quick)" in out
    assert "Which | one?" in out
    assert re.search(r"^\| plain \| \**[\d.]+ ± [\d.]+ %\** \| – \| .* \|$", out, re.MULTILINE)
    assert re.search(r"^\| q = 2 \| .* \| [+-][\d.]+ ± [\d.]+ \| ", out, re.MULTILINE)
    assert "`potluck study two --scale quick`" in out
    assert "seeds 1, 2, 3. 6 runs, " in out
    folder = here / "runs" / "studies" / "two-quick"
    assert {path.name for path in folder.iterdir()} == {
        *(f"{arm}-{seed}" for arm in ("plain", "q-2") for seed in (1, 2, 3)),
        "study.json",
    }
    told = json.loads((folder / "study.json").read_text())
    accuracies = {line["arm"]: line["accuracy"] for line in told["results"]}
    runs = [potluck.load(folder / f"plain-{seed}").summary for seed in (1, 2, 3)]
    assert accuracies["plain"] == [summary["accuracy_mean"] for summary in runs]
    mean, half = metrics.paired_difference(accuracies["q = 2"], accuracies["plain"])
    assert f"{100 * mean:+.1f} ± {100 * half:.1f}" in out
    page = (here / "docs" / "results" / "two.md").read_text()
    assert out.startswith(page.partition("-->\n\n")[2].partition("\n<!-- end")[0])

    before = {path: marks(path) for path in folder.iterdir()}
    code, out, err = command("study", "two", "--json", "--no-page")
    assert (code, err) == (0, "")
    assert json.loads(out) == told
    assert {path: marks(path) for path in folder.iterdir()} == before


@pytest.mark.slow
def test_a_study_is_killed_and_goes_on(here):
    """Two algorithms, three seeds; kill -9 in the third run, then the same command again."""
    (here / "studies" / "two.py").write_text(TWO.replace('"rounds": 4', '"rounds": 100'))
    folder = here / "runs" / "studies" / "two-quick"
    command = [sys.executable, "-m", "potluck", "study", "two", "--no-page", "-q", "-j1"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        third = folder / "plain-2"
        for _ in range(3000):
            if list(third.glob("snapshots/*.snapshot")):
                break
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = [folder / name for name in ("plain-1", "q-2-1")]
    assert all((path / "summary.json").exists() for path in done)
    assert not (third / "summary.json").exists()
    before, begun = [marks(path) for path in done], marks(third)
    results = study_runner.run_study("two", "quick")
    assert [marks(path) for path in done] == before
    assert marks(third)["experiment.toml"] == begun["experiment.toml"]  # resumed, not begun again
    assert all(run.finished for runs in results.runs.values() for run in runs)
    straight = potluck.run(results.runs["", "plain"][1].experiment)
    assert straight.lines == results.runs["", "plain"][1].lines


def test_changed_studies_are_noticed(command, here):
    assert command("study", "two", "-q")[0] == 0
    folder = here / "runs" / "studies" / "two-quick"
    before = {path.name: marks(path) for path in folder.iterdir()}
    (here / "studies" / "two.py").write_text(TWO.replace('"q": 2.0', '"q": 0.5'))
    code, out, err = command("study", "two", "-q")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"potluck: .*two-quick/q-2-1: holds a run with other settings; .*--force\n", err)
    assert command("study", "two", "-q", "--force") == (0, "", "")
    after = {path.name: marks(path) for path in folder.iterdir()}
    assert {name for name in after if name != "study.json" and after[name] != before[name]} == {
        "q-2-1",
        "q-2-2",
        "q-2-3",
    }


def test_arms_are_tuned_one_by_one_unless_they_follow_another(here):
    text = TWO.replace("quick=Scale(BASE)", "quick=Scale(BASE, (1, 2), TUNE)")
    text = text.replace(
        "    quick=",
        '    scenarios={"even": {"data": {"alpha": 9.0}}, "odd": {"data": {"alpha": 0.1}}},\n    quick=',
    )
    follower = 'Arm("follower", "fedprox", {"mu": 0.5}, {"train": {"batch": 5}}, tuned_as="plain"), '
    text = text.replace("\nSTUDY", f"\nTUNE = {try_rates(0.3, 0.01, length=0.5)}\nSTUDY")
    (here / "studies" / "two.py").write_text(text.replace('Arm("q = 2"', f'{follower}Arm("q = 2"'))
    results = study_runner.run_study("two")
    assert results.plan.total == results.plan.trials + 3 * 2 * 2 == 2 * 2 + 12
    tuning = results.tunings["even"]  # in the first scenario, for both
    assert set(tuning.results) == {"plain", "q = 2"}
    for (scenario, arm), runs in results.runs.items():
        for run in runs:
            e = run.experiment
            rate = tuning.choice("plain" if arm == "follower" else arm)
            assert e.training(e.algorithm).lr == rate["train.lr"]
            assert e.data.alpha == {"even": 9.0, "odd": 0.1}[scenario]
            assert e.train.batch == (5 if arm == "follower" else 10)
            assert e.algorithms[e.algorithm].get("mu", 0.5) == 0.5
            assert (e.evaluate.on, e.stop.rounds) == ("test", 4)
    trial = potluck.load(results.path / "even" / "tune" / "q-2-lr0.3-1").experiment
    assert (trial.evaluate.on, trial.stop.rounds, trial.algorithms["qfedavg"]["q"]) == ("validation", 2, 2.0)
    text = reproduction.write_section(results)
    assert "accuracy:\n\n|  | even | odd |\n" in text
    assert re.search(r"\| follower \| .* \([+-][\d.]+\) \|", text)  # two seeds: no interval
    assert "Tuning in even. Chosen by" in text
    assert "12 runs after 4 trials, " in text


def test_measures_and_pages_of_ones_own(here):
    text = TWO.replace(
        "quick=Scale",
        """measures=(
        Measure("rounds", "rounds"),
        Measure("evaluations", lambda run: len(run.records.query("metric == 'accuracy_mean'"))),
        Measure("never", lambda run: None, "seconds"),
        Measure("sometimes", lambda run: 5.0 if run.summary["seed"] > 1 else None, "seconds", "less"),
        Measure("seed", "seed", better="more", paired=True),
    ), quick=Scale""",
    )
    (here / "studies" / "two.py").write_text(text)
    results = study_runner.run_study("two")
    table = reproduction.make_table_of_measures(results).splitlines()
    assert table[0] == "|  | rounds | evaluations | never | sometimes | seed | vs plain |"
    # seeds 1, 2, 3: mean 2, t-interval 4.302653 / sqrt(3)
    assert table[2] == "| plain | 4 ± 0 | 2 ± 0 | not reached | 2 of 3 seeds | **2 ± 2.48** | – |"
    assert table[3] == "| q = 2 | 4 ± 0 | 2 ± 0 | not reached | 2 of 3 seeds | **2 ± 2.48** | +0 ± 0 |"
    (here / "studies" / "two.py").write_text(
        TWO.replace("quick=", "page=lambda r: f'{len(r.runs)} arms', quick=")
    )
    assert "\n\n2 arms\n\nSee the paper.\n\n" in reproduction.write_section(study_runner.run_study("two"))
    with pytest.raises(
        ConfigError, match=r"measure 'x': summaries have no 'accuracy_men'; did you mean 'acc"
    ):
        Measure("x", "accuracy_men").value(results.runs["", "plain"][0])


def test_a_table_with_the_global_test_says_which_models_it_is_of(here):
    source = TWO.replace('Arm("q = 2", "qfedavg", {"clients": 3, "q": 2.0})', 'Arm("best", "ifca")')
    measure = 'measures=[Measure("global test", "global_accuracy", "share", "more")], quick'
    (here / "studies" / "two.py").write_text(source.replace("quick", measure))
    text = reproduction.write_section(study_runner.run_study("two"))
    assert "Global test: on rows that no device holds, plain: the model that all devices use (view g" in text
    assert re.search(
        r"; best: mean over devices of the model that each uses \(view chosen, .* models\)\.", text
    )


def test_sections_are_replaced_and_quick_ones_give_way(command, here):
    page = here / "docs" / "results" / "two.md"
    assert command("study", "two", "-q")[0] == 0
    (here / "studies" / "two_more.py").write_text(TWO.replace("Two of them", "Another"))
    assert command("study", "studies/two_more.py", "-q")[0] == 0
    quick = page.read_text()
    assert quick.startswith("# Two: results\n")
    assert [quick.count(mark) for mark in ("<!-- study ", "<!-- end of ", "(quick)", "A quick run")] == [
        2
    ] * 4
    page.write_text(quick.replace("<!-- study two", "By hand.\n\n<!-- study two"))
    assert command("study", "two", "--scale", "paper", "-q")[0] == 0
    paper = page.read_text()
    assert "By hand.\n\n<!-- study two, paper -->\n\n## Two of them\n" in paper
    assert paper.index("Two of them") < paper.index("Another")
    assert paper.count("<!-- study ") == 2
    code, _, err = command("study", "two")
    assert code == 0
    assert "docs/results/two.md has this study at paper scale, so this quick one is left out" in err
    assert page.read_text() == paper
    assert command("study", "two", "--page", "other.md", "-q")[0] == 0
    assert "(quick)" in (here / "other.md").read_text()


def test_a_study_may_have_a_page_of_results(command, here):
    (here / "studies" / "two.py").write_text(TWO.replace("Study(", 'Study(results="classter",', 1))
    assert command("study", "two", "-q")[0] == 0
    page = (here / "docs" / "results" / "classter.md").read_text()
    assert page.startswith("# Classter: results\n")
    assert "<!-- study two, quick -->" in page
    assert not (here / "docs" / "results" / "two.md").exists()
    assert command("study", "two", "-q", "--page", "other.md")[0] == 0
    assert "<!-- study two, quick -->" in (here / "other.md").read_text()


# ------------------------------------------------------------------------------------------------- what is

ARMS = [Arm("a", "fedavg"), Arm("b", "fedprox")]


def test_tables_are_laid_over_one_another():
    base = {"data": {"clients": 5, "alpha": 1.0}, "seed": 1}
    laid = overlay(base, {"data": {"alpha": 0.1}, "model": {"name": "mlp"}}, {"seed": 2, "data": {}})
    assert laid == {"data": {"clients": 5, "alpha": 0.1}, "seed": 2, "model": {"name": "mlp"}}
    assert base == {"data": {"clients": 5, "alpha": 1.0}, "seed": 1}


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (dict(quick=Scale({}, range(LIMIT))), r"quick: 80 runs \(0 to tune, 80 to compare\), at most 40 are"),
        (
            dict(quick=Scale({}, range(3), limit=5)),
            r"6 to compare\), at most 5 are allowed; .* raise its limit",
        ),
        (
            dict(quick=Scale({}, range(15), try_rates(0.1, 0.2, seeds=[1, 2, 3]))),
            r"42 runs \(12 to tune, 30",
        ),
        (dict(quick=Scale({}, (1, 1))), r"seeds = \[1, 1\]: 1 is named twice"),
        (dict(arms=[Arm("a b", "fedavg"), Arm("a/b", "fedavg")]), r"arms = .*'a-b' is named twice"),
        (dict(quick=Scale({}, arms=["c"])), r"arm 'c': no such arm; known: a, b"),
        (dict(quick=Scale({}, scenarios=["x"])), r"scenario 'x': no such scenario"),
        (dict(arms=[*ARMS, Arm("c", "fedavg", tuned_as="d")]), r"arm 'c': tuned_as 'd': no such arm"),
    ],
)
def test_wrong_studies(study, message):
    made = Study(
        **{"title": "", "question": "", "arms": ARMS, "quick": Scale({}), "paper": Scale({})} | study
    )
    with pytest.raises(ConfigError, match=message):
        _ = made.plan("quick").total


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tow"], r"study 'tow': no such study; did you mean 'two'\?"),
        (["none.py"], r"none.py: no such file"),
        ([], r"study: name one \(two\), or see --list"),
        (["two", "--scale", "papr"], r"studies/two.py: scale 'papr': no such scale; did you mean 'paper'\?"),
        (["two", "--set", "data.clinets=3"], r".*data.clinets = 3: no such key; did you mean 'clients'\?"),
        (["two", "--set", "data.clients=399"], r".*data.clients = 399: .*"),
        (["two", "--out", "studies/two.py/x"], r"out = .*: can't be written .*"),
        (["many.py"], r"many.py: quick: 80 runs \(0 to tune, 80 to compare\), at most 40 are allowed; .*"),
        (["none_in_it.py"], r"none_in_it.py: defines no STUDY; .*"),
        (["no_table.py"], r"no_table.py: STUDIES is no table; write STUDIES = \{.*"),
        (["no_table_x.py"], r"no_table.py: STUDIES is no table; .*"),
        (["no_study.py"], r"no_study.py: no_study_few is 3; write Study\(.*"),
        (["wrong.py"], r"wrong.py: plain, quick: algorithms.fedavg.clinets = 3: no such .*'clients'\?"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(command, here, arguments, message):
    (here / "many.py").write_text(TWO.replace("quick=Scale(BASE)", "quick=Scale(BASE, range(40))"))
    (here / "none_in_it.py").write_text(HEAD)
    (here / "no_table.py").write_text(f"{TWO}\nSTUDIES = [STUDY]\n")
    (here / "no_study.py").write_text(f"{TWO}\nSTUDIES = {{'few': 3}}\n")
    (here / "wrong.py").write_text(TWO.replace('"clients": 3}', '"clinets": 3}'))
    before = {path for path in here.rglob("*") if "__pycache__" not in path.parts}
    code, out, err = command("study", *arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"potluck: {message}\n", err), err
    assert {path for path in here.rglob("*") if "__pycache__" not in path.parts} == before


def test_a_mistake_in_a_studys_code_shows_its_traceback(command, here):
    (here / "typo.py").write_text(HEAD + "\nSTUDY = Studdy()\n")
    code, out, err = command("study", "typo.py")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback")
    assert err.endswith("potluck: typo.py, line 3: NameError: name 'Studdy' is not defined\n")


def test_listing(command, here):
    code, out, _ = command("study", "--list")
    assert code == 0
    assert re.search(r"two +Two of them +Which \| one\?", out)
    assert json.loads(command("study", "--list", "--json")[1])[0]["name"] == "two"
    (here / "studies" / "two.py").write_text(TWO + VARIANTS)
    listed = json.loads(command("study", "--list", "--json")[1])
    assert [study["name"] for study in listed] == ["two", "two_of_one", "two_q"]
    (here / "studies" / "two.py").unlink()
    assert "no studies" in command("study", "--list")[1]
    assert "there are none in ./studies; name a file" in command("study", "two")[2]


def test_a_variant_has_its_own_name_folder_and_section(command, here):
    (here / "studies" / "two.py").write_text(TWO + VARIANTS)
    code, out, _ = command("study", "two_of_one", "--jobs", "1")
    assert code == 0
    assert "## One of them (quick)" in out
    assert "`potluck study two_of_one --scale quick`" in out
    folder = here / "runs" / "studies" / "two_of_one-quick"
    assert json.loads((folder / "study.json").read_text())["study"] == "two_of_one"
    assert "<!-- study two_of_one, quick -->" in (here / "docs" / "results" / "two.md").read_text()
    by_path, study = study_runner.find("studies/two_of_one.py")
    assert (by_path.name, study.title) == ("two.py", "One of them")
    assert "did you mean 'two_of_one'?" in command("study", "two_of_oen")[2]
    (here / "studies" / "two_of_one.py").write_text(TWO.replace("Two of them", "A file of its own"))
    assert study_runner.find("two_of_one")[1].title == "A file of its own"


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("[a-z]*.py")), ids=lambda path: path.stem)
@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_the_studies_of_this_project_hold_together(path, scale):
    from potluck.experiment.prepare import make_rule, resolve_run

    for study in study_runner.read(path).values():
        plan = study.plan(scale)
        assert plan.total <= plan.scale.limit
        for arm in plan.arms:
            for scenario in plan.scenarios:
                wanted = plan.experiment(arm, scenario, 1)
                resolve_run(wanted)
                make_rule(wanted)
