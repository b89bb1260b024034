"""Pictures of reports, by Chromium: .venv/bin/python docs/_pictures.py DEMO COHORTS TIERS

Three folders of comparisons: runs/demo (`make demo`), runs/auxo and runs/fedrac (`potluck compare
examples/auxo.toml`, and so on). Of the demo two figures alone, and its page by day; the others in the
dark and on a phone.
"""

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _browser import Browser, open_browser

from potluck import write_report
from potluck.report.gather import gather

IMAGES = Path(__file__).parent / "images"


class Picture(NamedTuple):
    """What is shown, of which report, and how large."""

    name: str
    report: int  # the first, second or third folder
    begins: str  # the id of what stands on top
    width: int
    height: int
    scheme: str = "light"
    alone: bool = False  # a figure without the page around it


PICTURES = (
    Picture("demo-accuracy.png", 0, "accuracy-over-time", 900, 560, alone=True),
    Picture("demo-rows.png", 0, "rows-before-and-after-shufflefl", 900, 800, alone=True),
    Picture("report-demo.png", 0, "results", 1400, 1000),
    Picture("report-cohorts.png", 1, "the-tree-of-cohorts-auxo", 1400, 800, "dark"),
    Picture("report-phone.png", 2, "the-fleet-by-tier-fedrac", 400, 800),
)
ALONE = """document.head.insertAdjacentHTML('beforeend', `<style>
nav, main > :not(.figures), .figures > :not({0}), .figures:not(:has({0})), .data, .modebar
  {{ display: none !important; }}
.beside {{ display: block; }} main {{ padding: 1rem; }} .figures {{ display: block; }}</style>`)"""


def take(picture: Picture, browser: Browser, page: Path) -> None:
    browser.fit(picture.width, picture.height, picture.scheme)
    browser.open(page.as_uri())
    browser.wait(lambda: browser.ask("document.body.dataset.drawn"))
    if picture.alone:
        browser.ask(ALONE.format(f"#{picture.begins}"))
        browser.ask("dispatchEvent(new Event('resize'))")
    browser.ask(f"document.getElementById({picture.begins!r}).scrollIntoView()")
    browser.shoot(IMAGES / picture.name)
    assert browser.said == [], browser.said


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]]
    assert len(folders) == 3, __doc__
    with tempfile.TemporaryDirectory() as room, open_browser() as browser:
        pages = [write_report(gather([folder]), Path(room, f"{i}.html")) for i, folder in enumerate(folders)]
        for picture in PICTURES:
            take(picture, browser, pages[picture.report])


if __name__ == "__main__":
    main()
