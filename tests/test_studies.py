"""Every study of the repository runs at its quick scale and writes its section."""

from pathlib import Path

import pytest

from potluck.cli import main
from potluck.experiment.conduct import names, read

ROOT = Path(__file__).parent.parent
STUDIES = {path.stem: path for path in sorted(ROOT.glob("studies/[a-z]*.py"))}


def quick(path):
    """What a study is at its quick scale; studies that differ on real data only are one."""
    study = read(path)
    told = [(measure.name, measure.unit) for measure in study.measures]
    return repr((study.arms, study.scenarios, study.quick, told, getattr(study.page, "__qualname__", None)))


ONCE = {quick(path): name for name, path in reversed(STUDIES.items())}


@pytest.mark.parametrize("name", sorted(ONCE.values()))
def test_study_runs_at_its_quick_scale(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.md"
    with pytest.raises(SystemExit) as end:
        main(["study", name, "--out", str(tmp_path / "runs"), "--page", str(page), "--quiet"])
    assert not end.value.code
    text, study = page.read_text(), read(STUDIES[name])
    assert study.title in text
    assert all(f"| {arm.name} |" in text for arm in study.at("quick").arms)
    assert "quick" in text


@pytest.mark.parametrize("name", STUDIES)
def test_study_can_be_had_at_both_scales(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert name in names()
    study = read(STUDIES[name])
    assert study.at("quick").arms
    assert study.at("paper").arms  # which refuses more runs than there is time for


def test_titles_differ():
    titles = [read(path).title for path in STUDIES.values()]
    assert len(set(titles)) == len(titles)
