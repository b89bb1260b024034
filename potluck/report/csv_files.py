"""The data of a figure as CSV: what is drawn, trace by trace; nobody should read numbers off a screen."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from potluck.experiment import Comparison
from potluck.report.canvas import Drawn
from potluck.report.columns import columns


def sheet(figure: go.Figure) -> str:
    """One line a point: whose it is, where it lies, and what it is worth or says."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(
        ["trace", _title(figure, "xaxis", "x"), _title(figure, "yaxis", "y"), "from", "value", "text"]
    )
    for trace in figure.data:
        if trace.type == "heatmap":
            _heat(lines, trace)
        else:
            base, text = getattr(trace, "base", None), trace.text
            columns: tuple[Any, ...] = (trace.x, trace.y, base, None, text)
            length = max((len(c) for c in columns if _many(c)), default=0)
            for point in zip(*(_column(c, length) for c in columns), strict=True):
                lines.writerow([trace.name or "", *point])
    return out.getvalue()


def save(comparison: Comparison, drawn: Iterable[Drawn], folder: Path) -> None:
    """One file a figure, named by its title, and the table."""
    folder.mkdir(parents=True, exist_ok=True)
    told = columns(comparison)
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["algorithm", *(column.name for column in told)])
    lines.writerows(zip(comparison.algorithms, *(column.texts for column in told), strict=True))
    (folder / "table.csv").write_text(out.getvalue(), encoding="utf-8")
    for each in drawn:
        (folder / f"{slug(each.title)}.csv").write_text(sheet(each.figure), encoding="utf-8")


def slug(title: str) -> str:
    """A title as a part of an address or the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "figure"


def _title(figure: go.Figure, axis: str, otherwise: str) -> str:
    return figure.layout[axis].title.text or otherwise


def _heat(lines: Any, trace: Any) -> None:
    width, height = len(trace.z[0]) if len(trace.z) else 0, len(trace.z)
    across = list(trace.x) if trace.x is not None else list(range(width))
    along = list(trace.y) if trace.y is not None else list(range(height))
    for y, row in zip(along, trace.z, strict=True):
        for x, value in zip(across, row, strict=True):
            lines.writerow([trace.name or "", _plain(x), _plain(y), "", _plain(value), ""])


def _many(column: Any) -> bool:
    return column is not None and not isinstance(column, str | int | float)


def _column(column: Any, length: int) -> Sequence[Any]:
    if not _many(column):
        return ["" if column is None else column] * length
    return [_plain(value) for value in column] + [""] * (length - len(column))


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return "" if value is None else value
