"""One page about runs and comparisons that are there already."""

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.echo import echo
from potluck.cli.options import AsJson, Quiet
from potluck.cli.output import print_json
from potluck.core.errors import ConfigError


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders of runs or comparisons.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the page here, an HTML file.", show_default=False),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FOLDER", help="Also write the data of every figure here.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Draw runs and comparisons into one HTML file that needs no network.

    Example: [bold]potluck report runs/demo[/bold]

    Example: [bold]potluck report runs/demo-fedavg-1 runs/demo-fedbuff-1 --out both.html --csv data[/bold]

    The page shows accuracy over time, traffic and rounds; which devices are served well; the fleet and its
    data; the life of cohorts, edges and classes; and the parts of a round. Figures without data are left out.
    Each figure says what to look for, and has its data as CSV. Runs that differ only in their seed are drawn
    as one line with a band. Unfinished runs are drawn as far as they are.
    The page is DIR/report.html, or runs/report.html for several folders, unless --out names another.
    """
    from potluck.cli import tables
    from potluck.report import write_report
    from potluck.report.gather import gather, is_one_federation
    from potluck.report.verdict import tell_verdict

    if csv is not None and csv.exists() and not csv.is_dir():
        raise ConfigError(f"--csv {csv}: a file; name a folder")
    if out is not None and out.is_dir():
        raise ConfigError(f"--out {out}: a folder; name a file, such as {out / 'report.html'}")
    compared = gather(folders)
    place = out or (folders[0] if len(folders) == 1 else Path("runs")) / "report.html"
    place.parent.mkdir(parents=True, exist_ok=True)
    write_report(compared, place, csv)
    sentence = tell_verdict(compared) if is_one_federation(compared) else ""
    summary = {
        "report": str(place),
        "csv": None if csv is None else str(csv),
        "verdict": sentence,
        "runs": [run.summary for run in compared.runs],
    }
    if not print_json(summary, as_json) and not quiet:
        for run in compared.runs:
            if not run.finished:
                echo(f"{run.name}: unfinished, drawn as far as it is")
        echo(f"report: {place}")
        if csv is not None:
            echo(f"data: {csv}")
        if sentence:
            tables.console.print(tables.show_sentence(sentence))
