"""No baseline is weak: at its defaults none ends far below FedAvg. `floors.py` says how that is counted.

The nightly tests take as many runs as `python tests/floors.py --count` says, of 2 to 100 s of one core. Who
is below, as `floors.BELOW` names them, has to be so, and has to meet its floor under the conditions that are
said to mend it: whoever gets better is taken from there and from the page.
"""

import os
from pathlib import Path

import floors
import pytest

from potluck import algorithms

ROOT = Path(floors.__file__).resolve().parent.parent
REAL = os.environ.get("POTLUCK_DATA")


FOLDERS = {"har": ("ucihar",), "writers": ("mnist", "writers.npz")}  # below $POTLUCK_DATA


def skip_without_rows(crowd):
    if crowd in FOLDERS and not (REAL and Path(REAL, *FOLDERS[crowd]).exists()):
        pytest.skip(f"$POTLUCK_DATA has no {crowd}")


@pytest.mark.nightly
@pytest.mark.parametrize("crowd", floors.CROWDS)
def test_no_baseline_is_below_its_floor(crowd, tmp_path):
    skip_without_rows(crowd)
    measured = floors.measure_floors(ROOT, tmp_path, crowd)
    below = {name: row for name, row in measured.items() if not floors.is_above(row)}
    assert below.keys() == floors.BELOW[crowd].keys(), floors.table_floors({crowd: measured})


@pytest.mark.nightly
@pytest.mark.parametrize("crowd", [crowd for crowd, below in floors.BELOW.items() if below])
def test_conditions_mend_whom_they_are_said_to_mend(crowd, tmp_path):
    skip_without_rows(crowd)
    measured = floors.measure_when(ROOT, tmp_path, crowd)
    assert len(measured) == sum(map(len, floors.BELOW[crowd].values()))
    otherwise = [label for label, row in measured.items() if floors.is_above(row) != row["met"]]
    assert not otherwise, floors.table_when(measured)


def test_everybody_but_systems_of_one_mode_is_measured():
    names = set(algorithms.names())
    published = {name for name in floors.SYSTEMS if algorithms.find_published(name) is None}
    assert set(floors.list_baselines(ROOT)) == names - published
    assert {name for below in floors.BELOW.values() for name in below} <= names
    assert set(floors.list_measured(ROOT, "writers")) == {"fedavg", *floors.SYSTEMS} - {"classter_async"}


def test_runs_are_counted(monkeypatch):
    short, long = floors.Condition("short", ()), floors.Condition("long", ())
    monkeypatch.setattr(floors, "CROWDS", ("one", "two"))
    monkeypatch.setattr(floors, "BELOW", {"one": {"a": (long,), "b": (long, short), "heterofl": (short,)}})
    monkeypatch.setattr(floors, "list_measured", lambda _, crowd: ["fedavg", "a", "b", "heterofl"])
    # Four in each of two crowds, FedAvg's smallest model in both; four under their conditions, and beside
    # them FedAvg for long, for short, and with its smallest model for short: 17 at each of three seeds.
    assert floors.count_runs(ROOT) == 51


def test_a_floor_is_what_it_is_said_to_be():
    held = [0.9, 0.8, 0.7]  # in the mean 0.8, so the floor is 0.77
    assert floors.is_above({"scores": [0.77, 0.77, 0.7701], "held": held})
    assert not floors.is_above({"scores": [0.77, 0.77, 0.7699], "held": held})
    assert not floors.is_above({"scores": [0.99, None, 0.99], "held": held})


def test_a_score_is_of_the_last_evaluations_in_the_first_view(tmp_path):
    (tmp_path / "summary.json").write_text('{"view": "edge"}')
    lines = [
        f'{{"metric":"accuracy","time":{time}.0,"node":{node},"view":"{view}","value":{value}}}'
        for time in range(7)
        for node, view, value in ((0, "edge", time / 10), (1, "edge", 0.5), (0, "global", 1.0))
    ]
    (tmp_path / "records.jsonl").write_text("\n".join(lines))
    # Evaluations 2 to 6: means over both devices of 0.35, 0.4, 0.45, 0.5 and 0.55.
    assert floors.score(tmp_path) == pytest.approx(0.45)
    assert floors.score(tmp_path / "none") is None


def test_a_page_takes_tables_where_its_marks_are(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- floors -->\nold\n<!-- end of floors -->\nafter\n")
    floors.write_page(page, {"floors": "| new |"})
    floors.write_page(page, {"floors": "| new |"})  # again: it is replaced, not added to
    assert page.read_text() == "before\n<!-- floors -->\n\n| new |\n\n<!-- end of floors -->\nafter\n"
    # Measured in part: rows of others stay where they are, and new ones come last.
    floors.write_page(page, {"floors": "| head |\n| --- |\n| a |\n| b |"})
    with pytest.raises(AssertionError, match="other columns"):
        floors.write_page(page, {"floors": "| head | more |"}, merge=True)
    table = "| who | it |\n| --- | --- |\n| a | 1 |\n| b | 2 |"
    floors.write_page(page, {"floors": table})
    floors.write_page(page, {"floors": "| who | it |\n| --- | --- |\n| c | 4 |\n| a | 3 |"}, merge=True)
    assert page.read_text().splitlines()[3:-3] == [
        *("| who | it |", "| --- | --- |"),
        *("| a | 3 |", "| b | 2 |", "| c | 4 |"),
    ]
