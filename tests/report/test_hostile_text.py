"""Text of others (names, labels, notes, groups), printed or drawn, is text and nothing else."""

import ast
import html.parser
import json
import re
from pathlib import Path

import pytest
from unpacked import read_figures, unpack

from potluck.cli import main
from potluck.core.echo import PlainConsole
from potluck.core.plain_text import show_controls
from potluck.experiment import Experiment, run
from potluck.report.canvas import ReportFigure, make_figure
from potluck.report.gather import gather
from potluck.report.page import list_facts, render, render_page

ROOT = Path(__file__).resolve().parents[2]
EVIL = '<a href="javascript:alert(1)">x</a><script>alert(2)</script><img src=x onerror=y>\x1b[2J\x9b\x07'
SMALL = Experiment(
    name="small",
    data={"source": "synthetic", "rows": 300, "dimension": 4, "classes": 3, "clients": 8},
    fleet={"edges": 2},
    model={"name": "mlp", "width": 0.1},
    stop={"rounds": 2},
    run={"executor": "loop"},
)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in ("fedavg", "fededge", "auxo", "fedrac"):
        run(SMALL.with_values(algorithm=name), folder / name)
    return folder


def spoil(thing, key=""):
    """The same with evil in every text but what the code itself looks for."""
    if isinstance(thing, str):
        return thing + EVIL
    if isinstance(thing, list):
        return [spoil(each) for each in thing]
    if isinstance(thing, dict):
        kept = ("metric", "algorithm", "finished", "evaluated_on", "why")
        return {k: v if k in kept else spoil(v) for k, v in thing.items()}
    return thing


class Links(html.parser.HTMLParser):
    """Tags, where links lead to, and what would be done when something happens."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.to, self.on = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("href", "src"):
                self.to.append(value or "")
            if name.startswith("on"):
                self.on.append(name)


def check(page, figures):
    """A page has links to itself and to its own data, its own scripts, and no others; nor has a figure."""
    seen = Links(page)
    assert [to for to in seen.to if not to.startswith("#")] == []
    assert seen.on == []
    assert "img" not in seen.tags
    assert seen.tags.count("script") == 3
    body = page[page.index("<body>") :]
    assert not CONTROLS.search(body)
    plots = read_figures(page)
    assert len(plots) == figures
    assert not CONTROLS.search(json.dumps([choice["hint"] for choices in plots for choice in choices]))
    for choices in plots:
        drawn = json.dumps([choice["figure"] for choice in choices], ensure_ascii=False)
        assert not re.search(r"<(?!br>|extra>|/extra>)", drawn)
        assert not CONTROLS.search(drawn)
    assert "&lt;a href" in body


def test_labels_of_runs_make_no_links_and_no_scripts(runs):
    compared = gather(sorted(runs.iterdir()))
    for each in compared.runs:
        each.summary.update(spoil(each.summary))
        vars(each)["lines"] = [spoil(line) for line in each.lines]
        each.notices.append(EVIL)
    page = render(compared)
    check(page, len(re.findall("<section", page)))


def test_labels_of_figures_are_text():
    figure = make_figure(EVIL, EVIL)
    figure.add_bar(
        x=[1, 2],
        y=[EVIL, "R&D"],
        name=EVIL,
        text=[EVIL, ""],
        hovertemplate="%{y}<br>" + EVIL + "<extra></extra>",
    )
    figure.add_annotation(text=EVIL)
    page = render_page(EVIL, EVIL, EVIL, list_facts([(EVIL, EVIL)]), [ReportFigure(EVIL, figure, EVIL)])
    check(page, 1)
    drawn = unpack(page, "figures")
    assert "R&amp;D" in drawn  # which plotly shows as R&D
    assert "<extra>" in drawn  # our own words for it stay


@pytest.fixture
def hostile(runs, tmp_path):
    """A folder of runs whose names and summaries want to rule a terminal."""
    place = tmp_path / "evil\x1b[2J[link=x]\x9b"
    place.mkdir()
    (runs / "fedavg").rename(place / "a\x1b]0;title\x07")
    folder = place / "a\x1b]0;title\x07"
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(spoil(summary)))
    yield place
    (folder / "summary.json").write_text(json.dumps(summary))
    folder.rename(runs / "fedavg")


@pytest.mark.parametrize("command", ["show", "list", "report", "resume", "absent"])
def test_nothing_printed_rules_a_terminal(hostile, command, capsys):
    folder = next(hostile.iterdir())
    arguments = {"list": ["list", hostile], "absent": ["show", folder / "no\x1b[2Jthing"]}
    with pytest.raises(SystemExit):
        main([str(a) for a in arguments.get(command, [command, folder])])
    said = capsys.readouterr()
    assert not CONTROLS.search(said.out + said.err)
    assert "\\x1b" in said.out + said.err


def test_what_is_text_is_no_markup():
    console = PlainConsole()
    console.file = open("/dev/null", "w")  # noqa: SIM115
    with console.capture() as printed:
        console.print("[link=http://x]a[/link] [/] :smile: \x1b[31m \u202e")
    assert printed.get() == "[link=http://x]a[/link] [/] :smile: \\x1b[31m \\u202e\n"
    console.file.close()


def test_controls_are_written_out():
    assert show_controls("a\x1b[2J\r\x00\x9b\ud800b") == "a\\x1b[2J\\r\\x00\\x9b\\ud800b"
    assert show_controls("one\ttwo\nthree: ä, 语, 🙂") == "one\ttwo\nthree: ä, 语, 🙂"


def test_every_print_goes_by_one_door():
    """Only echo.py prints, or makes a console that does; `main` says how it ended."""
    found = []
    for path in (ROOT / "potluck").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "Console"):
                found.append(path.relative_to(ROOT / "potluck").as_posix())
    assert sorted(set(found)) == ["cli/__init__.py", "core/echo.py"]
