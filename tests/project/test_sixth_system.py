"""A system is one folder: reports and advice find what it says of itself, and name no system."""

import json
import re
import sys
from pathlib import Path

import pytest

from potluck import algorithms
from potluck.advice.measure import measure_file
from potluck.advice.pilot import run_pilot
from potluck.advice.recommendation import judge
from potluck.cli import main
from potluck.core.errors import ConfigError
from potluck.experiment import Comparison, Experiment, Run, run
from potluck.report.contents import draw_all
from potluck.report.note_figures import read_notes

ROOT = Path(__file__).resolve().parents[2]
ROOMS = [path for room in ("report", "advice", "cli") for path in (ROOT / "potluck" / room).rglob("*.py")]
FOLDERS = sorted(
    path.name for path in (ROOT / "potluck" / "algorithms").iterdir() if (path / "algorithm.py").exists()
)
ENGLISH = {"share", "moon", "flame"}  # words of the language too: these count as their papers spell them
FILES = {
    "__init__.py": '''"""Sixth, A. and Others, B.: A sixth system. 2031.

Its rounds are those of FedAvg.
"""
''',
    # FedAvg under another name: how a rule works is tested elsewhere.
    "algorithm.py": "from potluck.algorithms.fedavg import FedAvg as sixth\n",
    "notes.py": """
from potluck.core.notes import Figure, Notes

NOTES = Notes(
    {"sixth_sense": "devices that were seen coming"},
    (Figure("counts", "visits", "Who was visited", "Look for dark rows.", each="house", number="tiredness"),),
)
""",
    "advice.py": """
from potluck.core.advice import Advice, Adviser, Arm


class Sixth(Adviser):
    def judge(self, measured):
        settings = {"clients": min(3, measured.devices)}
        return Advice("The Sixth", "sixth", 0.99, f"{measured.devices} devices wait for it", "none", settings)

    def plan_pilot(self, advice, measured, rounds, clients):
        return Arm("sixth", advice.settings), Arm("fedprox", {})


ADVISER = Sixth()
""",
}


@pytest.fixture
def sixth(tmp_path, monkeypatch):
    """A folder beside the algorithms that there are."""
    home = tmp_path / "more" / "sixth"
    home.mkdir(parents=True)
    for name, text in FILES.items():
        (home / name).write_text(text)
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(home.parent)])
    before = set(sys.modules)
    yield home
    for name in set(sys.modules) - before:
        if name.startswith("potluck.algorithms.sixth"):
            del sys.modules[name]


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_room_above_names_a_system(path):
    text = path.read_text()
    for name in FOLDERS:
        spelled = name.replace("fed", "fed-?") if name.startswith("fed") else name
        pattern = rf"\b{name.upper()}\b|algorithms\.{name}\b" if name in ENGLISH else f"(?i){spelled}"
        assert not re.search(pattern, text), f"{path.name} names {name}"


def test_there_are_folders_to_look_for():
    assert {"auxo", "classter", "fedrac", "maverick", "shufflefl"} <= set(FOLDERS)


def test_its_notes_are_drawn_as_it_says(sixth):
    experiment = Experiment(
        data={"source": "digits", "clients": 6},
        model={"name": "linear"},
        algorithm="sixth",
        stop={"rounds": 2},
        run={"executor": "loop"},
    )
    done = run(experiment)
    more = [
        {"round": 1, "time": 1.0, "metric": "sixth_sense", "value": 2.0, "group": "north"},
        {"round": 2, "time": 2.0, "metric": "sixth_sense", "value": 3.0, "group": "north"},
        {"round": 1, "time": 1.0, "metric": "visits", "value": [1, 2]},
        {"round": 2, "time": 2.0, "metric": "visits", "value": [3, 6]},
        {"round": 2, "time": 2.0, "metric": "tiredness", "value": 0.25},
    ]
    done = type(done)(experiment, done.summary, None, _lines=[*done.lines, *more], _devices=done.devices)
    drawn = {each.title: each for each in draw_all(Comparison(experiment, [done]))}
    visits = drawn["Who was visited"]
    assert [list(row) for row in visits.figure.data[0].z] == [[0.5, 0.5], [1.0, 1.0]]
    assert visits.figure.layout.yaxis.title.text == "house"
    assert visits.hint == "Look for dark rows. Tiredness at the end: 0.25."
    panels = drawn["Groups over time"].figure
    assert [a.text for a in panels.layout.annotations] == ["devices that were seen coming"]


def test_own_words_go_before_another_systems(sixth):
    (sixth / "notes.py").write_text(
        'from potluck.core.notes import Notes\nNOTES = Notes({"rows_moved": "rows of potatoes"})\n'
    )

    def words(algorithm):
        return read_notes(Run(Experiment(algorithm=algorithm), {}, None)).words["rows_moved"]

    assert words("sixth") == "rows of potatoes"
    assert words("shufflefl") == "rows that moved between its devices in a round"


def test_its_advice_is_given_and_piloted(sixth, tmp_path, capsys):
    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\ndata = { source = "digits", clients = 10 }\nmodel = { name = "linear" }\n'
        'fleet = { source = "uniform" }\nrun = { executor = "loop" }\n'
    )
    with pytest.raises(SystemExit) as end:
        main(["advise", str(file), "--json"])
    assert not end.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["recommended"] == "sixth"
    assert told["systems"][0]["why"] == "10 devices wait for it"
    wanted = Experiment.from_file(file)
    _, measured = measure_file(wanted)
    tried = run_pilot(wanted, judge(measured), measured, rounds=2)
    assert [t.algorithm for t in tried.trials][:2] == ["fedavg", "sixth"]
    assert tried.trials[-1].algorithm == "fedprox"
    assert not any(t.failed for t in tried.trials)


def test_a_registered_algorithm_says_it_in_its_own_file(sixth, monkeypatch):
    module = type(sys)("mine")
    exec("from potluck.algorithms.fedavg import FedAvg\n", vars(module))
    for name in ("notes", "advice"):
        exec(FILES[f"{name}.py"].replace('"sixth"', '"my_own"').replace("The Sixth", "Mine"), vars(module))
    exec("def my_own():\n    return FedAvg()\n", vars(module))
    monkeypatch.setitem(sys.modules, "mine", module)
    monkeypatch.setattr(algorithms, "_REGISTERED", {"my_own": module.my_own, "my_other": module.my_own})
    assert algorithms.find_notes()["my_own"] is module.NOTES
    assert algorithms.find_advisers().count(module.ADVISER) == 1


@pytest.mark.parametrize(("file", "name"), [("notes.py", "NOTES"), ("advice.py", "ADVISER")])
def test_what_it_says_must_be_of_the_right_kind(sixth, file, name):
    (sixth / file).write_text(f"{name} = {{}}\n")
    with pytest.raises(ConfigError, match=f"sixth: {name} = {{}}: make it a potluck"):
        algorithms.find_notes() if name == "NOTES" else algorithms.find_advisers()
