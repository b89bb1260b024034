"""What a notebook shows of runs: a table and a curve in one piece of HTML, which asks nobody for anything.

Texts are escaped, and colours are the notebook's own, light or dark, but for those of the curves.
"""

import html
from collections.abc import Sequence
from pathlib import Path

from potluck.core.colours import COLOURS
from potluck.core.plain_text import show_controls
from potluck.core.units import duration, percent
from potluck.metrics import Measurement

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460, 200, 52, 22, 8  # of a curve, and of its margins
MOST = 400  # points of a curve; more can't be told apart

Curve = tuple[str, Sequence[Measurement]]  # whose it is; those of one name share a colour


def escape(text: str) -> str:
    return html.escape(show_controls(text))


def tell_place(path: Path | None) -> str:
    return ", in memory" if path is None else f", in {show_controls(str(path))}"


def make_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is of names, the others are of numbers."""
    cell = "padding:2px 12px 2px 0;text-align"
    top = "".join(
        f'<th style="{cell}:{"right" if i else "left"}">{escape(h)}</th>' for i, h in enumerate(heads)
    )
    lines = [
        "".join(
            f'<td style="{cell}:{"right" if i else "left"}">{escape(text)}</td>' for i, text in enumerate(row)
        )
        for row in rows
    ]
    head = f"<thead><tr>{top}</tr></thead>" if any(heads) else ""
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table style="border-collapse:collapse">{head}<tbody>{body}</tbody></table>'


def make_page(title: str, table: str, drawn: str, note: str) -> str:
    return (
        f'<div><p style="margin:4px 0"><b>{escape(title)}</b></p>'
        f'<div style="display:flex;flex-wrap:wrap;gap:24px;align-items:center">{table}{drawn}</div>'
        f'<p style="margin:4px 0;opacity:.7"><small>{escape(note)}</small></p></div>'
    )


def draw_curves(curves: Sequence[Curve]) -> str:
    """Accuracy over virtual time as SVG, a line a run; nothing where nothing was measured."""
    points = [point for _, measured in curves for point in measured]
    if not points:
        return ""
    longest = max(point.time for point in points) or 1.0
    highest = max(0.1, *(point.value for point in points))
    names = list(dict.fromkeys(name for name, _ in curves))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}

    def place(point: Measurement) -> str:
        x = LEFT + (WIDTH - LEFT - 8) * point.time / longest
        return f"{x:.1f},{_find_height(point.value / highest):.1f}"

    lines = [
        f'<polyline fill="none" stroke="{colours[name]}" stroke-width="1.6" '
        f'points="{" ".join(map(place, _thin(measured)))}"/>'
        for name, measured in curves
        if measured
    ]
    key = " ".join(
        f'<span style="margin-right:12px"><span style="color:{colours[name]}">&#9644;</span> '
        f"{escape(name)}</span>"
        for name in names
    )
    label = escape(f"Accuracy over virtual time of {', '.join(names)}")
    return (
        f'<div><svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{label}" style="max-width:100%;height:auto">{_draw_axes(longest, highest)}'
        f"{''.join(lines)}</svg><div><small>{key}</small></div></div>"
    )


def _draw_axes(longest: float, highest: float) -> str:
    text = 'fill="currentColor" font-size="11" font-family="sans-serif"'
    drawn = []
    for share in (0.0, 0.5, 1.0):
        y = _find_height(share)
        drawn.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="currentColor" stroke-opacity=".2"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" {text}>{percent(share * highest)}</text>'
        )
    drawn.append(f'<text x="{LEFT}" y="{HEIGHT - 5}" {text}>0 s</text>')
    end = escape(duration(longest))
    drawn.append(f'<text x="{WIDTH - 8}" y="{HEIGHT - 5}" text-anchor="end" {text}>{end}</text>')
    return "".join(drawn)


def _find_height(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _thin(measured: Sequence[Measurement]) -> Sequence[Measurement]:
    """At most so many points, the last among them."""
    step = -(-len(measured) // MOST)
    return measured if step == 1 else [*measured[:-1:step], measured[-1]]
