"""The page in a browser: a comparison begins, grows, is killed, goes on and ends, and the page says so."""

import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

import potluck
from potluck.experiment import Experiment, pulse
from potluck.experiment.comparison import resume_comparison
from potluck.watch import board, live_run
from potluck.watch.web import LOOPBACK, Page, open_socket, tell_address

pytestmark = pytest.mark.slow
DOCS = Path(__file__).resolve().parents[2] / "docs"
EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
TWO = Experiment(
    name="two",
    compare=["fedavg", "auxo"],
    data={"source": "digits", "clients": 20, "partition": "dirichlet", "alpha": 0.3},
    fleet={"source": "mobile", "availability": "on_off", "period": 100, "share": 0.6},
    stop={"rounds": 60},
    evaluate={"rounds": 3, "target": 0.6},
    algorithms={"auxo": {"clients": 6}, "fedavg": {"clients": 6}},
    run={"executor": "loop", "snapshot_every": 0.5},
)


@pytest.fixture(scope="module")
def chromium():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        helper = importlib.import_module("_browser")
    if helper.find_chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    return helper


@contextlib.contextmanager
def quick():
    """Signs of life and looks often enough for a run of seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulse, "OFTEN", 0.1)
        patch.setattr(pulse, "COST", 1.0)
        patch.setattr(live_run, "FRESH", 0.5)
        patch.setattr(board, "PAUSE", 0.1)
        patch.setattr(board, "SEARCH", 0.2)
        yield


@contextlib.contextmanager
def served(folder):
    """The page of a folder, in a thread; its address."""
    at = open_socket(LOOPBACK, 0)
    page = Page(at, board.Board(folder), LOOPBACK)
    thread = threading.Thread(target=page.run)
    thread.start()
    try:
        yield tell_address(at)
    finally:
        page.end()
        thread.join()


def begin(target, *arguments):
    """A process that is forked now, before there are threads, and begins when it is told."""
    go = multiprocessing.get_context("fork").Event()

    def wait():
        os.setsid()  # workers of it are killed with it
        go.wait()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        target(*arguments)

    process = multiprocessing.get_context("fork").Process(target=wait, daemon=True)
    process.start()
    return process, go


def spoil(folder, like):
    """A finished run whose texts, all that anybody may have written, are HTML."""
    shutil.copytree(like, folder)
    text = (folder / "experiment.toml").read_text().replace('name = "two"', 'name = "mine"')
    (folder / "experiment.toml").write_text(text)
    (folder / "summary.json").unlink()
    note = {"round": 9, "time": 9.0, "metric": f"note {EVIL}", "value": 3, "group": EVIL}
    with (folder / "records.jsonl").open("a") as log:
        log.write(json.dumps(note) + "\n" + '{"round":9,"time":9.0,"metr')  # cut off


STATES = """[...document.querySelectorAll('.runs tbody tr')].map(
    row => [...row.cells].slice(0, 2).map(cell => cell.innerText.trim()))"""
LENGTH = """[...document.querySelectorAll('.chart path')].map(
    path => path.getAttribute('d').split('L').length).reduce((sum, each) => sum + each, 0)"""
PICK = "[...document.querySelectorAll('{}')].find(each => each.innerText.includes('{}')).click()"
UNSEEN = """[...document.querySelectorAll('.runs .pill, h2, .verdict, svg')].filter(
    each => !each.closest('[hidden]') && !each.checkVisibility()).length"""


def states(browser):
    """What each row of the page says of its run."""
    return dict(browser.ask(STATES) or [])


def read(browser, where="body"):
    return browser.ask(f"document.querySelector('{where}').innerText")


def test_a_comparison_grows_is_killed_goes_on_and_ends(tmp_path, chromium):
    place = tmp_path / "runs"
    with quick():
        first, start = begin(potluck.compare, TWO, None, None, place / "two")
        second, go_on = begin(resume_comparison, place / "two")
        with served(place) as address, chromium.open_browser() as browser:
            browser.fit(1400, 900)
            browser.open(address)
            browser.wait(lambda: "isn't there yet" in read(browser))
            start.set()
            browser.wait(lambda: states(browser).get("fedavg, seed 1") == "running")
            assert states(browser)["auxo, seed 1"] == "waiting"
            before = browser.ask(LENGTH)
            browser.wait(lambda: browser.ask(LENGTH) > before + 3)
            browser.wait(lambda: "finished" in states(browser).values())
            browser.wait(lambda: states(browser)["auxo, seed 1"] == "running")
            browser.wait(lambda: "So far, after" in read(browser, ".verdict"))
            os.killpg(first.pid, signal.SIGKILL)
            browser.wait(lambda: states(browser)["auxo, seed 1"] == "stopped")
            browser.ask(PICK.format(".runs tbody tr", "auxo"))
            browser.wait(lambda: "no process computes it any more" in read(browser))
            look_at_every_size(browser)
            go_on.set()
            browser.wait(lambda: list(states(browser).values()) == ["finished", "finished"])
            browser.wait(lambda: "one seed" in read(browser, ".verdict"))
            assert read(browser, ".open") == "open the report"
            see_no_harm(browser, place)
            assert browser.said == []
            assert [asked for asked in browser.asked if not asked.startswith((address, "data:"))] == []
    second.join(10)


def look_at_every_size(browser):
    """Nothing is wider than the window, in the dark or by day; what is said is seen."""
    papers = set()
    for width in (400, 700, 1000, 1600):
        for scheme in ("light", "dark"):
            browser.fit(width, 900, scheme)
            browser.wait(lambda: browser.ask("document.documentElement.scrollWidth <= innerWidth"))
            assert browser.ask(UNSEEN) == 0
            papers.add(browser.ask("getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == 2
    browser.fit(1400, 900)


def see_no_harm(browser, place):
    """Texts of others are text: no element comes of them, and nothing that they say is done."""
    spoil(place / EVIL.partition("<script")[0] / "mine", place / "two" / "auxo-1")
    browser.wait(lambda: browser.ask("document.querySelectorAll('#groups button').length") == 2)
    browser.ask(PICK.format("#groups button", "mine"))
    browser.wait(lambda: read(browser, "h2") == "mine")
    browser.wait(lambda: all(text in read(browser, ".details table") for text in ("<img", "<script>")))
    assert "<img" in read(browser, ".details > .warning")  # its folder
    assert browser.ask("document.querySelectorAll('img, script:not([src]), body script').length") == 0
    assert browser.ask("document.title").endswith("Potluck")
