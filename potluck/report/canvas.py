"""What all figures share: colours, axes, units of time, and what a page says with each of them."""

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from potluck.core.colours import COLOURS

GRID, INK = "rgba(128,128,128,0.25)", "#808080"  # until the page knows whether it is light or dark
SHADES = "Cividis"  # of heat maps: one order of brightness, for all eyes


LOOKED_AT = 2000  # devices whose rows are counted before training: a million would take minutes

Facts = list[tuple[str, str]]


class ReportFigure(NamedTuple):
    """A figure, its title, and what to look for."""

    title: str
    figure: go.Figure
    hint: str


def make_figure(x: str, y: str) -> go.Figure:
    """An empty figure with labelled axes, in colours that the page repaints."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": INK, "family": "system-ui, sans-serif", "size": 14},
        margin={"l": 70, "r": 20, "t": 30, "b": 60},
        height=420,
        hovermode="closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": INK, "activecolor": COLOURS[0]},
        xaxis={"title": {"text": x}, "gridcolor": GRID, "zeroline": False, "automargin": True},
        yaxis={"title": {"text": y}, "gridcolor": GRID, "zeroline": False, "automargin": True},
    )
    return figure


def pick_colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def pick_time_unit(longest: float) -> tuple[int, str]:
    """The unit in which times up to so many seconds are read: its length and its name."""
    units = ((86_400, "days"), (3600, "hours"), (60, "minutes"))
    return next(((length, name) for length, name in units if longest >= 2 * length), (1, "seconds"))


def fit_rows(figure: go.Figure, names: Sequence[str], least: int = 140, each: int = 26) -> go.Figure:
    """Height for so many named rows, the first on top."""
    figure.update_layout(height=max(220, least + each * len(names)))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=list(reversed(names)))
    return figure
