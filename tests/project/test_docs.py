"""The pages say what is so: code in them compiles and runs, names and links lead somewhere."""

import ast
import inspect
import re
import sys
import types
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from support import close, fit, local, numbers

import potluck
from potluck import algorithms, authoring, data, jobs, layers
from potluck.cli import main
from potluck.cli.commands import app
from potluck.core import codec, context, job, messages, rule
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
from potluck.jobs import SGD, Train

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.stem: path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text, language="python"):
    return [code for kind, code in FENCED.findall(text) if kind == language]


def page(name):
    return PAGES[name].read_text()


def chapter(name, heading):
    """A page from one heading of the second level to the next."""
    return page(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@contextmanager
def module(name, *sources):
    """A module made of blocks of a page; its values are forgotten afterwards."""
    made = sys.modules[name] = types.ModuleType(name)
    for source in sources:
        exec(compile(source, name, "exec"), made.__dict__)
    try:
        yield made
    finally:
        del sys.modules[name]
        for known in [known for known, cls in codec.values().items() if cls.__module__ == name]:
            codec._FIELDS.pop(codec._KNOWN.pop(known))


# --------------------------------------------------------------------------------------- words and signatures


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING", "design"])
def test_python_compiles(name):
    found = blocks(page(name))
    assert found
    for number, code in enumerate(found):
        compile(code, f"{name}, block {number}", "exec")


def promised():
    """Classes of the chapter on contracts."""
    parsed = [node for code in blocks(chapter("design", "Contracts")) for node in ast.parse(code).body]
    return [node for node in parsed if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize("said", promised(), ids=lambda node: node.name)
def test_contracts_are_as_the_page_says(said):
    places = (messages, rule, job, context, jobs)
    real = next(getattr(place, said.name) for place in places if hasattr(place, said.name))
    fields = [node.target.id for node in said.body if isinstance(node, ast.AnnAssign)]
    methods = [node for node in said.body if isinstance(node, ast.FunctionDef)]
    for method in methods:
        asked = [argument.arg for argument in method.args.args]
        assert list(inspect.signature(getattr(real, method.name)).parameters) == asked, method.name
    names = {name for cls in real.__mro__ for name in (*vars(cls), *vars(cls).get("__annotations__", {}))}
    assert set(fields) <= names
    own = {name for name in (*vars(real), *vars(real).get("__annotations__", {})) if not name.startswith("_")}
    assert own <= {*fields, *(method.name for method in methods)}, "the page leaves something out"


def first_column(text):
    """What stands between backticks in the first column of a table."""
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {name.strip("/") for cell in cells for name in re.findall(r"`([\w./]+)`", cell)}


def test_the_readme_counts_what_there_is():
    known = set(algorithms.names())
    systems = set(re.findall(r"\(docs/systems/(\w+)\.md\)", page("README"))) - {"index"}
    assert len(systems) == 5
    assert systems <= known
    told = int(re.search(r"and (\d+) \[baselines\]", page("README"))[1])
    assert told == len(known - systems - {"classter_async"})  # ClassTer, too


def test_commands_that_the_readme_names_exist():
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    commands |= {group.name for group in app.registered_groups}
    named = set(re.findall(r"`potluck (\w+)", page("README")))
    assert named
    assert named <= commands


def anchors(text):
    """What a heading is called in a link, as code hosts do it."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page(name))):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (PAGES[name].parent / file).resolve() if file else PAGES[name]
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


# --------------------------------------------------------------------------------------------------- examples


def test_readme_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {}
    for code in blocks(page("README")):
        exec(compile(code, "README", "exec"), space)
    assert space["run"].summary["accuracy_mean"] > 0.5
    assert len(space["curve"]) > 5
    assert isinstance(space["model"], torch.nn.Module)


def test_readme_toml_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (toml,) = blocks(page("README"), "toml")
    (tmp_path / "first.toml").write_text(toml)
    quick = ("--set", "stop.seconds=5", "--set", "run.executor=loop", "--quiet")
    with pytest.raises(SystemExit) as ended:
        main(["run", "first.toml", "--algorithm", "fedbuff", *quick])
    assert not ended.value.code
    folder = tmp_path / "runs" / "first-fedbuff-1"
    assert potluck.load(folder).experiment.algorithms["fedbuff"]["buffer"] == 5
    assert first_column(chapter("concepts", "The records")) == {entry.name for entry in folder.iterdir()}


def test_a_federation_of_every_kind_can_be_made(tmp_path):
    (toml,) = blocks(chapter("concepts", "A crowd as unequal as yours"), "toml")
    # MNIST by writer isn't here: the same keys on data with users of their own.
    rows, users = 900, np.arange(900) // 60
    x = np.random.default_rng(0).normal(size=(rows, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(rows) % 10, user=users, test=users >= 12)
    (tmp_path / "unequal.toml").write_text(f"[stop]\nrounds = 1\n{toml}")
    changed = ["data.source=npz", f"data.path={tmp_path / 'mine.npz'}", "data.rows_per_client=20"]
    federation = build_federation(
        Experiment.from_file(tmp_path / "unequal.toml").with_overrides(changed).resolve()
    )
    assert federation.partition.clients == 33  # three of each of eleven users; the twelfth validates
    assert len(np.unique(federation.fleet.group)) == 4
    assert len(np.unique(federation.fleet.edge)) == 5
    assert len(federation.changes) == 1


def test_contributing_shows_an_algorithm_that_works():
    algorithm, test, objective = blocks(page("CONTRIBUTING"))
    with module("potluck.algorithms.fedavgm", algorithm), module("a_test", test) as made:
        made.test_fedavgm_builds_up_what_rounds_agree_on()
    with module("an_objective", objective) as made:
        at = local([1.0, -2.0, 3.0], [1, 0, 0], {"params": numbers(0.5, 0.1)})
        plain, same, smoothed = (
            fit(Train(optim=SGD(0.1), objective=o), at)[0]["delta"]
            for o in (jobs.CrossEntropy(), made.Smoothed(0.0), made.Smoothed(0.5))
        )
    assert close(plain, same)
    assert not close(plain, smoothed)


def test_the_map_shows_every_room():
    """Folders and files of the page, and of the package; algorithms are too many to list."""
    (drawn,) = (code for code in blocks(chapter("design", "Layout"), "") if code.startswith("potluck/"))
    at, found = [], set()
    for line in drawn.splitlines()[1:]:
        if line.startswith("  "):
            depth = (len(line) - len(line.lstrip())) // 2
            at = [*at[: depth - 1], line.split()[0].rstrip("/")]
            found.add("/".join(at))
    package = ROOT / "potluck"
    rooms = {str(p.parent.relative_to(package)) for p in package.rglob("__init__.py")} - {"."}
    rooms = {room for room in rooms if not room.startswith("algorithms/")}
    files = {p.name for p in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert found == rooms | files


def test_a_change_is_a_line_and_a_release_has_a_date():
    text = page("CHANGELOG")
    lines = [line for line in text.partition("\n## [Unreleased]\n")[2].splitlines() if line]
    changes = [line for line in lines if line.startswith("- ")]
    assert len(changes) > 50
    assert max(map(len, changes)) <= 150
    assert all(line.startswith(("- ", "#")) or line.endswith(":") for line in lines)
    releases = dict(re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", text, re.MULTILINE))
    assert potluck.__version__ in releases
    assert len(releases) == text.count("\n## ") - 1


OFFERED = [getattr(module, name) for module in (potluck, authoring, data) for name in module.__all__]
FUNCTIONS = [each for each in (*OFFERED, layers.stacked) if inspect.isfunction(each)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_public_functions_say_what_their_arguments_are(function):
    told = inspect.getdoc(function)
    assert [each for each in inspect.signature(function).parameters if f"`{each}`" not in told] == []
