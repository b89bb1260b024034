"""The site: it builds, asks a network for nothing, and shows what the code says."""

import dataclasses
import importlib
import json
import logging
import re
import shutil
import subprocess
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, chained, finished, lines, small
from test_docs import blocks, module

import potluck
from potluck import algorithms, data
from potluck.cli import main
from potluck.core.errors import ConfigError
from potluck.experiment import Experiment, run_events

pytestmark = pytest.mark.slow

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WRITTEN = [path for path in PAGES if path.parent.name in ("systems", "baselines")]  # by hand, with numbers
MEASURED = [DOCS / "performance.md", *DOCS.glob("results/*.md")]
ASKED = re.compile(r"^<!-- (algorithm|paper|parameters|deviations): (\w+) -->$", re.MULTILINE)
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}


def text(name):
    return (DOCS / name).read_text()


def helper(name):
    """A module of docs/, as the build imports it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)  # they import each other
        return importlib.import_module(name)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """All pages, built as `make docs` builds them: a broken link or anchor is an error."""
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    out = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.setattr(logging.getLogger("mkdocs"), "level", logging.WARNING)
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(out), strict=True))
    return out


class Requests(HTMLParser):
    """What a browser would fetch for a page, and the text between its tags."""

    def __init__(self, page):
        super().__init__()
        self.urls, self.styles, self.words = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.urls += [given[FETCHED[tag]]] if given.get(FETCHED.get(tag)) else []
        self.urls += [each.split()[0] for each in (given.get("srcset") or "").split(",") if each.strip()]
        self.styles.append(given.get("style") or "")

    def handle_data(self, data):
        self.words.append(data)


# -------------------------------------------------------------------------------------------------- the site


def test_every_page_is_built(site):
    built = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    sources = {path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES}
    assert sources | {"contributing", "changelog", "404"} == built
    assert not list(site.rglob("*.py*"))


def test_nothing_is_asked_of_a_network(site):
    remote = re.compile(r"^\s*(\w+:)?//")
    for page in site.rglob("*.html"):
        raw = page.read_text()
        seen = Requests(raw)
        assert len(seen.urls) > 3, page
        assert not [url for url in seen.urls if remote.match(url)], page
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", raw + "".join(seen.styles)), page
        assert 'class="mermaid"' not in raw, "Material would load its script from elsewhere"
        assert "data-md-component=source" not in raw.replace('"', ""), "it would ask a code host for stars"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text()), sheet


def test_no_marker_is_left_over(site):
    for page in site.rglob("*.html"):
        body = re.sub(r"<code>.*?</code>|<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        assert not re.search(r"<!-- (algorithms?|paper|parameters|sources|experiment|commands)\b", body), page


def test_search_has_every_page_and_needs_no_server(site):
    """A page that is a file may load scripts, but neither fetch an index nor start a worker."""
    index = json.loads((site / "search/search_index.js").read_text().removeprefix("var __index = "))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert found == pages
    for page in pages:
        scripts = [url for url in Requests((site / page).read_text()).urls if url.endswith(".js")]
        assert scripts[0].endswith("iframe-worker.js"), page
        assert all((site / page).parent.joinpath(url).exists() for url in scripts), page


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("page", ["index.html", "systems/auxo.html"])
def test_search_works_where_a_page_is_opened_as_a_file(site, page, tmp_path):
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"]
    told = ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]
    address = f"{(site / page).as_uri()}?q=Adaptive-Krum"
    done = subprocess.run([BROWSER, *flags, *told, address], capture_output=True, text=True, timeout=120)
    found = re.findall(r'<a href="([^"?#]*)[^"]*" class="md-search-result__link"', done.stdout)
    places = {(site / page).parent.joinpath(link.removeprefix(site.as_uri())).name for link in found}
    assert "maverick.html" in places, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr


def test_links_out_of_the_pages_are_bent():
    outward = helper("_hooks").outward
    page = "[c](../CONTRIBUTING.md#x) [w](../bench/workload.py) [d](design.md) `[e](../CONTRIBUTING.md)`"
    assert outward(page, "docs/performance.md", "performance.md") == (
        "[c](contributing.md#x) w (`bench/workload.py`) [d](design.md) `[e](../CONTRIBUTING.md)`"
    )
    assert outward("[d](docs/design.md#a)", "CONTRIBUTING.md", "contributing.md") == "[d](design.md#a)"
    assert outward("[c](../../CONTRIBUTING.md)", "docs/own/a.md", "own/a.md") == "[c](../contributing.md)"


# --------------------------------------------------------------------------------- what is made from the code


def table_keys(markdown):
    return re.findall(r"^\| `([\w.]+)` \|", markdown, re.MULTILINE)


def test_every_key_of_an_experiment_is_there():
    made = helper("_experiment")
    page = made.reference()
    found = dict(made.tables())
    paths = {"", "data", "data.groups", "[data.changes]", "fleet.tiers.NAME", "fleet.attack", "train.privacy"}
    assert paths <= set(found)
    assert table_keys(page) == [key for model in found.values() for key in model.model_fields]
    for path, model in found.items():
        for key, kind, _, meaning in made.rows(path, model):
            assert kind, (path, key)
            assert meaning, f"{path}.{key}: its type should say what it means, Annotated[..., text]"


def test_types_bounds_and_defaults_are_in_words():
    made = helper("_experiment")
    rows = {path: {row[0]: row for row in made.rows(path, model)} for path, model in made.tables()}
    assert rows["data"]["`shift`"][1:3] == ("number, at least 0, at most 1, or [table](#data-shift)", "`0.0`")
    assert rows["data"]["`validation`"][1] == "number, above 0, below 1"
    assert rows["data"]["`changes`"][1] == "[list of tables](#data-changes)"
    assert rows["data.groups"]["`count`"][1:3] == (
        "whole number, at least 2, at most 1,000",
        "**must be given**",
    )
    assert rows["run"]["`device`"][1:3] == ("`cpu`, `cuda`", "`cpu`")
    latency = "number, at least 0, at most 1e+06"
    assert rows["fleet"]["`latency`"][1] == f"{latency} or list of: {latency}"
    assert rows[""]["`stop`"][2] == "`rounds = 50`"


def test_every_name_that_a_key_takes_is_there():
    made = helper("_experiment")
    for what, known in (("data", made.DATA), ("fleet", made.FLEETS), ("partitions", made.PARTITIONS)):
        assert re.findall(r"^\| `([\w-]+)` \|", made.choices(what), re.MULTILINE) == list(known)


def test_every_command_is_there():
    made = helper("_commands")
    page = made.reference()
    names = [name for name, _ in made.commands()]
    assert {"potluck run", "potluck compare", "potluck data get", "potluck data show"} <= set(names)
    for name, command in made.commands():
        part = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert all(f"`{option}`" in part for p in command.params for option in p.opts if option[0] == "-")


@pytest.mark.parametrize("name", algorithms.names())
def test_every_algorithm_is_shown(name):
    made = helper("_algorithms")
    shown = [path for path in PAGES for what, who in ASKED.findall(path.read_text()) if who == name]
    told = algorithms.describe(name)
    page = made.whole(name)
    assert [p.name for p in told.parameters if p.name != "local"] + ["train"] == table_keys(page)
    assert f"Rules taken from: {told.fidelity}" in page
    assert "`" + name + "`" in made.overview("baselines")
    if not shown:  # then all of it stands below the table
        assert page in made.overview("baselines")


def test_pages_name_what_there_is():
    asked = {who for path in PAGES for _, who in ASKED.findall(path.read_text())}
    assert {"fedavg", "auxo", "maverick"} <= asked
    assert asked <= set(algorithms.names())


def test_deviations_are_told_apart_from_the_idea():
    made = helper("_algorithms")
    assert made.idea("fedavg").endswith("weighted by samples.")
    assert made.deviations("fedavg").splitlines()[-1].startswith("    Deviations: changes travel")
    assert "Deviations" not in made.idea("auxo")
    assert made.deviations("auxo").count("Deviations:") == 1


# ---------------------------------------------------------------------------------- what was written by hand

NUMBER = r"[\d.]+(?: min)?(?: [\d.]+ s)?"
FIGURES = (
    rf"{NUMBER} ± {NUMBER}(?: %)?",
    r"\d[\d.,]* [GM]B",
    r"\d+ h \d+ min",
)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_numbers_stand_where_they_were_measured(path):
    measured = " ".join("".join(page.read_text() for page in MEASURED).replace("**", "").split())
    prose = " ".join(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL).replace("**", "").split())
    for figure in FIGURES:
        for found in re.findall(figure, prose):
            assert found in measured, f"{found}: no study says so (any more)"


@pytest.mark.parametrize(
    "path", [*PAGES, DOCS.parent / "README.md"], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_intervals_are_explained_where_they_stand(path):
    told = " ".join(path.read_text().split())
    assert "±" not in told or "half of the 95 % interval" in told or "half of a 95 % interval" in told


def test_intervals_are_computed_and_written_in_one_place():
    code = [file for room in ("potluck", "studies") for file in (DOCS.parent / room).rglob("*.py")]
    assert [file.name for file in code if " ± {" in file.read_text()] == ["columns.py"]
    assert [file.name for file in code if "t.ppf" in file.read_text()] == ["metrics.py"]


def test_a_first_experiment_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (toml, tuned), (code, more) = blocks(text("start.md"), "toml"), blocks(text("start.md"))
    (tmp_path / "first.toml").write_text(toml)
    quick = ("--set", "stop.seconds=2", "--set", "run.executor=loop", "--quiet")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "first.toml", *quick])
    assert not ended.value.code
    assert (tmp_path / "runs" / "first" / "report.html").exists()
    space = {}
    exec(compile(code, "start.md", "exec"), space)
    assert space["run"].summary["accuracy_mean"] > 0.5
    assert isinstance(space["model"], torch.nn.Module)
    exec(compile(more, "start.md", "exec"), space)
    assert [row.algorithm for row in space["compared"].rows] == ["fedavg", "fedprox"]
    assert len(space["tuning"].means("fedavg")) == 3
    (tmp_path / "tuned.toml").write_text(toml + tuned)
    assert potluck.Experiment.from_file("tuned.toml").tune.trials == 8
    assert space["advised"].measured.devices == 20


def test_own_data_and_models_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = {}
    for code in blocks(text("own/data.md")):
        exec(compile(code, "own/data.md", "exec"), space)
    assert space["run"].summary["accuracy_mean"] > 0.5
    assert len(space["run"].models["global"][0].bias) == 16  # 32 units at half of the width
    assert isinstance(space["run"], potluck.Run)
    assert space["compared"].algorithms == ["fedavg", "fedprox"]
    (file,) = blocks(text("own/data.md"), "ini")
    (tmp_path / "mine.toml").write_text(file)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["data", "mine.toml", "--json"])
    assert not ended.value.code
    assert sum(json.loads(capsys.readouterr().out)["count"].values()) == 600
    first, second = (data.load("npz", path=path) for path in ("mine.npz", "table.npz"))  # by way of a table
    assert torch.allclose(first.x, second.x, atol=1e-5)
    assert torch.equal(first.y, second.y)
    assert np.array_equal(first.user, second.user)


def test_a_study_of_ones_own_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (study,) = [code for code in blocks(text("own/code.md")) if "STUDY = " in code]
    (tmp_path / "pull.py").write_text(study)
    results = tmp_path / "docs" / "results" / "pull.md"
    for options, written in ((["--no-page"], False), ([], True)):
        with pytest.raises(SystemExit) as ended:
            main(["study", "pull.py", "--quiet", *options])
        assert not ended.value.code
        assert results.exists() == written
    assert "FedProx's pull (quick)" in results.read_text()
    assert len([*(tmp_path / "runs" / "studies" / "pull-quick").rglob("summary.json")]) == 4


def test_runs_are_followed_as_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = {}
    *first, logged = blocks(text("own/tools.md"))
    for code in first:
        exec(compile(code, "own/tools.md", "exec"), space)
    assert [round for round, *_ in space["worst"].found] == [0, 1, 2, 3, 4]
    assert "fedprox-1: 100%" in capsys.readouterr().err
    assert "<svg" in space["compared"]._repr_html_()
    monkeypatch.setattr(logging, "basicConfig", lambda level: None)  # the tests' own logging stays as it is
    exec(compile(logged, "own/tools.md", "exec"), space)
    events = [cls for name, cls in vars(run_events).items() if name in ("Started", "RoundDone", "Evaluated")]
    told = set(re.findall(r"`(\w+)`", text("own/tools.md")))
    for event in (*events, run_events.Noted, run_events.Ended):
        assert {field.name for field in dataclasses.fields(event)} <= told, event


def test_the_worked_example_works():
    algorithm, test = blocks(text("own/algorithm.md"))
    with module("potluck.algorithms.powd", algorithm) as made, module("a_test", test) as tested:
        tested.test_those_with_the_largest_losses_train()
        rule, federation = made.powd(LOCAL, clients=3, candidates=6), small()
        loop, stacked = (finished(federation, rule, rounds=6, plan=plan) for plan in (LOOP, STACKED))
        resumed, events = chained(federation, rule, rounds=6, plan=LOOP)
        assert events > 12
        assert lines(resumed) == lines(loop)
        assert [r["metric"] for r in stacked.records] == [r["metric"] for r in loop.records]
        with pytest.raises(ConfigError, match=r"candidates = 0: must be at least 1"):
            made.powd(candidates=0)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).with_suffix("").as_posix())
def test_toml_of_pages_is_known(path):
    """Every key of an example is one that an experiment knows."""
    known = {"powd"} | set(algorithms.names())
    for toml in blocks(path.read_text(), "toml"):
        told = tomllib.loads(toml)
        assert set(told.get("algorithms", {})) <= known
        told.pop("algorithms", None)
        told.pop("compare", None)
        Experiment(**told)


def test_pictures_need_nothing_else():
    for picture in (DOCS / "images").glob("*.svg"):
        drawn = picture.read_text()
        assert "<title>" in drawn
        assert not re.search(r"(href|src)=|@import|url\((?!#)", drawn), picture
        assert any(f"images/{picture.name}" in page.read_text() for page in PAGES), f"{picture}: unused"


def test_rows_are_escaped():
    made = helper("_algorithms")
    assert made.table(("a",), [("`x | y` | z",)]) == "| a |\n| --- |\n| `x | y` \\| z |"
    assert made.plain("a_b [c] `d_e`") == r"a\_b \[c\] `d_e`"
    assert made.shortened("Uniform()") == "Uniform()"
    assert made.shortened("X(" + "y" * 90 + ")") == "X(...)"
