"""Look before training: who holds what, and who is how fast."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.options import File, Json, Settings

if TYPE_CHECKING:
    from potluck.report.crowd import Facts

Picture = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The picture, an HTML file.", show_default=False)
]


def fleet(file: File, settings: Settings = None, out: Picture = None, as_json: Json = False) -> None:
    """Show who is how fast in the federation of FILE, before anything is trained.

    Example: [bold]potluck fleet examples/demo.toml[/bold]

    Prints a summary and draws it into runs/NAME-fleet.html unless told otherwise.
    """
    from potluck.experiment import Experiment
    from potluck.experiment.build import build_federation
    from potluck.report.crowd import fleet_facts, fleet_page

    wanted = Experiment.from_file(file).with_overrides(settings or []).resolve()
    federation = build_federation(wanted)
    place = out or Path("runs") / f"{wanted.name}-fleet.html"
    _show(fleet_facts(federation, wanted), fleet_page(federation, wanted), place, as_json)


def data(file: File, settings: Settings = None, out: Picture = None, as_json: Json = False) -> None:
    """Show who holds what in the federation of FILE, before anything is trained.

    Example: [bold]potluck data examples/demo.toml[/bold]

    Prints a summary and draws it into runs/NAME-data.html unless told otherwise.
    """
    from potluck.experiment import Experiment
    from potluck.experiment.build import build_federation
    from potluck.report.crowd import data_facts, data_page

    wanted = Experiment.from_file(file).with_overrides(settings or []).resolve()
    federation = build_federation(wanted)
    place = out or Path("runs") / f"{wanted.name}-data.html"
    _show(data_facts(federation), data_page(federation, wanted), place, as_json)


def _show(facts: "Facts", page: str, place: Path, as_json: bool) -> None:
    from rich.table import Table

    from potluck.cli.tables import console

    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(page, encoding="utf-8")
    told = [*facts, ("picture", str(place))]
    if as_json:
        typer.echo(json.dumps(dict(told), indent=2))
        return
    grid = Table.grid(padding=(0, 2))
    for key, text in told:
        grid.add_row(f"  {key}", text)
    console.print(grid)
