"""Who holds what: rows by device and class, at first and after rows have moved."""

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from potluck.experiment import Run
from potluck.report.canvas import SHADES, blank

SHOWN = 100  # devices in a picture; more would be thinner than a line of text


class Held(NamedTuple):
    """Rows by device and class."""

    nodes: list[int]
    first: NDArray[np.int64]
    last: NDArray[np.int64] | None  # None: as at first


def held(run: Run) -> Held | None:
    """Of the devices that are shown: user by user if there are any, then in the order of their main class."""
    crowd = run.devices
    if crowd is None:
        return None
    first = np.array(crowd["rows"])
    last = None if crowd["rows_at_end"] is None else np.array(crowd["rows_at_end"])
    whose = np.array(crowd.get("user", [-1] * len(first)))
    order = np.lexsort((-first.max(1), first.argmax(1), whose))
    if len(order) > SHOWN:
        order = order[np.linspace(0, len(order) - 1, SHOWN).astype(int)]
    nodes = [int(crowd["nodes"][i]) for i in order]
    return Held(nodes, first[order], None if last is None else last[order])


def before(run: Run) -> go.Figure | None:
    """Who holds what at first."""
    found = held(run)
    if found is None:
        return None
    figure = blank("class", "device")
    figure.add_trace(_heat(found.nodes, found.first, "at first", int(found.first.max())))
    return _tall(figure, found)


def before_and_after(run: Run) -> go.Figure | None:
    """Who holds what at first and at the end, on one scale; None if nothing moved or changed."""
    found = held(run)
    if found is None or found.last is None:
        return None
    figure = make_subplots(1, 2, shared_yaxes=True, subplot_titles=("at first", "at the end"))
    figure.update_layout(blank("class", "device").layout)
    most = int(max(found.first.max(), found.last.max()))
    figure.add_trace(_heat(found.nodes, found.first, "at first", most), 1, 1)
    figure.add_trace(_heat(found.nodes, found.last, "at the end", most), 1, 2)
    figure.update_xaxes(title_text="class")
    figure.update_layout(margin_t=50)
    return _tall(figure, found)


def evened(run: Run) -> tuple[float, float] | None:
    """How far devices' mixes of classes lie from everybody's, at first and at the end: 0 alike, 1 apart."""
    found = held(run)
    if found is None or found.last is None:
        return None
    return skew(found.first), skew(found.last)


def skew(table: NDArray[np.int64]) -> float:
    """Mean distance (total variation) of devices' mixes from that of all; empty devices don't count."""
    some = table[table.sum(1) > 0]
    if not len(some):
        return 0.0
    share, whole = some / some.sum(1, keepdims=True), some.sum(0) / some.sum()
    return float(0.5 * np.abs(share - whole).sum(1).mean())


def _heat(nodes: list[int], table: NDArray[np.int64], name: str, most: int) -> go.Heatmap:
    return go.Heatmap(
        z=table.tolist(),
        x=[str(c) for c in range(table.shape[1])],
        y=[f"device {n}" for n in nodes],
        name=name,
        zmin=0,
        zmax=most,
        colorscale=SHADES,
        colorbar={"title": {"text": "rows"}},
        hovertemplate="%{y}, class %{x}: %{z} rows<extra>" + name + "</extra>",
    )


def _tall(figure: go.Figure, found: Held) -> go.Figure:
    figure.update_layout(height=min(900, 180 + 14 * len(found.nodes)))
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(showgrid=False, type="category")
    return figure
