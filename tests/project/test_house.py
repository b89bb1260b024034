"""House rules that a linter doesn't know: honest types, hooks that are contracts, files of one idea."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import potluck

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = sorted((ROOT / "potluck").rglob("*.py"))
OTHERS = [p for room in ("bench", "docs", "examples", "studies") for p in sorted((ROOT / room).rglob("*.py"))]
# Rooms that have one of each: a registry, and what every algorithm's folder may have.
COMMON = {"__init__", "registry"}


def count(pattern):
    return sum(len(re.findall(pattern, path.read_text())) for path in PACKAGE)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [(r"\bAny\b", 209), (r"\bcast\b", 4), (r"type: ignore", 39)],
    ids=["Any", "cast", "ignore"],
)
def test_types_say_what_things_are(pattern, most):
    assert count(pattern) <= most


def defined(cls):
    """What a class defines, or assigns."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def test_no_class_delegates_by_getattr():
    classes = [
        node
        for path in PACKAGE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    found = [c.name for c in classes if {"__getattr__", "__getattribute__"}.intersection(defined(c))]
    assert found == []


def test_files_hold_one_idea():
    lines = {path: len(path.read_text().splitlines()) for path in (*PACKAGE, *OTHERS)}
    assert {str(path): n for path, n in lines.items() if n > 350} == {}
    algorithms = {path: n for path, n in lines.items() if "algorithms" in path.parts}
    assert {str(path): n for path, n in algorithms.items() if n > 250} == {}


def hooks():
    """Names that contracts promise: methods and attributes of protocols, but for Python's own."""
    found = set()
    for path in PACKAGE:
        if {"core", "jobs", "rules", "execute", "engine"}.intersection(path.relative_to(ROOT).parts):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and any(
                    "Protocol" in ast.unparse(base) for base in node.bases
                ):
                    found |= {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
                    found |= {f.target.id for f in node.body if isinstance(f, ast.AnnAssign)}
    return {name for name in found if not name.startswith("__")}


def test_hooks_are_contracts_that_nobody_sniffs():
    known, found = hooks(), []
    assert {"fits", "resize", "adopt", "tiers", "begin", "draw_all"} <= known
    for path in PACKAGE:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("hasattr", "getattr")
            ):
                second = node.args[1] if len(node.args) > 1 else None
                sniffs = node.func.id == "hasattr" or len(node.args) > 2
                if sniffs and isinstance(second, ast.Constant) and second.value in known:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {second.value}")
    assert found == []


def test_a_file_has_a_name_of_its_own():
    """Folders of algorithms are alike; a contract of core may have the name of what fulfils it."""
    others = [p for p in PACKAGE if not {"algorithms", "core"} & set(p.parts) and p.stem not in COMMON]
    assert {name for name, times in Counter(p.stem for p in others).items() if times > 1} == set()


# Files that a page tells its reader to write.
TO_BE_WRITTEN = {"mine.py", "fedavgm.py", "powd.py", "pull.py"}


def find_missing(text, files):
    """Files and modules of the package that a text names, and that don't exist."""
    for name in re.findall(r"(?<![\w/.$-])((?:\w+/)*\w+\.py)\b", text):
        known = any(file.endswith(f"/{name}") for file in files) or Path(name).name in TO_BE_WRITTEN
        if not known and not re.search("NAME|elsewhere", name):
            yield name
    for name in re.findall(r"`potluck\.([a-z_]+)", text):
        if not any(file.startswith(f"/potluck/{name}") for file in files) and name not in potluck.__all__:
            yield f"potluck.{name}"


def test_files_and_modules_that_are_named_exist():
    tests = sorted((ROOT / "tests").rglob("*.py"))
    files = ["/" + path.relative_to(ROOT).as_posix() for path in (*PACKAGE, *OTHERS, *tests)]
    texts = {path: path.read_text() for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))}
    for path in (*PACKAGE, *OTHERS):
        texts[path] = "\n".join(re.findall(r'"""(.*?)"""', path.read_text(), re.DOTALL))
    found = {path.name: list(find_missing(text, files)) for path, text in texts.items()}
    assert {name: missing for name, missing in found.items() if missing} == {}
    assert list(find_missing("`potluck.aggregate` and `runtime/world.py`", files)) == [
        "runtime/world.py",
        "potluck.aggregate",
    ]
