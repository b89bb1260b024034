"""What all figures share: colours, axes, units of time, and what a page says with each of them."""

import re
from collections.abc import Iterable, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

import plotly.graph_objects as go

from potluck.core.colours import COLOURS, OTHERS

GRID, INK = "rgba(128,128,128,0.25)", "#808080"  # until the page knows whether it is light or dark
SHADES = "Cividis"  # of heat maps: one order of brightness, for all eyes


LOOKED_AT = 2000  # devices whose rows are counted before training: a million would take minutes

CLOSE = 5  # times apart: values that are closer fit a linear axis

Facts = list[tuple[str, str]]


class ReportFigure(NamedTuple):
    """A figure, its title, and what to look for.

    `group`: the heading that it stands below. `of`: the one algorithm that it is about; of several with one
    title and group, a page shows the one that its reader chooses.
    """

    title: str
    figure: go.Figure
    hint: str
    group: str = ""
    of: str = ""

    @property
    def slug(self) -> str:
        """Its name in addresses and of files."""
        return make_slug(f"{self.title} {self.of}")


def make_slug(title: str) -> str:
    """A title as a part of an address or the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "figure"


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
        xaxis={"title": {"text": x, "standoff": 8}, "gridcolor": GRID, "zeroline": False, "automargin": True},
        yaxis={"title": {"text": y, "standoff": 8}, "gridcolor": GRID, "zeroline": False, "automargin": True}
        | {"ticks": "outside", "ticklen": 4, "tickcolor": "rgba(0,0,0,0)"},  # room between names and bars
    )
    return figure


def pick_colour(i: int) -> str:
    """Of an algorithm, by its place in the comparison."""
    return COLOURS[i % len(COLOURS)]


def pick_dash(i: int) -> str:
    """Of an algorithm, so that a ninth one isn't taken for the first."""
    return ("solid", "dash", "dot", "dashdot")[i // len(COLOURS) % 4]


def pick_shade(i: int) -> str:
    """Of anything that isn't an algorithm."""
    return OTHERS[i % len(OTHERS)]


def make_logarithmic(axis: go.layout.XAxis | go.layout.YAxis, values: Iterable[float]) -> None:
    """A log axis whose every label is a number, not a digit: 20, not 2. Linear where values are close."""
    there = [value for value in values if value > 0]
    if not there or max(there) < CLOSE * min(there):
        return
    low, high = log10(min(there)), log10(max(there))
    steps = (1, 2, 5) if high - low < 2 else (1, 3) if high - low < 3 else (1,)
    ticks = [step * 10.0**decade for decade in range(floor(low) - 1, ceil(high) + 1) for step in steps]
    axis.update(
        type="log",
        range=[low - 0.05 * (high - low) - 0.05, high + 0.05 * (high - low) + 0.05],
        tickvals=ticks,
        ticktext=[f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in ticks],
    )


def pick_time_unit(longest: float) -> tuple[int, str]:
    """The unit in which times up to so many seconds are read: its length and its name."""
    units = ((86_400, "days"), (3600, "hours"), (60, "minutes"))
    return next(((length, name) for length, name in units if longest >= 2 * length), (1, "seconds"))


def pick_size_unit(most: float) -> tuple[float, str]:
    """The unit in which so many bytes are read: its length and its name."""
    units = ((1e9, "GB"), (1e6, "MB"))
    return next(((length, name) for length, name in units if most >= 2 * length), (1e3, "kB"))


def fit_rows(figure: go.Figure, names: Sequence[str], least: int = 140, each: int = 26) -> go.Figure:
    """Height for so many named rows, the first on top."""
    figure.update_layout(height=max(220, least + each * len(names)))
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=list(reversed(names)), showgrid=False
    )
    return figure
