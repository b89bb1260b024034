"""Bytes by tier of the hierarchy: what crosses the links of devices, and what those of edges or users."""

import plotly.graph_objects as go

from potluck import metrics
from potluck.experiment import Comparison
from potluck.report.canvas import blank, colour, rows_of


def by_tier(comparison: Comparison) -> go.Figure | None:
    """Megabytes up and down across each tier's links, mean over seeds; None if nothing was sent."""
    sent: dict[tuple[str, str], dict[str, float]] = {}
    for name in comparison.algorithms:
        runs = comparison.of(name)
        for way in ("up", "down"):
            for run in runs:
                for tier, total in metrics.groups(run.lines, f"bytes_{way}").items():
                    table = sent.setdefault((tier, way), {})
                    table[name] = table.get(name, 0.0) + total / len(runs)
    figure = blank("traffic (MB)", "")
    for i, ((tier, way), table) in enumerate(sent.items()):
        if any(table.values()):
            figure.add_bar(
                x=[table.get(name, 0.0) / 1e6 for name in comparison.algorithms],
                y=comparison.algorithms,
                name=f"{tier}, {way}",
                orientation="h",
                marker_color=colour(i),
                hovertemplate="%{y}: %{x:.4g} MB<extra>" + f"{tier}, {way}" + "</extra>",
            )
    figure.update_layout(barmode="stack", showlegend=True)
    return rows_of(figure, comparison.algorithms, each=40) if figure.data else None
