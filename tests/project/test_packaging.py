import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = ("pyproject.toml", "README.md", "LICENSE", "potluck")

PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
import potluck, potluck.cli
print(potluck.__file__)
print(potluck.cli.__file__)
"""


def call(*command: object) -> str:
    """Run in a clean environment: a copy of the package must not count for coverage."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTHON"))}
    done = subprocess.run([str(part) for part in command], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built without the network from a copy, so that the checkout stays clean."""
    tree = tmp_path_factory.mktemp("tree")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)
    out = tree / "dist"
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    call(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", out, tree)
    (built,) = out.glob("potluck-*.whl")
    return built


def test_wheel_holds_the_whole_package_and_nothing_else(wheel):
    expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / "potluck").rglob("*.py")}
    held = set(zipfile.ZipFile(wheel).namelist())
    shipped = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "potluck" / "watch").iterdir()
        if path.suffix in (".js", ".css", ".html")
    }
    assert {"potluck/watch/watch.js", "potluck/watch/watch.css"} <= shipped
    assert expected | shipped | {"potluck/py.typed", "potluck/fleet/fedrac40.csv"} <= held
    assert {name.split("/")[0].split("-")[0] for name in held} == {"potluck"}
    assert any(name.endswith("licenses/LICENSE") for name in held)


def test_wheel_declares_the_command(wheel):
    archive = zipfile.ZipFile(wheel)
    (entries,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "potluck = potluck.cli:main" in archive.read(entries).decode()


def test_wheel_imports_by_itself(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    files = call(sys.executable, "-I", "-c", PROBE, tmp_path).splitlines()
    assert len(files) == 2
    assert all(Path(file).is_relative_to(tmp_path) for file in files), files
