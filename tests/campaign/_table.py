"""What a campaign came to, as a table for people and for docs/reliability.md."""

import datetime
import subprocess
from pathlib import Path

from potluck.core.units import duration
from potluck.experiment.launch.hardware import describe_machine

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- campaign: `make reliability` writes this table -->", "<!-- end -->"


def describe_now():
    """When, where and what is tried."""

    def git(*arguments):
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": git("rev-parse", "--short", "HEAD") + (" with changes" if changed else ""),
        "date": datetime.date.today().isoformat(),
        "machine": describe_machine(),
    }


def list_lines(rows, log):
    """(name, title, tried, failed, time) of each row."""
    for row in rows:
        tally = log.of(row.name)
        tried, failed = len(tally.tried), len(tally.failed)
        yield row.name, row.title, f"{tried:,}", f"{failed:,}", duration(tally.seconds)


def write_text(rows, log):
    """The table for a terminal."""
    lines = [("row", "what was tried", "tried", "failed", "time"), *list_lines(rows, log)]
    wide = [max(len(line[i]) for line in lines) for i in range(5)]
    return "\n".join(
        f"{a:{wide[0]}}  {b:{wide[1]}}  {c:>{wide[2]}}  {d:>{wide[3]}}  {e:>{wide[4]}}"
        for a, b, c, d, e in lines
    )


def write_markdown(rows, log):
    """The table for a page, and where it is from."""
    about = log.about
    lines = [
        f"Tried on {about['date']}, at commit {about['commit']}, on {about['machine']}.",
        "",
        "| row | what was tried | tried | failed | time |",
        "| --- | --- | ---: | ---: | ---: |",
        *(f"| `{name}` | {' | '.join(cells)} |" for name, *cells in list_lines(rows, log)),
    ]
    return "\n".join(lines)


def put_into(page, text):
    """Replace the table of a page."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: has no lines {BEGIN!r} and {END!r}, so a table has no place in it")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
