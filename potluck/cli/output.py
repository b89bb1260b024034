"""What several commands do alike: show progress, say how to go on, print results."""

import json
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from potluck.core.echo import echo
from potluck.core.errors import RunError, StorageError

if TYPE_CHECKING:
    from potluck.experiment import Comparison, Run
    from potluck.experiment.launch.batch import RunBatch
    from potluck.experiment.screen import Screen


def open_screen(quiet: bool) -> "Screen":
    """Progress on stderr."""
    from potluck.experiment.screen import Screen  # here: it needs the runtime, which is slow to import

    return Screen(quiet)


@contextmanager
def explain_resuming(
    folder: Path, command: str | None = None, jobs: str = "auto", on: str | None = None, force: bool = False
) -> Iterator[None]:
    """On Ctrl-C or a full disk, say how to go on: by resuming the folder, or by this command.

    `force`: what the folder holds is to be replaced; while it is the old one still, it doesn't go on.
    """
    old = _identify(folder / "experiment.toml") if force else None
    try:
        yield
    except (KeyboardInterrupt, StorageError) as stopped:
        from potluck.experiment.code import find_path

        now = _identify(folder / "experiment.toml")
        begun = folder.exists() if command else now is not None and now != old
        code = "" if (path := find_path()) is None else f" --code {path}"
        there = "" if on is None else f" --on {shlex.quote(on)}"
        again = command or f"potluck resume {folder}{f' --jobs {jobs}' * (jobs != 'auto')}{there}{code}"
        hint = f"; go on with: {again}" if begun else ""
        if isinstance(stopped, StorageError):
            raise StorageError(f"{stopped}{hint}") from None
        echo(f"\npotluck: interrupted{hint}", err=True)
        raise typer.Exit(130) from None


def _identify(file: Path) -> tuple[int, int] | None:
    """What tells a file from another of its name."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def computing_part(folder: Path) -> Iterator[None]:
    """Batch systems end a task by SIGTERM. It is taken as Ctrl-C, so that no run seems to be under way still,
    and the task can go on at once on another machine."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with explain_resuming(folder, "the same command"):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def print_part(part: str, batch: "RunBatch", shown: "Screen") -> None:
    """What came of one part of several; what came of all is for who has all."""
    now = f"{batch.computed} run{'s' * (batch.computed != 1)} computed now"
    shown.say(f"potluck: part {part} is done ({now}); after all parts, the same without --part tells of them")


def print_json(content: Mapping[str, object] | Sequence[Mapping[str, object]], as_json: bool) -> bool:
    """Print JSON if that is wanted; whether it was."""
    if as_json:
        echo(json.dumps(content, indent=2))
    return as_json


def print_run(run: "Run", quiet: bool, as_json: bool) -> None:
    from potluck.cli import tables

    if not print_json(run.summary, as_json) and not quiet:
        tables.console.print(tables.show_run(run))


def print_comparison(
    compared: "Comparison", folder: Path, quiet: bool, as_json: bool, write: bool = True
) -> None:
    from dataclasses import asdict

    from potluck.cli import tables
    from potluck.report import write_report
    from potluck.report.columns import list_remarks
    from potluck.report.verdict import tell_verdict

    report = folder / "report.html"
    if write:
        write_report(compared, report)
    sentence = tell_verdict(compared)
    summary = {
        "name": compared.experiment.name,
        "target": compared.target,
        "algorithms": [asdict(row) for row in compared.rows],
        "runs": [run.summary for run in compared.runs],
        "tuning": None if compared.tuning is None else compared.tuning.summary(),
        "report": str(report),
        "verdict": sentence,
    }
    if not print_json(summary, as_json) and not quiet:
        tables.console.print(tables.show_comparison(compared))
        if list_remarks(compared):
            tables.console.print(tables.show_remarks(compared))
        echo(f"report: {report}")
        if sentence:
            tables.console.print(tables.show_sentence(sentence))
    if compared.failed:  # the others went on, and are told first
        raise RunError("; ".join(f"{name}: {why}" for name, why in compared.failed.items()))
