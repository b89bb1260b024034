"""Tiers of devices that an algorithm makes itself: who is in which, and how that changes."""

from collections.abc import Iterator

import plotly.graph_objects as go

from potluck.core.records import Record
from potluck.experiment import Run
from potluck.report.canvas import make_figure, pick_shade, pick_time_unit


def read_tiers(run: Run, note: str = "tier") -> Iterator[tuple[float, int, str]]:
    """When which device was given which tier: noted of one device, or of all devices of a tier."""
    for r in run.lines:
        if r["metric"] == note:
            yield from ((r["time"], node, tier) for node, tier in list_tiers(r))


def list_tiers(r: Record) -> Iterator[tuple[int, str]]:
    """Which device is in which tier, as one note says."""
    value, node = r["value"], r.get("node", r.get("group"))
    if isinstance(value, dict) and "tier" in value and isinstance(node, int):
        yield node, str(value["tier"])
    elif isinstance(value, list) and "group" in r:
        yield from ((int(each), str(r["group"])) for each in value if isinstance(each, int))


def find_last_tiers(run: Run) -> dict[int, str]:
    """The last tier of each device; empty if an algorithm has none."""
    return {node: tier for _, node, tier in read_tiers(run)}


def draw_sizes(run: Run, note: str) -> go.Figure | None:
    """How many devices each tier has over time; None without tiers, or if they stay as they were formed."""
    where: dict[int, str] = {}
    every = list(read_tiers(run, note))
    names = sorted({tier for _, _, tier in every})
    counts: dict[float, dict[str, int]] = {}
    now = dict.fromkeys(names, 0)
    for time, node, tier in every:
        if node in where:
            now[where[node]] -= 1
        where[node] = tier
        now[tier] += 1
        counts[time] = dict(now)  # of one moment's notes the last one counts
    if len({tuple(count.values()) for count in counts.values()}) < 2:
        return None
    end = max(run.summary["virtual_seconds"], *counts)
    counts[end] = counts[max(counts)]
    size, unit = pick_time_unit(end)
    figure = make_figure(f"virtual time ({unit})", "devices")
    for i, name in enumerate(names):
        figure.add_scatter(
            x=[time / size for time in counts],
            y=[count[name] for count in counts.values()],
            name=f"tier {name}",
            mode="lines",
            line={"color": pick_shade(i), "width": 2.5, "shape": "hv"},
        )
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True)
    return figure
