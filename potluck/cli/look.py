"""Look before training: who holds what, and who is how fast."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.options import AsJson, Code, File, Settings
from potluck.core.echo import echo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from potluck.core.codec import Json
    from potluck.report.canvas import Facts, ReportFigure

Picture = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Draw into this HTML file.", show_default=False)
]


def fleet(
    file: File, settings: Settings = None, code: Code = None, out: Picture = None, as_json: AsJson = False
) -> None:
    """Show how fast each device in the federation of FILE is, before anything is trained.

    Example: [bold]potluck fleet examples/demo.toml[/bold]

    The command prints a summary and draws it into runs/NAME-fleet.html unless --out names another.
    """
    from potluck.experiment import Experiment
    from potluck.experiment.build import build_federation
    from potluck.report.fleet_figures import draw_fleet, list_fleet_facts

    wanted = Experiment.from_file(file).with_overrides(settings or []).resolve()
    federation = build_federation(wanted)
    facts = list_fleet_facts(federation, wanted)
    _show(wanted.name, "fleet", facts, draw_fleet(federation, wanted), out, as_json)


def data(
    file: File, settings: Settings = None, code: Code = None, out: Picture = None, as_json: AsJson = False
) -> None:
    """Show what each device in the federation of FILE holds, before anything is trained.

    Example: [bold]potluck data examples/demo.toml[/bold]

    The command prints a summary and draws it into runs/NAME-data.html unless --out names another.
    """
    from dataclasses import asdict

    from potluck.data import count_rows
    from potluck.experiment import Experiment
    from potluck.experiment.build import build_federation, deal_rows, load_rows, make_shift
    from potluck.report.holding_figures import draw_data, list_data_facts

    wanted = Experiment.from_file(file).with_overrides(settings or []).resolve()
    rows = load_rows(wanted)
    count, federation = count_rows(len(rows), *deal_rows(wanted, rows)), build_federation(wanted, rows)
    facts = list_data_facts(federation, count, wanted.data.test_from, make_shift(wanted.data.shift))
    _show(wanted.name, "data", facts, draw_data(federation), out, as_json, {"count": asdict(count)})


def _show(
    name: str,
    what: str,
    facts: "Facts",
    figures: "list[ReportFigure]",
    out: Path | None,
    as_json: bool,
    more: "Mapping[str, Json] | None" = None,
) -> None:
    """Print facts (for machines, and more), and write them and their figures into a page."""
    from rich.table import Table

    from potluck.cli.tables import console
    from potluck.core.safe_files import write_file
    from potluck.report.page import list_facts, render_page

    place = out or Path("runs") / f"{name}-{what}.html"
    place.parent.mkdir(parents=True, exist_ok=True)
    page = render_page(name, f"{name}: {what}", "", list_facts(facts), figures)
    write_file(place.parent, place.name, page.encode())
    lines = [*facts, ("picture", str(place))]
    if as_json:
        echo(json.dumps({**dict(lines), **(more or {})}, indent=2))
        return
    grid = Table.grid(padding=(0, 2))
    for key, text in lines:
        grid.add_row(f"  {key}", text)
    console.print(grid)
