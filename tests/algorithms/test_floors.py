"""No baseline is weak: at its defaults none ends far below FedAvg. `floors.py` says how that is counted.

The nightly test takes 168 runs of 2 to 60 s of one core: by these, some twenty minutes on two cores. Who is
below, as `floors.BELOW` names them, has to be so: whoever gets better is taken from there and from the page.
"""

import os
from pathlib import Path

import floors
import pytest

ROOT = Path(floors.__file__).resolve().parent.parent
REAL = os.environ.get("POTLUCK_DATA")


def has_rows(crowd):
    return crowd == "digits" or (REAL is not None and Path(REAL, "ucihar").is_dir())


@pytest.mark.nightly
@pytest.mark.parametrize("crowd", floors.CROWDS)
def test_no_baseline_is_below_its_floor(crowd, tmp_path):
    if not has_rows(crowd):
        pytest.skip(f"$POTLUCK_DATA has no {crowd}")
    measured = floors.measure_floors(ROOT, tmp_path, crowd)
    assert len(measured) >= 27
    below = {name: row for name, row in measured.items() if not floors.is_above(row)}
    assert below.keys() == floors.BELOW[crowd].keys(), floors.table_floors({crowd: measured})


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
