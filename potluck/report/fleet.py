"""Who is how fast: compute against links, coloured by tier or by whom devices hang below."""

import numpy as np
import plotly.graph_objects as go

from potluck.experiment import Run
from potluck.report.canvas import blank, colour
from potluck.report.tiers import at_the_end

SHOWN = 12  # groups that colours and a legend can tell apart


def speeds(run: Run) -> go.Figure | None:
    """Every device, coloured by its edge or else its user; None without a portrait."""
    return _dots(run, belonging(run))


def by_tier(run: Run) -> go.Figure | None:
    """Every device, coloured by the tier that the algorithm gave it; None if it gave none."""
    told = {node: f"tier {tier}" for node, tier in at_the_end(run).items()}
    return _dots(run, told) if told else None


def belonging(run: Run) -> dict[int, str]:
    """Of each device: its edge, else its user; empty if there are none or too many."""
    crowd = run.devices
    if crowd is None:
        return {}
    for kind, owners in (("edge", crowd.get("edge", [])), ("user", crowd.get("user", []))):
        if 1 < len(set(owners)) <= SHOWN:
            pairs = zip(crowd["nodes"], owners, strict=True)
            return {node: f"{kind} {at}" if at >= 0 else f"no {kind}" for node, at in pairs}
    return {}


def _dots(run: Run, groups: dict[int, str]) -> go.Figure | None:
    """By compute and upload rate; the more rows, the larger."""
    crowd = run.devices
    if crowd is None:
        return None
    nodes = np.array(crowd["nodes"])
    compute, up = np.array(crowd["compute"]), np.array(crowd["up"]) / 1e6
    held = np.array(crowd["rows"]).sum(1)
    sizes = 6 + 14 * np.sqrt(held / max(1, held.max()))
    figure = blank("compute (ms a sample; right is slower)", "upload (Mbit/s; down is slower)")
    names = dict.fromkeys(groups.get(int(n), "no tier") if groups else "devices" for n in nodes)
    for i, name in enumerate(sorted(names)):
        mine = np.array([not groups or groups.get(int(n), "no tier") == name for n in nodes])
        figure.add_scatter(
            x=compute[mine],
            y=up[mine],
            name=name,
            mode="markers",
            marker={"color": colour(i), "opacity": 0.7, "size": sizes[mine]},
            text=[f"device {n}, {rows} rows" for n, rows in zip(nodes[mine], held[mine], strict=True)],
            hovertemplate="%{text}<br>%{x:.3g} ms a sample, %{y:.3g} Mbit/s<extra>" + name + "</extra>",
        )
    figure.update_layout(showlegend=len(names) > 1)
    figure.update_xaxes(type="log", dtick="D2")  # 1, 2, 5, 10
    figure.update_yaxes(type="log", dtick="D2")
    return figure
