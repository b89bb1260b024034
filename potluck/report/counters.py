"""How often each class was trained (ClassTer's counters), over time."""

import plotly.graph_objects as go

from potluck.experiment import Run
from potluck.metrics import series
from potluck.report.canvas import SHADES, blank, clock

COLUMNS = 200  # moments in a picture


def classes(run: Run) -> go.Figure | None:
    """Updates of each class, as a share of the most trained one's; None if classes weren't counted."""
    every = [r for r in run.lines if r["metric"] == "updates" and isinstance(r["value"], list)]
    if not every:
        return None
    step = -(-len(every) // COLUMNS)
    some = every[::-1][::step][::-1]  # the last one is always there
    size, unit = clock(some[-1]["time"])
    figure = blank(f"virtual time ({unit})", "class")
    counts = [r["value"] for r in some]
    names = [str(c) for c in range(len(counts[0]))]
    figure.add_heatmap(
        x=[r["time"] / size for r in some],
        y=names,
        z=[[mine[c] / max(1, *mine) for mine in counts] for c in range(len(names))],
        customdata=[[mine[c] for mine in counts] for c in range(len(names))],
        name="share of the most trained class's updates",
        zmin=0,
        zmax=1,
        colorscale=SHADES,
        colorbar={"title": {"text": "of the most"}, "tickformat": ".0%"},
        hovertemplate="class %{y}: %{customdata} updates<extra></extra>",
    )
    figure.update_yaxes(type="category", showgrid=False)
    return figure


def imbalance(run: Run) -> float | None:
    """How unevenly classes were trained in the end, as the algorithm itself measures it."""
    found = series(run.lines, "imbalance")
    return found[-1].value if found else None
