"""Public data sets, downloaded when asked for and never otherwise."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from typer.core import TyperGroup

from potluck.cli import look
from potluck.cli.echo import PlainConsole, echo
from potluck.cli.options import Quiet
from potluck.cli.output import explain_resuming

if TYPE_CHECKING:
    from potluck.data.sources.fetch import Watch


class _FileOrCommand(TyperGroup):
    """`potluck data FILE` is short for `potluck data show FILE`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = args and (args[0] in self.commands or args[0].startswith("-"))
        return super().resolve_command(ctx, args if known else ["show", *args])


data = typer.Typer(
    help="Show what each device of FILE holds (potluck data FILE), or get public data sets.",
    no_args_is_help=True,
    cls=_FileOrCommand,
)
data.command("show")(look.data)


@data.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The set, see above.", show_default=False)],
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Instead of the user's cache; data.root finds it.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Download a public data set from its usual place, and verify it.

    Example: [bold]potluck data get mnist[/bold]

    There are mnist, qmnist (who wrote MNIST's digits), fashion-mnist, cifar-10, cifar-100 and har.

    What was interrupted goes on where it stopped. Experiments find the files by themselves: in data.root
    alone if it's given, else in $POTLUCK_DATA, ./data, the working directory and the user's cache.
    """
    from potluck.data.sources.fetch import fetch, find_folder, find_public

    found, folder = find_public(name), find_folder(name, root)
    again = f"potluck data get {name}" + ("" if root is None else f" --root {shlex.quote(str(root))}")
    with explain_resuming(folder, again):
        for file in found.files:
            with _show_bar(file.name, quiet) as watch:
                new = fetch(file, folder, watch)
            if not quiet:
                echo(f"{file.name}: {'downloaded' if new else 'there already'}, verified", err=True)
    if not quiet:
        hint = "" if root is None else f"; read it with data.root = {str(root)!r}"
        echo(f"{name}: {found.about}, in {folder}{hint} (terms: {found.home})")


@contextmanager
def _show_bar(name: str, quiet: bool) -> "Iterator[Watch | None]":
    """A bar on a terminal, nothing elsewhere."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = PlainConsole(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(16), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as live:
        task = live.add_task(name, total=None)
        yield lambda have, total: live.update(task, completed=have, total=total)
