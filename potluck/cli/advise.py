"""Which system suits a federation: measured before anything is trained, and tried out if that is wanted."""

from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.options import AsJson, Code, File, Quiet, Settings
from potluck.cli.output import open_screen, print_json

WIDTH = 100  # columns, at most: sentences across a wide screen are hard to read

if TYPE_CHECKING:
    from rich.console import RenderableType

    from potluck.advice.advised import Advised
    from potluck.advice.pilot import Pilot, Trial
    from potluck.core.advice import Measured


def advise(
    file: File,
    pilot: Annotated[
        bool, typer.Option("--pilot", help="Also try the advice, in short runs on validation rows.")
    ] = False,
    settings: Settings = None,
    code: Code = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Say which system should help in the federation of FILE, why, and whether plain FedAvg is enough.

    Example: [bold]potluck advise examples/demo.toml --pilot[/bold]

    Potluck measures the rows, labels and machines of the federation. It writes nothing.
    Where several inequalities are measured, it also names systems that answer them together, as layers.
    """
    from potluck import experiment as ex
    from potluck.advice.advised import advise as find_advice
    from potluck.cli import tables

    wanted = ex.Experiment.from_file(file).with_overrides(settings or [])
    advised = find_advice(wanted, pilot=pilot, progress=open_screen(quiet))
    if not print_json(advised.summary(), as_json) and not quiet:
        for part in _show(advised):
            tables.console.print(part, width=min(WIDTH, tables.console.width))


def list_facts(m: "Measured") -> list[tuple[str, str]]:
    """What was measured, for people."""
    from potluck.core.units import duration, percent, size

    found, speeds, memory = m.conflict, m.speeds, m.memory
    some = "" if len(m.looked_at) == m.devices else f"; rows of {len(m.looked_at):,} were looked at"
    lines = [
        ("devices", f"{m.devices:,}, {percent(speeds.online)} online on average{some}"),
        ("labels", f"skew {m.labels.skew:.2f} beyond chance; Gini of sizes {m.labels.gini:.2f}"),
        ("unseen classes", f"{percent(m.labels.unseen)} of test rows, beyond chance"),
        (
            "groups",
            f"best of {found.groups}: one probe {percent(found.pooled)}, one a group {percent(found.apart)}, "
            f"by chance {100 * found.chance:+.1f} points",
        ),
        (
            "speed",
            f"spread of compute {speeds.compute:.1f}x, of links {speeds.links:.1f}x (95th over 5th %)",
        ),
        (
            "a task takes",
            f"{duration(speeds.task_seconds)} median; 95th % {speeds.straggling:.1f}x that",
        ),
        ("memory", f"training takes {size(memory.needed)}; {percent(memory.short)} of devices have less"),
    ]
    if m.users is not None:
        u = m.users
        lines.append(
            ("users", f"{u.several:,} with several devices; skew within {u.skew:.2f}, spread {u.spread:.1f}x")
        )
    if m.edges is not None:
        e = m.edges
        lines.append(("edges", f"{e.count}, idle {percent(e.idle)}, straggling {e.straggling:.1f}x"))
    return lines


def _show(advised: "Advised") -> "list[RenderableType]":
    from rich.table import Table
    from rich.text import Text

    from potluck.core.advice import NO_REASON

    grid = Table.grid(padding=(0, 2))
    for key, text in list_facts(advised.measured):
        grid.add_row(f"  {key}", Text(text, overflow="fold"))
    table = Table("system", "verdict", "score", "why, and what was seen", box=None, padding=(0, 2, 0, 0))
    for a in advised.verdict.advice:
        table.add_row(a.algorithm, a.verdict, f"{a.score:.2f}", Text(a.why))
        if a.verdict != NO_REASON:
            table.add_row("", "", "", Text(f"seen: {a.evidence}", style="dim"))
    shown: list[RenderableType] = [
        Text(advised.headline, style="bold"),
        *_show_stack(advised),
        grid,
        "",
        table,
    ]
    return shown if advised.pilot is None else [*shown, "", *_show_pilot(advised.pilot)]


def _show_stack(advised: "Advised") -> "list[RenderableType]":
    """The layers that answer several inequalities at once, why each, and how a file asks for them."""
    from rich.table import Table
    from rich.text import Text

    from potluck.experiment.toml import write

    stack = advised.verdict.stack
    if stack is None:
        return []
    grid = Table.grid(padding=(0, 2))
    for name, why in stack.why.items():
        grid.add_row(f"  {name}", Text(why, overflow="fold"))
    tables = write({"layer": {name: dict(table) for name, table in stack.tables.items() if table}})
    head = Text(f"or several systems as layers around fedavg: {stack.line}", style="bold")
    return [head, grid, Text(indent(tables.rstrip(), "  ")), ""]


def _show_pilot(tried: "Pilot") -> "list[RenderableType]":
    from rich.table import Table
    from rich.text import Text

    from potluck.core.units import percent

    table = Table("pilot", "last third", "at the end", "rounds", "", box=None, padding=(0, 2, 0, 0))
    for t in tried.trials:
        table.add_row(t.algorithm, percent(t.late), percent(t.accuracy), str(t.rounds), Text(t.failed))
    remarks = [Text(f"  {remark}") for remark in tried.remarks]
    told = [Text(tell_outcome(tried), style="bold")]
    if tried.stack is not None:
        t = tried.stack
        table.add_row(t.algorithm, percent(t.late), percent(t.accuracy), str(t.rounds), Text(t.failed))
        told.append(Text(tell_stack(t, tried), style="bold"))
    return [table, *remarks, *told]


def tell_stack(stack: "Trial", tried: "Pilot") -> str:
    """How the layers did beside the best algorithm alone, in a line."""
    late, name = max(((t.late, t.algorithm) for t in tried.trials if t.late is not None), default=(None, ""))
    if stack.late is None or late is None:
        return f"as layers, {stack.algorithm} couldn't be piloted"
    points = f"{100 * (stack.late - late):+.1f} points"
    return f"as layers, {stack.algorithm}: {points} beside {name}, the best without"


def tell_outcome(tried: "Pilot") -> str:
    """Whether pilots agree with the advice, in a line."""
    from potluck.core.units import duration

    given = tried.wanted or "fedavg"
    span = f"{duration(tried.trials[0].seconds)} of virtual time each, {100 * tried.margin:.1f} points margin"
    if tried.agrees is None:
        return f"{given} couldn't be piloted"
    if tried.agrees:
        return f"pilots agree with the advice ({span})"
    return f"pilots don't agree: {given} was advised, {tried.best} did best ({span})"
