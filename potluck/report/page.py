"""One self-contained page: plotly is embedded once, nothing is fetched, light and dark are both legible."""

from html import escape

import plotly.graph_objects as go
import plotly.offline

from potluck.experiment import Comparison, Tuning
from potluck.report import curves
from potluck.report.columns import columns
from potluck.report.grid import grid, remark
from potluck.report.setup import crowd

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --soft: #6b6b70; --paper: #ffffff; --line: #d9d9de; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --soft: #a2a2aa; --paper: #17171a; --line: #3a3a40; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto;
       max-width: 60rem; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin: 2.5rem 0 0.5rem; }
.soft, figcaption { color: var(--soft); }
figure { margin: 0; } figcaption { margin-top: 0.25rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: 0.4rem 0.6rem; text-align: right; }
th, td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.best { font-weight: 700; }
"""

# Plotly draws in fixed colours, so they follow the page's when it turns dark or light.
FOLLOW = """
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  for (const plot of document.querySelectorAll(".plotly-graph-div"))
    Plotly.relayout(plot, {"font.color": ink});
}
paint();
dark.addEventListener("change", paint);
"""

Figures = list[tuple[str, go.Figure, str]]


def render(comparison: Comparison) -> str:
    """The page as text."""
    e = comparison.experiment.resolved()
    names = " vs ".join(comparison.algorithms)
    seeds = ", ".join(str(seed) for seed in comparison.experiment.seeds)
    versus = (
        f" The column “vs {escape(comparison.algorithms[0])}” holds differences in accuracy, in percentage "
        "points, paired by seed, with 95 % t-intervals."
        if any(row.difference for row in comparison.rows)
        else ""
    )
    lead = f"""<div class="wide">{_table(comparison)}</div>
<p class="soft">Accuracy is the mean over devices, each on its own test data; the global test is on rows that
no device holds. Times are on the virtual clock. ± is the deviation between seeds; bold is best.{versus}</p>
{"" if comparison.tuning is None else _tuning(comparison.tuning)}"""
    return document(e.name, f"{e.name}: {names}", f"{crowd(e)}; seeds: {seeds}.", lead, _figures(comparison))


def document(heading: str, title: str, about: str, lead: str, figures: Figures) -> str:
    """A whole page: a heading, a line about it, some HTML and figures, each with what to look for."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<script>{plotly.offline.get_plotlyjs()}</script>
</head>
<body>
<h1>{escape(heading)}</h1>
<p class="soft">{escape(about)}</p>
{lead}
{"".join(_section(*figure) for figure in figures)}
<script>{FOLLOW}</script>
</body>
</html>
"""


def _figures(comparison: Comparison) -> Figures:
    band = " The band spans all seeds." if len(comparison.experiment.seeds) > 1 else ""
    return [
        (
            "Accuracy over time",
            curves.over_time(comparison),
            "Look at who crosses the dotted line first: that is the time a crowd with these devices "
            f"and links would need.{band}",
        ),
        (
            "Accuracy over traffic",
            curves.over_bytes(comparison),
            "Look at who is further left at the same height: it pays less traffic for the same accuracy.",
        ),
        (
            "Accuracy over rounds",
            curves.over_rounds(comparison),
            "Look at how much each change of the model brings; asynchronous methods take many small steps, "
            "so more rounds don't mean more time.",
        ),
        (
            "Who is served well",
            curves.over_devices(comparison),
            "Look at how far the left end lies from the dot: the worst-served tenth of the devices "
            "pays for a good mean.",
        ),
    ]


def _section(title: str, figure: go.Figure, hint: str) -> str:
    drawn = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={"displaylogo": False, "responsive": True},
        div_id=title.lower().replace(" ", "-"),
    )
    return f"<h2>{escape(title)}</h2>\n<figure>{drawn}<figcaption>{escape(hint)}</figcaption></figure>\n"


def _table(comparison: Comparison) -> str:
    told = columns(comparison)
    lines = ["<tr><th>algorithm</th>" + "".join(f"<th>{escape(c.name)}</th>" for c in told) + "</tr>"]
    for i, name in enumerate(comparison.algorithms):
        cells = (f"<td{_class(i in c.best)}>{escape(c.texts[i])}</td>" for c in told)
        lines.append(f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _tuning(tuning: Tuning) -> str:
    """The grid and what was chosen: a comparison at tuned rates is worth what its tuning is."""
    lines = ["<tr><th>rate</th>" + "".join(f"<th>{rate:g}</th>" for rate in tuning.grid) + "</tr>"]
    for line in grid(tuning):
        cells = (f"<td{_class(i == line.chosen)}>{text}</td>" for i, text in enumerate(line.texts))
        lines.append(f"<tr><td>{escape(line.method)}</td>{''.join(cells)}</tr>")
    table = "<table>\n" + "\n".join(lines) + "\n</table>"
    return (
        f'<h2>Learning rates</h2>\n<div class="wide">{table}</div>\n'
        f'<p class="soft">{escape(remark(tuning))} Bold was chosen.</p>'
    )


def _class(best: bool) -> str:
    return ' class="best"' if best else ""
