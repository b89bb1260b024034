"""Who was judged anomalous when, and whether that was right."""

import plotly.graph_objects as go

from potluck.experiment import Run
from potluck.report.anomalies import anomalies, culprits
from potluck.report.canvas import blank, clock

KINDS = {
    "refused, rightly": ("#009E73", "circle"),
    "refused, wrongly": ("#D55E00", "x"),
    "missed": ("#CC79A7", "circle-open"),
    "refused": ("#0072B2", "circle"),
}


def judgements(run: Run) -> go.Figure | None:
    """Updates that were refused and, of known culprits, those that weren't; None if none were judged."""
    truth, odd = culprits(run.lines), anomalies(run)
    judged = [r for r in run.lines if r["metric"] == "guarded"]
    if not odd and not judged:
        return None
    size, unit = clock(run.summary["virtual_seconds"])
    points: dict[str, list[tuple[float, int]]] = {kind: [] for kind in KINDS}
    for at in odd:
        for node in at.nodes:
            kind = "refused" if truth is None else f"refused, {'rightly' if node in truth else 'wrongly'}"
            points[kind].append((at.time, node))
    caught = {(at.time, at.group, node) for at in odd for node in at.nodes}
    for r in judged if truth is not None else ():
        for node in r["value"].get("judged", ()):
            if node in truth and (r["time"], r.get("group"), node) not in caught:  # type: ignore[operator]
                points["missed"].append((r["time"], node))
    figure = blank(f"virtual time ({unit})", "device")
    for kind, (shade, symbol) in KINDS.items():
        if points[kind]:
            figure.add_scatter(
                x=[time / size for time, _ in points[kind]],
                y=[node for _, node in points[kind]],
                name=f"{kind} ({len(points[kind])})",
                mode="markers",
                marker={"color": shade, "symbol": symbol, "size": 8},
                hovertemplate="device %{y} at %{x:.3g}<extra>" + kind + "</extra>",
            )
    figure.update_layout(showlegend=True)
    return figure if figure.data else None
