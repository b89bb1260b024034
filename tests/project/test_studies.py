"""Every study of the repository runs at its quick scale and writes its section: one of a family with every
change, the others nightly."""

import re
from pathlib import Path

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
