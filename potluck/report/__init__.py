"""Reports: one HTML file that needs nothing else."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from potluck.experiment import Comparison

__all__ = ["write_report"]


def write_report(comparison: "Comparison", path: str | Path, csv: str | Path | None = None) -> Path:
    """Write a report, one HTML file, and return its path.

    `comparison`: the runs to show. `path`: the file to write. `csv`: a folder for the data of every figure.
    """
    from potluck.core.safe_files import write_file
    from potluck.report.contents import draw_all  # here: plotly is slow to import
    from potluck.report.csv_files import save_all
    from potluck.report.page import render

    place, drawn = Path(path), draw_all(comparison)
    write_file(place.parent, place.name, render(comparison, drawn).encode())
    if csv is not None:
        save_all(comparison, drawn, Path(csv))
    return place
