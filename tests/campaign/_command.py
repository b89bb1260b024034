"""The command line of the campaign."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from campaign import _table
from campaign._log import Log
from campaign._rows import list_names, load_row
from campaign._runner import Campaign


def read_arguments(given):
    parser = argparse.ArgumentParser(
        prog="python tests/campaign",
        description="Try everything bad, by the thousand; what was tried is kept, and a second call goes on.",
    )
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(list_names())}; all unless told")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this try of one row alone, here")
    parser.add_argument("--minutes", type=float, default=45.0, help="at most (45)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/campaign"), help="what was tried (runs/campaign)"
    )
    parser.add_argument("--afresh", action="store_true", help="forget what was tried")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put the last campaign's table into this page; try nothing"
    )
    asked = parser.parse_args(given)
    if unknown := set(asked.rows) - set(list_names()):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(list_names())}")
    if asked.only is not None and len(asked.rows) != 1:
        parser.error("--only: name one row")
    return asked


class Progress:
    """How far each row is: a line that is written over on a terminal, and now and then elsewhere."""

    def __init__(self, rows, log):
        self.rows, self.log, self.begun = rows, log, time.monotonic()
        self.every, self.end = (0.5, "\r") if sys.stderr.isatty() else (60.0, "\n")
        self.shown = self.begun

    def __call__(self):
        now = time.monotonic()
        if now - self.shown < self.every:
            return
        self.shown = now
        parts = []
        for row in self.rows:
            tally = self.log.of(row.name)
            bad = f" ({len(tally.failed)} FAILED)" if tally.failed else ""
            parts.append(f"{row.name} {len(tally.tried)}/{row.count}{bad}")
        print(f"{now - self.begun:5.0f} s  {', '.join(parts)}", end=self.end, file=sys.stderr, flush=True)


def main(given=None):
    """0: all was tried and nothing failed."""
    asked = read_arguments(given)
    rows = [load_row(name) for name in asked.rows or list_names()]
    with tempfile.TemporaryDirectory() as place:
        os.environ["POTLUCK_CACHE"] = str(Path(place, "cache"))  # not the user's
        if asked.only is not None:
            folder = Path(place, "try")
            folder.mkdir()
            rows[0].attempt(asked.only, folder)
            print(f"{rows[0].name} {asked.only}: good")
            return 0
        if asked.write is not None:
            _table.put_into(asked.write, _table.write_markdown(rows, Log.stored(asked.out)))
            return 0
        return run(rows, asked)


def run(rows, asked):
    log = Log(asked.out.resolve(), _table.describe_now(), asked.afresh)
    try:
        whole = Campaign(rows, log, asked.jobs).run(60 * asked.minutes, Progress(rows, log))
    except KeyboardInterrupt:
        whole = False
    failed = [(row.name, number, text) for row in rows for number, text in log.of(row.name).failed.items()]
    for name, number, text in failed:
        print(f"\nFAILED: {name} {number}; again: python tests/campaign {name} --only {number}\n{text}")
    print(f"\n{_table.write_text(rows, log)}")
    if not whole:
        print(f"\nnot all was tried; the same command goes on (after {asked.minutes:g} minutes it ended)")
    return 1 if failed or not whole else 0
