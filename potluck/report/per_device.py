"""How well each device is served, not only all of them on average."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from potluck.experiment import Comparison, Run
from potluck.layers import find_source
from potluck.metrics import Measurement, headline
from potluck.report.canvas import (
    INK,
    fit_rows,
    make_figure,
    pick_colour,
    pick_dash,
    pick_shade,
    pick_time_unit,
)

# Of views' colours, the same inside all algorithms; others come after these.
PLACES = {"personal": 0, "edge": 1, "global": 2, "cohort": 3, "tier": 5}


def read_accuracies(run: Run) -> dict[int, float]:
    """Each honest device's accuracy at the last evaluation, in the view that the run is judged by."""
    found: dict[int, tuple[float, float]] = {}
    for r in run.lines:
        if r["metric"] == "accuracy" and "node" in r and r.get("view") == run.summary["view"]:
            found[r["node"]] = (r["time"], r["value"])
    last = max((time for time, _ in found.values()), default=0.0)
    attackers = next((set(r["value"]) for r in run.lines if r["metric"] == "attackers"), set())
    return {node: value for node, (time, value) in found.items() if time == last and node not in attackers}


def draw_devices(comparison: Comparison) -> go.Figure | None:
    """Devices in the order of their accuracy, the worst-served first; None if none were scored."""
    figure = make_figure("devices, worst served first (% of all)", "accuracy on own test data (%)")
    for i, name in enumerate(comparison.algorithms):
        curves = [
            c for run in comparison.of(name) if len(c := np.array(sorted(read_accuracies(run).values())))
        ]
        if curves:
            x, y = _average_curves(curves)
            figure.add_scatter(
                x=x,
                y=100 * y,
                name=name,
                mode="lines",
                line={"color": pick_colour(i), "width": 2.5, "shape": "hv", "dash": pick_dash(i)},
                hovertemplate=f"{name}: %{{y:.1f}} % at %{{x:.0f}} %<extra></extra>",
            )
    for low, high, label in ((0, 10, "worst 10 %"), (90, 100, "best 10 %")):
        figure.add_vrect(
            low,
            high,
            fillcolor=INK,
            opacity=0.12,
            line_width=0,
            annotation_text=label,
            annotation_position=f"bottom {'left' if low == 0 else 'right'}",
        )
    figure.update_xaxes(range=[0, 100])
    figure.update_yaxes(range=[-14, 105], tickvals=[0, 20, 40, 60, 80, 100])  # names of tenths below curves
    return figure if figure.data else None


def read_views(run: Run) -> dict[str, list[Measurement]]:
    """What each model that a device could use comes to, over time."""
    found: dict[str, list[Measurement]] = {}
    for r in run.lines:
        if r["metric"] == "accuracy_mean":
            found.setdefault(str(r.get("view")), []).append(Measurement(r["round"], r["time"], r["value"]))
    return found


def draw_views(run: Run, colour: str) -> go.Figure | None:
    """All views; that by which the run is judged in the algorithm's colour, and the one that it serves.

    None if there is but one.
    """
    found = read_views(run)
    if len(found) < 2 or len({tuple(points) for points in found.values()}) < 2:
        return None
    size, unit = pick_time_unit(run.summary["virtual_seconds"])
    judged = run.summary["view"]
    source = find_source(judged, [*found]) if judged is not None and judged in found else None
    own = (judged, source and source[1])
    figure = make_figure(f"virtual time ({unit})", "mean accuracy over devices (%)")
    for i, (view, points) in enumerate(found.items()):
        place = PLACES.get(view, max(PLACES.values()) + i)
        figure.add_scatter(
            x=[p.time / size for p in points],
            y=[100 * p.value for p in points],
            name=view,
            mode="lines",
            line={
                "color": colour if view in own else pick_shade(place),
                "dash": "solid" if view == judged else ("dash", "dot", "dashdot")[place % 3],
                "width": 2.5,
            },
            hovertemplate=f"{view}: %{{y:.1f}} % at %{{x:.4g}}<extra></extra>",
        )
    return figure


def _average_curves(curves: list[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sorted accuracies as one curve: the mean over seeds, at as many places as the fewest devices give."""
    x = np.linspace(0, 100, min(map(len, curves)))
    return x, np.mean([np.interp(x, np.linspace(0, 100, len(c)), c) for c in curves], axis=0)


def draw_spread(comparison: Comparison) -> go.Figure:
    """How accuracy is spread over devices at the end: worst tenth, mean, best tenth."""
    figure = make_figure("accuracy on own test data (%)", "")
    for i, row in enumerate(comparison.rows):
        ends = [row.worst.mean, row.accuracy.mean, row.best.mean]
        if None in ends:
            continue
        figure.add_trace(
            go.Scatter(
                x=[100 * (v or 0.0) for v in ends],
                y=[row.algorithm] * 3,
                name=row.algorithm,
                mode="lines+markers",
                line={"color": pick_colour(i), "width": 3},
                marker={
                    "color": pick_colour(i),
                    "size": [10, 16, 10],
                    "symbol": ["line-ns-open", "circle", "line-ns-open"],
                },
                text=["worst tenth", "mean", "best tenth"],
                hovertemplate="%{text}: %{x:.1f} %<extra>%{y}</extra>",
                showlegend=False,
            )
        )
    return fit_rows(figure, comparison.algorithms, each=50)


def read_at_shift(
    run: Run, share: float, key: str = "mean", view: str | None = None, kind: str = "unseen"
) -> float | None:
    """What a view (by default the headline) came to at one of `evaluate.shifts`.

    `key`: mean or worst10 of devices' accuracies, or the mean of another score by its name. None if it
    wasn't measured.
    """
    view = headline(run.lines) if view is None else view
    for r in run.lines:
        if r["metric"] != "accuracy_shifted" or r.get("view") != view:
            continue
        if (r["value"]["shift"], r["value"].get("kind", "unseen")) == (share, kind):
            found = r["value"].get(key)
            return found if isinstance(found, float | int) else None
    return None
