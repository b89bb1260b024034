"""The data of a figure as CSV: what is drawn, trace by trace; nobody should read numbers off a screen."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import plotly.graph_objects as go

from potluck.core.safe_files import write_file
from potluck.experiment import Comparison
from potluck.report.canvas import ReportFigure
from potluck.report.columns import GLOBAL_TEST, list_columns

Cell: TypeAlias = "str | int | float | np.generic | None"
Column: TypeAlias = "Sequence[Cell] | np.ndarray | str | int | float | None"  # one value: of every point


def write_figure(figure: go.Figure) -> str:
    """One line a point: whose it is, where it lies, and what it is worth or says."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(
        [
            "trace",
            _find_title(figure, "xaxis", "x"),
            _find_title(figure, "yaxis", "y"),
            "from",
            "value",
            "text",
        ]
    )
    for trace in figure.data:
        if trace.type == "heatmap":
            lines.writerows(_list_heatmap(trace))
        else:
            base, text = getattr(trace, "base", None), trace.text
            columns: tuple[Column, ...] = (trace.x, trace.y, base, None, text)
            length = max(
                (len(c) for c in columns if c is not None and not isinstance(c, str | int | float)), default=0
            )
            for point in zip(*(_fill_column(c, length) for c in columns), strict=True):
                lines.writerow([trace.name or "", *point])
    return out.getvalue()


def save_all(comparison: Comparison, drawn: Iterable[ReportFigure], folder: Path) -> None:
    """One file a figure, named by its title, and the table."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = list_columns(comparison)
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["algorithm", *(column.name for column in columns), f"{GLOBAL_TEST} of"])
    tested = comparison.tested.values()
    lines.writerows(zip(comparison.algorithms, *(column.texts for column in columns), tested, strict=True))
    write_file(folder, "table.csv", out.getvalue().encode())
    for each in drawn:
        write_file(folder, f"{each.slug}.csv", write_figure(each.figure).encode())


def _find_title(figure: go.Figure, axis: str, otherwise: str) -> str:
    return figure.layout[axis].title.text or otherwise


def _list_heatmap(trace: go.Heatmap) -> Iterator[list[Cell]]:
    width, height = len(trace.z[0]) if len(trace.z) else 0, len(trace.z)
    across = list(trace.x) if trace.x is not None else list(range(width))
    along = list(trace.y) if trace.y is not None else list(range(height))
    for y, row in zip(along, trace.z, strict=True):
        for x, value in zip(across, row, strict=True):
            yield [trace.name or "", _unwrap(x), _unwrap(y), "", _unwrap(value), ""]


def _fill_column(column: Column, length: int) -> Sequence[Cell]:
    if column is None or isinstance(column, str | int | float):
        return ["" if column is None else column] * length
    return [_unwrap(value) for value in column] + [""] * (length - len(column))


def _unwrap(value: Cell) -> Cell:
    value = value.item() if isinstance(value, np.generic) else value
    return "" if value is None else value
