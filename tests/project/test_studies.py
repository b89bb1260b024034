"""Every study of the repository runs at its quick scale and writes its section: one of a family with every
change, the others nightly."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from potluck.cli import main
from potluck.experiment.study_runner import find, read
from potluck.report import reproduction

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("studies/[a-z]*.py"))
STUDIES = {name: study for path in FILES for name, study in read(path).items()}


def quick(study):
    """What a study is at its quick scale; studies that differ on real data only are one."""
    told = [(measure.name, measure.unit) for measure in study.measures]
    return repr((study.arms, study.scenarios, study.quick, told, getattr(study.page, "__qualname__", None)))


ONCE = {quick(study): name for name, study in reversed(STUDIES.items())}


def family(name):
    """Studies of one system that write the same kind of page: one of them runs with every change."""
    return name.partition("_")[0], getattr(STUDIES[name].page, "__qualname__", None)


FIRST = {family(name): name for name in sorted(ONCE.values(), reverse=True)}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if FIRST[family(name)] == name else pytest.mark.nightly)
        for name in sorted(ONCE.values())
    ],
)
def test_study_runs_at_its_quick_scale(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.md"
    with pytest.raises(SystemExit) as end:
        main(["study", name, "--out", str(tmp_path / "runs"), "--page", str(page), "--quiet"])
    assert not end.value.code
    text, study = page.read_text(), STUDIES[name]
    assert study.title in text
    assert all(f"| {arm.name} |" in text for arm in study.plan("quick").arms)
    assert "quick" in text


@pytest.mark.parametrize("name", STUDIES)
def test_study_can_be_had_at_both_scales(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    path, study = find(name)
    assert name.startswith(path.stem)
    assert study.title == STUDIES[name].title
    assert study.plan("quick").arms
    assert study.plan("paper").arms  # which refuses more runs than there is time for


def test_a_take_over_is_told_by_hand(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "studies")
    from _classter import change_at_takeover, find_takeover, largest_fall

    def told(notes):
        curve = [(10.0, 0.2), (20.0, 0.5), (30.0, 0.4), (40.0, 0.1), (50.0, 0.3)]
        looks = [
            {"time": t, "round": 1, "metric": "accuracy_mean", "value": v, "view": "v"} for t, v in curve
        ]
        run = SimpleNamespace(lines=[*looks, *notes])
        return find_takeover(run), change_at_takeover(run), largest_fall(run)

    judged = [{"time": t, "metric": "judged", "value": {"served": s}} for t, s in ((15.0, 0.0), (25.0, 1.0))]
    distilled = {"time": 12.0, "metric": "distilled", "value": {}}
    # The mean of 0.4, 0.1 and 0.3, less 0.5.
    assert told([distilled, *judged]) == (25.0, pytest.approx(-0.7 / 3), pytest.approx(0.4))
    assert told([distilled, *judged[:1]]) == (None, None, pytest.approx(0.4))
    # As published nobody judges: the mean of the last four, less 0.2.
    assert told([distilled, {**distilled, "metric": "calibration"}]) == (
        12.0,
        pytest.approx(0.325 - 0.2),
        pytest.approx(0.4),
    )


def test_titles_and_names_differ():
    titles = [study.title for study in STUDIES.values()]
    assert len(set(titles)) == len(titles)
    assert len(STUDIES) == sum(len(read(path)) for path in FILES)  # no variant has the name of another file


def test_sections_of_the_pages_are_of_studies_that_there_are():
    written = {}
    for page in ROOT.glob("docs/results/*.md"):
        for name, scale in re.findall(r"<!-- study (\w+), (\w+) -->", page.read_text()):
            assert scale == "paper"
            assert page == ROOT / reproduction.find_page(name, STUDIES[name]), f"{name}: another page"
            written[name] = page
    assert len(written) > 50
