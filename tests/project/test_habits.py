"""Who checks what: a workflow calls `make test`, `make nightly` the long checks, hooks the tools of .venv."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def commands(target):
    """What make would run, line by line."""
    made = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True)
    return made.stdout.splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_every_long_check_is_part_of_the_nightly_one():
    called = "\n".join(commands("nightly"))
    assert "python tests/campaign" in called
    assert "pytest -n 2 -m nightly" in called
    assert "python tests/sinks_check.py" in called


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_every_other_test_is_run_for_every_change():
    marks = [line.partition(" -m pytest ")[2].partition(' -m "')[2] for line in commands("test")]
    assert [mark for mark in marks if mark] == ['not slow and not nightly"', 'slow and not nightly"']


def test_the_workflow_tests_every_python_that_is_promised():
    job = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]
    assert any(step.get("run", "").startswith("make test") for step in job["steps"])
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    promised = {
        c.rpartition(" ")[2] for c in classifiers if c.startswith("Programming Language :: Python :: 3.")
    }
    assert set(job["strategy"]["matrix"]["python"]) == promised


def test_hooks_are_the_tools_of_the_environment():
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    assert {hook["entry"].split()[0] for hook in repo["hooks"]} == {".venv/bin/ruff", ".venv/bin/mypy"}


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for e in project["optional-dependencies"].values() for d in e)]
    # flwr clashes with what the others want; mlflow, wandb and ray want much that nothing else does
    apart = [f"constraints-{name}.txt" for name in ("flower", "sinks", "cluster")]
    lines = [line for file in ("constraints.txt", *apart) for line in (ROOT / file).read_text().splitlines()]
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    names = {"".join(c if c.isalnum() or c in "-_" else " " for c in d).split()[0] for d in wanted}
    assert {name.lower().replace("_", "-") for name in names} <= pinned
