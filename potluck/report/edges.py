"""What edges do while the cloud is silent: their own rounds between two of its models, on a time line."""

import plotly.graph_objects as go

from potluck.experiment import Run
from potluck.report.canvas import SHADES, blank, clock, rows_of
from potluck.report.groups import name_of

SHOWN = 40  # edges in a picture
STRETCHES = 4000  # bars in all


def local_rounds(run: Run) -> go.Figure | None:
    """A stretch for each model of the cloud's that an edge worked with; None if edges don't count rounds."""
    since: dict[str, float] = {}
    bars: list[tuple[str, float, float, int]] = []
    for r in run.lines:
        if r["metric"] == "local_rounds":
            name = name_of(run, r["group"])
            bars.append((name, since.get(name, 0.0), r["time"], r["value"]))
            since[name] = r["time"]
    names = sorted(since, key=lambda name: (len(name), name))[:SHOWN]
    bars = [bar for bar in bars if bar[0] in set(names)][-STRETCHES:]
    if not bars:
        return None
    size, unit = clock(max(end for _, _, end, _ in bars))
    figure = blank(f"virtual time ({unit})", "")
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
    return rows_of(figure, names, each=34)
