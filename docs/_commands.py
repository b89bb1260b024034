"""The command line as it describes itself, in Markdown."""

import re
from collections.abc import Iterator

import click
import typer
from _algorithms import plain, table

from potluck.cli.commands import app


def reference() -> str:
    """Every command: usage, what it does, arguments and options."""
    return "\n\n".join(_command(name, command) for name, command in commands())


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands by their full names, those of groups too."""
    yield from _below("potluck", typer.main.get_command(app))


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for key, each in inner.items():
        yield from _below(f"{name} {key}", each)


def _command(name: str, command: click.Command) -> str:
    ctx = click.Context(command, info_name=name)
    usage = " ".join((name, *command.collect_usage_pieces(ctx)))
    return "\n\n".join(
        (f"## {name}", f"```text\n{usage}\n```", _told(command.help or ""), _parameters(command))
    )


def _told(text: str) -> str:
    """Help with its example as a block."""
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", text.strip())]
    example = re.compile(r"^Example: \[bold\](.*)\[/bold\]$")
    return "\n\n".join(
        f"```sh\n{found[1]}\n```" if (found := example.match(p)) else re.sub(r"\[/?bold\]", "**", p)
        for p in paragraphs
    )


def _parameters(command: click.Command) -> str:
    rows = []
    for p in command.params:
        names = ", ".join(f"`{o}`" for o in p.opts) if isinstance(p, click.Option) else f"`{p.metavar}`"
        flag = isinstance(p, click.Option) and p.is_flag
        value = "" if flag or not isinstance(p, click.Option) else f" `{p.metavar or p.type.name.upper()}`"
        default = "" if flag or p.default in (None, "") else f"`{p.default}`"
        rows.append((names + value, default, plain(getattr(p, "help", None) or "")))
    return table(("what to give", "default", "meaning"), rows)
