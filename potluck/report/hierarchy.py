"""Tiers of a hierarchy: bytes across the links of each, and what edges do while the cloud is silent."""

from collections.abc import Mapping

import plotly.graph_objects as go

from potluck import metrics
from potluck.core.records import Group
from potluck.experiment import Comparison, Run
from potluck.report.canvas import SHADES, fit_rows, make_figure, pick_shade, pick_size_unit, pick_time_unit
from potluck.report.cohorts import ROOT

SHOWN = 40  # edges in a picture
STRETCHES = 4000  # bars in all
TIERS = ("device", "edge", "user")  # whose colours are the same in every report
PATH = " / "  # between an aggregator and a group of its own: "edge 3 / 01"


def draw_stretches(run: Run, note: str) -> go.Figure | None:
    """A bar for each count that a group noted, since its last one; None if there is none."""
    since: dict[str, float] = {}
    bars: list[tuple[str, float, float, int]] = []
    for r in run.lines:
        if r["metric"] == note:
            name = name_group(run, r["group"])
            bars.append((name, since.get(name, 0.0), r["time"], r["value"]))
            since[name] = r["time"]
    names = sorted(since, key=lambda name: (len(name), name))[:SHOWN]
    bars = [bar for bar in bars if bar[0] in set(names)][-STRETCHES:]
    if not bars:
        return None
    size, unit = pick_time_unit(max(end for _, _, end, _ in bars))
    figure = make_figure(f"virtual time ({unit})", "")
    figure.add_bar(
        x=[(end - start) / size for _, start, end, _ in bars],
        base=[start / size for _, start, _, _ in bars],
        y=[name for name, _, _, _ in bars],
        text=[str(count) for _, _, _, count in bars],
        name="rounds of its own",
        orientation="h",
        textposition="inside",
        insidetextanchor="middle",
        marker={
            "color": [count for _, _, _, count in bars],
            "colorscale": SHADES,
            "cmin": 0,
            "cmax": max(count for _, _, _, count in bars),
            "colorbar": {"title": {"text": "rounds"}},
            "line": {"color": "rgba(255,255,255,0.6)", "width": 1},
        },
        hovertemplate="%{y}: %{text} rounds in %{x:.3g} " + unit + "<extra></extra>",
    )
    figure.update_layout(uniformtext={"minsize": 9, "mode": "hide"})  # no number is better than a speck
    return fit_rows(figure, names, each=34)


def draw_traffic(comparison: Comparison) -> go.Figure | None:
    """Megabytes up and down across each tier's links, mean over seeds; None if nothing was sent."""
    sent: dict[tuple[str, str], dict[str, float]] = {}
    for name in comparison.algorithms:
        runs = comparison.of(name)
        for way in ("up", "down"):
            for run in runs:
                for tier, total in metrics.groups(run.lines, f"bytes_{way}").items():
                    table = sent.setdefault((tier, way), {})
                    table[name] = table.get(name, 0.0) + total / len(runs)
    length, unit = pick_size_unit(
        max(map(sum, zip(*(table.values() for table in sent.values()), strict=False)), default=0.0)
    )
    figure = make_figure(f"traffic ({unit})", "")
    tiers = [*TIERS, *sorted({tier for tier, _ in sent} - {*TIERS})]
    for (tier, way), table in sent.items():
        if any(table.values()):
            figure.add_bar(
                x=[table.get(name, 0.0) / length for name in comparison.algorithms],
                y=comparison.algorithms,
                name=f"{tier}, {way}",
                orientation="h",
                marker_color=pick_shade(2 * tiers.index(tier) + (way == "down")),
                hovertemplate="%{y}: %{x:.4g} " + unit + "<extra>" + f"{tier}, {way}" + "</extra>",
            )
    figure.update_layout(barmode="stack", showlegend=True)
    return fit_rows(figure, comparison.algorithms, each=40) if figure.data else None


def name_group(run: Run, group: Group | None) -> str:
    """An aggregator by its tier and number; other groups as they call themselves."""
    return name_by_tier({} if run.devices is None else run.devices["tiers"], group)


def name_by_tier(tiers: Mapping[str, int], group: Group | None) -> str:
    """The same where it is known which aggregator is the first of each tier."""
    if not isinstance(group, int) or not tiers or group < tiers["cloud"]:
        return ROOT if group in ("", None) else str(group)
    tier = max((name for name in tiers if tiers[name] <= group), key=lambda name: tiers[name])
    return tier if tier == "cloud" else f"{tier} {group - tiers[tier]}"


def find_tier(run: Run, group: Group | None) -> str:
    """The tier of the aggregator that a group is, or is inside of; "" of the cloud's and of all others."""
    tiers = {} if run.devices is None else run.devices["tiers"]
    inside = str(group).split(" ")[0] if PATH in str(group) else name_group(run, group).split(" ")[0]
    return inside if inside in tiers and inside != "cloud" else ""
