"""Reports: one HTML file that needs nothing else."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from potluck.experiment import Comparison

__all__ = ["write_report"]


def write_report(comparison: "Comparison", path: str | Path) -> Path:
    """Write a comparison's report; where it is."""
    from potluck.report.page import render  # here: plotly is slow to import

    place = Path(path)
    place.write_text(render(comparison), encoding="utf-8")
    return place
