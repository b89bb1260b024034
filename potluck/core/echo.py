"""All that is printed: no text of others (a name, a label, an error that quotes them) rules the terminal."""

from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from potluck.core.plain_text import show_controls


def echo(text: str, err: bool = False) -> None:
    """Print a text, its control characters written out."""
    typer.echo(show_controls(text), err=err)


class PlainConsole(Console):
    """Prints tables and live lines; text is taken as it is, without markup, links and controls."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:  # how live lines are drawn over
                yield segment
            else:
                yield Segment(show_controls(segment.text), segment.style)
