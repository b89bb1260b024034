import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALGORITHMS = sorted((ROOT / "potluck" / "algorithms").glob("**/*.py"))
LINT = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True, no_logo=True))
"""


def imported(path):
    """Every absolute name that a file imports, relative imports resolved."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_imports_keep_to_the_layers():
    """The contracts in pyproject.toml; a failure prints the chain of imports that breaks one."""
    done = subprocess.run([sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", ALGORITHMS, ids=lambda path: path.stem)
def test_algorithms_know_no_runtime(path):
    names = set(imported(path))
    runtimes = tuple(f"potluck.{name}." for name in ("simulate", "engine", "execute", "federation"))
    assert not {name for name in names if f"{name}.".startswith(runtimes)}


DEVICE = """
import importlib, pkgutil, sys
import potluck.algorithms
for room in ("core", "jobs", "models", "algorithms"):
    package = importlib.import_module(f"potluck.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"potluck.{room}."):
        if room != "algorithms" or "device" in found.name.split("."):
            print(importlib.import_module(found.name).__name__, file=sys.stderr)
heavy = ("pandas", "plotly", "scipy", "sklearn")
here = ("rules", "engine", "simulate", "execute", "experiment", "report")
print(*(name for name in (*heavy, *(f"potluck.{room}" for room in here)) if name in sys.modules))
"""


def test_a_device_needs_neither_rules_nor_a_runtime():
    """It imports jobs, models and what algorithms run on devices: `tests/algorithms` checks what is sent."""
    done = subprocess.run([sys.executable, "-c", DEVICE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
    assert "potluck.algorithms.auxo.device" in done.stderr.split()


@pytest.mark.parametrize(("name", "limit"), [("fedavg", 50), ("fedasync", 71)])
def test_algorithms_stay_short(name, limit):
    text = (ROOT / "potluck" / "algorithms" / f"{name}.py").read_text()
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = len(text.splitlines()) - sum((node.end_lineno or 0) - node.lineno + 1 for node in imports)
    assert lines < limit, f"{name}.py has {lines} lines beside imports; move shared parts to potluck.rules"
