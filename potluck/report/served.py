"""What a layer that serves brings: every view with it beside the same view without, at the end of a run."""

from typing import NamedTuple

import plotly.graph_objects as go

from potluck.experiment import Comparison
from potluck.layers import find_source
from potluck.metrics import Estimate
from potluck.report.canvas import fit_rows, make_figure, pick_colour
from potluck.report.per_device import read_views

SPAN = 10.0  # points that the axis shows at least: a small difference should look small
MOST = 6  # differences that a caption tells


class Pair(NamedTuple):
    """Mean accuracies of one algorithm's view, over its seeds."""

    algorithm: str
    view: str  # without the layer
    without: float
    served: float  # with it

    @property
    def points(self) -> float:
        return 100 * (self.served - self.without)


def list_layers(comparison: Comparison) -> list[str]:
    """Those that any view is served by."""
    runs = ([*read_views(run)] for run in comparison.runs)
    found = (find_source(view, views) for views in runs for view in views)
    return list(dict.fromkeys(layer for layer, _ in filter(None, found)))


def read_pairs(comparison: Comparison, layer: str) -> list[Pair]:
    """Of every algorithm every view that there is with this layer and without."""
    found = []
    for name in comparison.algorithms:
        ends = [
            {view: points[-1].value for view, points in read_views(run).items()}
            for run in comparison.of(name)
        ]
        for view in ends[0]:
            by, without = find_source(view, [*ends[0]]) or (None, view)
            if by != layer:
                continue
            means = [Estimate.of([end.get(each) for end in ends]).mean for each in (without, view)]
            if means[0] is not None and means[1] is not None:
                found.append(Pair(name, without, means[0], means[1]))
    return found


def draw_served(comparison: Comparison, layer: str) -> go.Figure | None:
    """A hollow dot without the layer, a filled one with it; None if no view is served by it."""
    pairs = read_pairs(comparison, layer)
    names = _name_rows(pairs)
    figure = make_figure("mean accuracy at the end (%)", "")
    for pair, name in zip(pairs, names, strict=True):
        colour = pick_colour(comparison.algorithms.index(pair.algorithm))
        figure.add_scatter(
            x=[100 * pair.without, 100 * pair.served],
            y=[name, name],
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 3},
            marker={"color": colour, "size": [13, 14], "symbol": ["circle-open", "circle"], "opacity": 1},
            text=[f"without {layer}", f"with {layer}"],
            hovertemplate="%{text}: %{x:.1f} %<extra>%{y}</extra>",
            showlegend=False,
        )
    if not pairs:
        return None
    ends = [100 * end for pair in pairs for end in (pair.without, pair.served)]
    space = max(1.0, (SPAN - max(ends) + min(ends)) / 2)
    figure.update_xaxes(range=[min(ends) - space, max(ends) + space])
    return fit_rows(figure, names, each=50)


def tell_served(comparison: Comparison, layer: str) -> str:
    """What the layer brought or cost, in points."""
    pairs = read_pairs(comparison, layer)
    told = [f"{pair.points:+.1f} ({name})" for pair, name in zip(pairs, _name_rows(pairs), strict=True)]
    more = f" and {len(told) - MOST} more" if len(told) > MOST else ""
    return (
        f"Look at whether the filled dot, with the layer “{layer}”, lies right of the hollow one, the same "
        "models without it: left of it, the layer costs. "
        f"In percentage points: {', '.join(told[:MOST])}{more}."
    )


def _name_rows(pairs: list[Pair]) -> list[str]:
    """By algorithm; where one has several views, by these as well."""
    algorithms = [pair.algorithm for pair in pairs]
    return [
        f"{pair.algorithm}: {pair.view}" if algorithms.count(pair.algorithm) > 1 else pair.algorithm
        for pair in pairs
    ]
