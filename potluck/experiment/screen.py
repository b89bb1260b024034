"""Progress on stderr: a live line on a terminal, plain lines elsewhere, nothing when asked to be quiet."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Live

from potluck.core.echo import PlainConsole, echo
from potluck.core.units import duration, percent
from potluck.engine.schedule import Progress

Watch = Callable[[Progress], None]


PAUSE = 30.0  # seconds without a line that runs side by side may take, where lines stay


class Screen:
    """Shows how far runs are; `screen(name)` follows one, `screen.follow_many()` several."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = PlainConsole(stderr=True)
        self._bars: Live | None = None  # of runs side by side, on a terminal
        self._followed: dict[str, _Followed] = {}

    def say(self, text: str) -> None:
        """A notice, in one line."""
        if self.quiet:
            return
        if self._bars is not None:  # above them
            self.console.print(text, markup=False, soft_wrap=True)
        else:
            echo(text, err=True)

    def announce(self, number: int, total: int, left: float | None) -> None:
        """Which run of how many comes next, and how long all of them will take."""
        rest = "" if left is None else f", about {duration(left)} left"
        self.say(f"run {number} of {total}{rest}")

    @contextmanager
    def follow_many(self) -> Iterator[None]:
        """Runs side by side: a live line for each of those that are under way."""
        if self.quiet or not self.console.is_terminal:
            yield
            return
        try:
            with _make_bars(self.console, beside=True) as self._bars:
                yield
        finally:
            self._bars = None

    def on_start(self, name: str, where: str = "") -> None:
        """One of several runs at a time; `where`: such as `GPU 3`, if that doesn't go without saying."""
        if self._bars is None:
            self.say(f"{name}: on {where}" if where else f"{name}: started")
            self._followed[name] = _Followed(None)
        else:
            self._followed[name] = _Followed(_add_bar(self._bars, f"{name} ({where})" if where else name))
            self._bars.refresh()

    def on_progress(self, name: str, p: Progress) -> None:
        """How far one of several runs is."""
        run = self._followed[name]
        left, now = run.remaining(p.done), time.monotonic()
        if self._bars is not None and run.bar is not None:
            self._bars.update(run.bar, completed=p.done, text=_tell_briefly(p, left), refresh=True)
        elif now - run.spoke >= PAUSE and p.done < 1:
            run.spoke = now
            self.say(_tell_line(name, p, left))

    def on_end(
        self, name: str, accuracy: float | None, seconds: float, runs: int, left: float | None
    ) -> None:
        """What came of it, and what is left to do."""
        run = self._followed.pop(name)
        if self._bars is not None and run.bar is not None:
            self._bars.remove_task(run.bar)
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
        with _make_bars(self.console) as live:
            bar = _add_bar(live, name)

            def watch(p: Progress) -> None:
                live.update(bar, completed=p.done, text=_tell_briefly(p, remaining(p.done)))

            yield watch

    def _lines(self, name: str) -> Watch:
        remaining, shown = _Remaining(), [-1]

        def watch(p: Progress) -> None:
            left = remaining(p.done)
            if int(10 * p.done) > shown[0]:
                shown[0] = int(10 * p.done)
                self.say(_tell_line(name, p, left))

        return watch


def _make_bars(console: PlainConsole, beside: bool = False) -> Live:
    """Live lines. Those of runs side by side vanish, and no thread draws them: it would hinder forks."""
    columns = (TextColumn("{task.description}"), BarColumn(16), TextColumn("{task.fields[text]}"))
    if beside:
        return Live(
            *columns,
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
    return Live(*columns, console=console, refresh_per_second=8)


def _add_bar(live: Live, name: str) -> TaskID:
    return live.add_task(f"{escape(name):<10}", total=1.0, text="getting ready")


def _tell_briefly(p: Progress, left: str) -> str:  # short: bar and text should fit into 80 columns
    return f"round {p.round}, {duration(p.time)} virtual, {percent(p.accuracy)}, {left}"


def _tell_line(name: str, p: Progress, left: str) -> str:
    where = f"round {p.round}, {duration(p.time)} of virtual time, accuracy {percent(p.accuracy)}"
    return f"{name}: {p.done:4.0%}  {where}, {left}"


class _Followed:
    """One of several runs at a time."""

    def __init__(self, bar: TaskID | None) -> None:
        self.bar, self.remaining, self.spoke = bar, _Remaining(), time.monotonic()


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
