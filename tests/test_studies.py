"""Every study of the repository runs at its quick scale and writes its section."""

from pathlib import Path

import pytest

from potluck.cli import main
from potluck.experiment.conduct import names, read

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", sorted(ROOT.glob("studies/[a-z]*.py")), ids=lambda p: p.stem)
def test_study_runs_at_its_quick_scale(path, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert path.stem in names()
    page = tmp_path / "page.md"
    with pytest.raises(SystemExit) as end:
        main(["study", path.stem, "--out", str(tmp_path / "runs"), "--page", str(page), "--quiet"])
    assert not end.value.code
    text, study = page.read_text(), read(path)
    assert study.title in text
    assert all(f"| {arm.name} |" in text for arm in study.at("quick").arms)
    assert "quick" in text
