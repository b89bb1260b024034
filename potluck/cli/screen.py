"""Progress on stderr: a live line on a terminal, plain lines elsewhere, nothing when asked to be quiet."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Live

from potluck.report.units import duration, percent
from potluck.runtime import Progress

Watch = Callable[[Progress], None]


class Screen:
    """Shows how far runs are; `with screen(name) as watch` follows one."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False)

    def say(self, text: str) -> None:
        """A remark, in one line."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def stand(self, number: int, total: int, left: float | None) -> None:
        """Which run of how many comes next, and how long all of them will take."""
        rest = "" if left is None else f", about {duration(left)} left"
        self.say(f"run {number} of {total}{rest}")

    def begun(self, name: str) -> None:
        """One of several runs at a time."""
        self.say(f"{name}: started")

    def ended(self, name: str, accuracy: float | None, seconds: float, runs: int, left: float | None) -> None:
        """What came of it, and what is left to do."""
        rest = "" if left is None else f", about {duration(left)}"
        rest = f"; {runs} run{'s' * (runs > 1)} left{rest}" if runs else ""
        self.say(f"{name}: accuracy {percent(accuracy)}, took {duration(seconds)}{rest}")

    @contextmanager
    def __call__(self, name: str) -> Iterator[Watch | None]:
        if self.quiet:
            yield None
        elif self.console.is_terminal:
            with self._live(name) as watch:
                yield watch
        else:
            yield self._lines(name)

    @contextmanager
    def _live(self, name: str) -> Iterator[Watch]:
        remaining = _Remaining()
        columns = (TextColumn("{task.description}"), BarColumn(16), TextColumn("{task.fields[text]}"))
        with Live(*columns, console=self.console, refresh_per_second=8) as live:
            bar = live.add_task(f"{escape(name):<10}", total=1.0, text="getting ready")

            def watch(p: Progress) -> None:  # short: bar and text should fit into 80 columns
                text = (
                    f"round {p.round}, {duration(p.time)} virtual, {percent(p.accuracy)}, {remaining(p.done)}"
                )
                live.update(bar, completed=p.done, text=text)

            yield watch

    def _lines(self, name: str) -> Watch:
        remaining, shown = _Remaining(), [-1]

        def watch(p: Progress) -> None:
            left = remaining(p.done)
            if int(10 * p.done) > shown[0]:
                shown[0] = int(10 * p.done)
                where = f"round {p.round}, {duration(p.time)} of virtual time, accuracy {percent(p.accuracy)}"
                self.say(f"{name}: {p.done:4.0%}  {where}, {left}")

        return watch


class _Remaining:
    """Real time that is left, judged by the pace since this start: a resumed run doesn't begin at 0."""

    def __init__(self) -> None:
        self.entered = self.began = time.monotonic()
        self.first = -1.0  # share that was done when training began

    def __call__(self, done: float) -> str:
        now = time.monotonic()
        if self.first < 0:
            self.began, self.first = now, done
        if done >= 1:
            return f"took {duration(now - self.entered)}"
        spent = now - self.began
        if spent < 1 or done - self.first <= 0:
            return "no estimate yet"
        return f"{duration(spent * (1 - done) / (done - self.first))} left"
