"""Accuracy over time, traffic and rounds, and who gets to the target when."""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from potluck import metrics
from potluck.core.units import duration
from potluck.experiment import Comparison, Run
from potluck.metrics import Measurement
from potluck.report.canvas import (
    INK,
    fit_rows,
    make_figure,
    pick_colour,
    pick_dash,
    pick_size_unit,
    pick_time_unit,
)
from potluck.report.columns import tell_whole

Axis = Callable[[Run, Sequence[Measurement]], list[float]]


def draw_over_time(comparison: Comparison) -> go.Figure:
    """Accuracy over virtual time."""
    longest = max((run.summary["virtual_seconds"] for run in comparison.runs), default=0.0)
    size, unit = pick_time_unit(longest)
    figure = _draw_curves(
        comparison, lambda run, points: [p.time / size for p in points], f"virtual time ({unit})"
    )
    return _mark_target(figure, comparison)


def draw_over_bytes(comparison: Comparison) -> go.Figure:
    """Accuracy over traffic, up and down together."""

    most = max((run.summary["bytes_up"] + run.summary["bytes_down"] for run in comparison.runs), default=0.0)
    length, unit = pick_size_unit(most)

    def traffic(run: Run, points: Sequence[Measurement]) -> list[float]:
        sent: dict[float, float] = {}
        for metric in ("bytes_up", "bytes_down"):
            for p in metrics.totals(run.lines, metric):
                sent[p.time] = sent.get(p.time, 0.0) + p.value
        # Nothing is written before anything was sent.
        return [sent.get(p.time, 0.0) / length for p in points]

    return _mark_target(_draw_curves(comparison, traffic, f"traffic ({unit}, up and down)"), comparison)


def draw_over_rounds(comparison: Comparison) -> go.Figure:
    """Accuracy over rounds: how often the served model changed."""
    figure = _draw_curves(
        comparison, lambda run, points: [float(p.round) for p in points], "rounds (changes of the model)"
    )
    return _mark_target(figure, comparison)


def draw_time_to_target(comparison: Comparison) -> go.Figure | None:
    """How long each algorithm takes to the target, its mean and each seed's; None if nobody got there."""
    times = {name: [comparison.time(run) for run in comparison.of(name)] for name in comparison.algorithms}
    there = [when for each in times.values() for when in each if when is not None]
    if comparison.target is None or not there:
        return None
    size, unit = pick_time_unit(max(there))
    figure = make_figure(f"virtual time to {tell_whole(comparison.target)} ({unit})", "")
    for i, row in enumerate(comparison.rows):
        mean, reached = row.seconds_to_target.mean, [t for t in times[row.algorithm] if t is not None]
        missed = len(times[row.algorithm]) - len(reached)
        of = f"not reached by {missed} of {missed + len(reached)} seeds" if reached else "not reached"
        figure.add_bar(
            x=[0.0 if mean is None else mean / size],
            y=[row.algorithm],
            name=row.algorithm,
            orientation="h",
            marker_color=pick_colour(i),
            text=[f" {of if mean is None else duration(mean)}"],
            textposition="outside",
            cliponaxis=False,
            showlegend=False,
        )
        if len(times[row.algorithm]) > 1 and reached:
            figure.add_scatter(
                x=[when / size for when in reached],
                y=[row.algorithm] * len(reached),
                name=f"{row.algorithm}, each seed",
                mode="markers",
                marker={"color": "#ffffff", "size": 9, "line": {"color": "#1c1c1e", "width": 1.5}},
                showlegend=False,
            )
    longest = max(len(duration(when)) for when in there)
    room = 1 + 0.037 * longest  # times fit beside bars, on a phone too: a letter needs so much of its width
    figure.update_xaxes(range=[0, room * max(there) / size])
    return fit_rows(figure, comparison.algorithms, each=40)


def _draw_curves(comparison: Comparison, axis: Axis, title: str) -> go.Figure:
    figure = make_figure(title, "mean accuracy over devices (%)")
    for i, name in enumerate(comparison.algorithms):
        colour, dash, lines = pick_colour(i), pick_dash(i), []
        for run in comparison.of(name):
            points = metrics.series(run.lines, "accuracy_mean", run.summary["view"])
            lines.append((axis(run, points), [100 * p.value for p in points]))
        x, middle, low, high = find_band([line for line in lines if line[0]])
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
                line={"color": colour, "width": 2.5, "dash": dash},
                hovertemplate=f"{name}: %{{y:.1f}} % at %{{x:.4g}}<extra></extra>",
            )
        )
    return figure


def find_band(
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


def _mark_target(figure: go.Figure, comparison: Comparison) -> go.Figure:
    if comparison.target is not None:
        label = f"target {tell_whole(comparison.target)}"  # in the legend: beside the line it lies on curves
        figure.add_hline(
            100 * comparison.target, line_dash="dot", line_color=INK, name=label, showlegend=True
        )
    return figure
