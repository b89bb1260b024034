"""A live page of runs, by itself or beside a command."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.core.echo import echo
from potluck.core.errors import ConfigError

if TYPE_CHECKING:
    pass

Watched = Annotated[
    bool,
    typer.Option("--watch", help="Serve a live page until the command ends, and print its address."),
]


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder of a run, a comparison or many of them.")
    ] = Path("runs"),
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Listen on this address; whoever reaches it can read the runs."),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(metavar="N", help="Listen on this port; else on a free one.", show_default=False),
    ] = None,
) -> None:
    """Show runs and comparisons while they run, on a page for your browser.

    Example: [bold]potluck watch runs/demo[/bold]

    The page shows how far each is, curves with bands over seeds, who is at work, online or lost, the life of
    groups, traffic, remarks and how the race stands; finished runs open their report. It only reads. DIR may
    appear later, and may be written by other machines. Ctrl-C ends it.
    """
    from potluck.watch.board import Board
    from potluck.watch.web import Page, open_socket, tell_address

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"DIR = {folder}: a file; name the folder of a run, or one that holds runs")
    if not folder.exists() and not folder.absolute().parent.is_dir():
        raise ConfigError(
            f"DIR = {folder}: neither it nor {folder.parent} is there; name a folder of runs, such as runs"
        )
    if port is not None and not 0 <= port < 1 << 16:
        raise ConfigError(f"--port {port}: no port; give one from 0 (any free one) to 65535, or leave it out")
    at = open_socket(host, port)
    page = Page(at, Board(folder), host)

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    echo(f"watching {folder}: {tell_address(at)} (Ctrl-C ends)")
    page.run()


@contextlib.contextmanager
def watching(wanted: bool, folder: Path) -> Iterator[None]:
    """A live page of a folder while something runs, if that is wanted."""
    if not wanted:
        yield
        return
    from potluck.watch.beside import watch_beside

    with watch_beside(folder) as address:
        echo(f"potluck: watch it at {address}", err=True)  # also with --quiet: who asked wants to know
        yield
