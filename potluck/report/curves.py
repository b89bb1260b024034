"""The figures of a comparison, as plotly figures."""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from potluck import metrics
from potluck.experiment import Comparison, Run
from potluck.metrics import Point

# Okabe and Ito's colours: told apart by colour-blind readers, legible on white and on black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7AE6", "#7F8C8D")
GRID, INK = "rgba(128,128,128,0.25)", "#808080"  # until the page knows whether it is light or dark

Axis = Callable[[Run, Sequence[Point]], list[float]]


def over_time(comparison: Comparison) -> go.Figure:
    """Accuracy over virtual time."""
    longest = max((run.summary["virtual_seconds"] for run in comparison.runs), default=0.0)
    size, unit = next(
        ((s, u) for s, u in ((86_400, "days"), (3600, "hours"), (60, "minutes")) if longest >= 2 * s),
        (1, "seconds"),
    )
    figure = _curves(
        comparison, lambda run, points: [p.time / size for p in points], f"virtual time ({unit})"
    )
    return _with_target(figure, comparison)


def over_bytes(comparison: Comparison) -> go.Figure:
    """Accuracy over traffic, up and down together."""

    def traffic(run: Run, points: Sequence[Point]) -> list[float]:
        sent: dict[float, float] = {}
        for metric in ("bytes_up", "bytes_down"):
            for p in metrics.totals(run.lines, metric):
                sent[p.time] = sent.get(p.time, 0.0) + p.value
        # Nothing is written before anything was sent.
        return [sent.get(p.time, 0.0) / 1e6 for p in points]

    return _with_target(_curves(comparison, traffic, "traffic (MB, up and down)"), comparison)


def over_rounds(comparison: Comparison) -> go.Figure:
    """Accuracy over rounds: how often the served model changed."""
    figure = _curves(
        comparison, lambda run, points: [float(p.round) for p in points], "rounds (changes of the model)"
    )
    return _with_target(figure, comparison)


def over_devices(comparison: Comparison) -> go.Figure:
    """How accuracy is spread over devices at the end: worst tenth, mean, best tenth."""
    figure = blank("accuracy on devices' own test data (%)", "")
    for colour, row in zip(_colours(comparison), comparison.rows, strict=True):
        ends = [row.worst.mean, row.accuracy.mean, row.best.mean]
        if None in ends:
            continue
        figure.add_trace(
            go.Scatter(
                x=[100 * (v or 0.0) for v in ends],
                y=[row.algorithm] * 3,
                name=row.algorithm,
                mode="lines+markers",
                line={"color": colour, "width": 3},
                marker={
                    "color": colour,
                    "size": [10, 16, 10],
                    "symbol": ["line-ns-open", "circle", "line-ns-open"],
                },
                text=["worst tenth", "mean", "best tenth"],
                hovertemplate="%{text}: %{x:.1f} %<extra>%{y}</extra>",
                showlegend=False,
            )
        )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_layout(height=140 + 50 * len(comparison.rows))
    return figure


def _curves(comparison: Comparison, axis: Axis, title: str) -> go.Figure:
    figure = blank(title, "mean accuracy over devices (%)")
    for colour, name in zip(_colours(comparison), comparison.algorithms, strict=True):
        lines = []
        for run in comparison.of(name):
            points = metrics.series(run.lines, "accuracy_mean", run.summary["view"])
            lines.append((axis(run, points), [100 * p.value for p in points]))
        x, middle, low, high = _band([line for line in lines if line[0]])
        if len(lines) > 1:
            figure.add_trace(
                go.Scatter(
                    x=[*x, *reversed(x)],
                    y=[*high, *reversed(low)],
                    fill="toself",
                    fillcolor=colour,
                    opacity=0.2,
                    line={"width": 0},
                    hoverinfo="skip",
                    legendgroup=name,
                    showlegend=False,
                    name=f"{name}, all seeds",
                )
            )
        figure.add_trace(
            go.Scatter(
                x=x,
                y=middle,
                name=name,
                legendgroup=name,
                mode="lines",
                line={"color": colour, "width": 2.5},
                hovertemplate=f"{name}: %{{y:.1f}} % at %{{x:.4g}}<extra></extra>",
            )
        )
    return figure


def _band(
    lines: Sequence[tuple[list[float], list[float]]],
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Mean, least and greatest of several curves (straight between their points), as far as all go."""
    if len(lines) < 2:
        x, y = lines[0] if lines else ([], [])
        return x, y, y, y
    end = min(max(x) for x, _ in lines)
    places = sorted({place for x, _ in lines for place in x if place <= end})
    table = np.array([np.interp(places, x, y) for x, y in lines])
    return places, table.mean(0).tolist(), table.min(0).tolist(), table.max(0).tolist()


def blank(x: str, y: str) -> go.Figure:
    """An empty figure with labelled axes, in colours that the page repaints."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": INK, "family": "system-ui, sans-serif", "size": 14},
        margin={"l": 70, "r": 20, "t": 20, "b": 60},
        height=420,
        hovermode="closest",
        legend={"orientation": "h", "y": 1.08},
        xaxis={"title": {"text": x}, "gridcolor": GRID, "zeroline": False},
        yaxis={"title": {"text": y}, "gridcolor": GRID, "zeroline": False},
    )
    return figure


def _with_target(figure: go.Figure, comparison: Comparison) -> go.Figure:
    if comparison.target is not None:
        label = f"target {100 * comparison.target:.1f} %"
        figure.add_hline(100 * comparison.target, line_dash="dot", line_color=INK, annotation_text=label,
                         annotation_position="bottom right")  # fmt: skip
    return figure


def _colours(comparison: Comparison) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(comparison.algorithms))]
