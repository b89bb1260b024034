"""The table of claims: every figure and table of the papers has a row, and rows say what studies say."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
INDEX = (DOCS / "results/index.md").read_text()
VERDICTS = ("holds", "holds with our changes", "not seen", "not tried")
# How many figures and tables each paper has.
PAPERS = {"ClassTer": (17, 2), "Auxo": (13, 5), "Maverick": (14, 3), "ShuffleFL": (19, 10), "Fed-RAC": (4, 8)}
HEADER = ["Where", "The paper says", "What came of it here", "Seeds", "Verdict"]
ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7, "VIII": 8}
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)#([^)]+)\)")
ONE = r"(?:\d+|[IV]+)[a-f]?\b"
NAMED = re.compile(rf"\b(Figure|Table)s? ({ONE}(?:(?:, | and | to ){ONE})*)")
N = r"\d+(?:,\d{3})*(?:\.\d+)?"
TIME = rf"(?:\d+ h \d+ min|\d+ min(?: \d+ s)?|{N} s)"
BYTES = rf"{N} [kMG]?B"
VALUE = re.compile(
    rf"(?<![\w.-])(?:{TIME}(?: ± {TIME})?|{BYTES}(?: ± {BYTES})?|[+-]?{N}x?(?: ± {N})?(?: %)?)(?![\w)]|\.\d)"
)


def chapter(name):
    return INDEX.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def rows(name):
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in chapter(name).splitlines()
        if line.startswith("| ")
    ]
    assert cells[0] == HEADER, name
    return [dict(zip(HEADER, row, strict=True)) for row in cells[2:]]


ROWS = [(name, row) for name in PAPERS for row in rows(name)]
IDS = [f"{name}, {row['Where']}: {row['The paper says'][:40]}" for name, row in ROWS]


def slug(heading):
    """An anchor as code hosts and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(page, anchor):
    """What stands below the heading of an anchor, without bold."""
    text = (DOCS / "results" / page).read_text().replace("**", "")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    found = {slug(heading): body for heading, body in zip(parts[1::2], parts[2::2], strict=True)}
    assert anchor in found, f"{page} has no section #{anchor}"
    return found[anchor]


def number(text):
    return ROMAN.get(text) or int(re.match(r"\d+", text)[0])


def named(text):
    """Figures and tables that a text names."""
    for kind, listed in NAMED.findall(text):
        for several in re.split(r", | and ", listed):
            first, *last = [number(each) for each in several.split(" to ")]
            yield from ((kind, each) for each in range(first, (last or [first])[0] + 1))


def test_figures_and_tables_are_read_as_they_are_written():
    assert list(named("Table 3, FEMNIST; Figure 7a")) == [("Table", 3), ("Figure", 7)]
    assert list(named("Tables IV to VI; Figures 7d and 7e")) == [
        *(("Table", each) for each in (4, 5, 6)),
        *(("Figure", 7),) * 2,
    ]


@pytest.mark.parametrize("name", PAPERS)
def test_every_figure_and_table_of_the_papers_is_there(name):
    figures, tables = PAPERS[name]
    wanted = {("Figure", n + 1) for n in range(figures)} | {("Table", n + 1) for n in range(tables)}
    outside = "\n".join(line for line in chapter(name).splitlines() if line.startswith("Figure"))
    found = {each for row in rows(name) for each in named(row["Where"])} | set(named(outside))
    assert found == wanted
    assert any(row["Where"].startswith("Abstract") for row in rows(name))


def test_the_page_counts_its_verdicts():
    held, changed, unseen, untried = (sum(row["Verdict"] == word for _, row in ROWS) for word in VERDICTS)
    assert (
        f"Of {len(ROWS)} claims {held} hold, {changed} hold with our changes, "
        f"{unseen} were not seen and {untried} were not tried."
    ) in INDEX


@pytest.mark.parametrize(("name", "row"), ROWS, ids=IDS)
def test_every_row_has_a_verdict_and_its_study(name, row):
    assert row["Verdict"] in VERDICTS
    assert row["The paper says"]
    linked = LINK.findall(row["What came of it here"])
    assert bool(linked) == (row["Verdict"] != "not tried")
    found = [section(*link) for link in linked]
    seeds = [*dict.fromkeys(n for body in found for n in re.findall(r"Means of (\d+) seeds", body))]
    assert row["Seeds"] == (" and ".join(seeds) or "–")


@pytest.mark.parametrize(("name", "row"), ROWS, ids=IDS)
def test_numbers_are_copied_from_the_study(name, row):
    """Numbers stand before the link to where they are from."""
    told = row["What came of it here"]
    before = 0
    for link in LINK.finditer(told):
        body = section(*link.groups())
        for value in (found[0] for found in VALUE.finditer(told[before : link.start()])):
            pattern = rf"(?<![\d.]){re.escape(value)}(?![\d]|\.\d)"
            assert re.search(pattern, body), f"{value}: not in {link[0]}"
        before = link.end()
    assert not VALUE.search(told[before:]), "a number without a link behind it"


def test_numbers_are_found_whole():
    told = "-0.1 ± 2.1, 16 min 58 s ± 2 min 4 s, 47.2 MB ± 99 B, 1.6x and 2.66x ± 1.33, 63.4 %; 37 s ± 4.7 s"
    assert [found[0] for found in VALUE.finditer(told)] == [
        "-0.1 ± 2.1",
        "16 min 58 s ± 2 min 4 s",
        "47.2 MB ± 99 B",
        "1.6x",
        "2.66x ± 1.33",
        "63.4 %",
        "37 s ± 4.7 s",
    ]
