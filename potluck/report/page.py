"""One self-contained page: plotly is embedded once, nothing is fetched, light and dark are both legible."""

import base64
from collections.abc import Sequence
from html import escape

import plotly.io
import plotly.offline

from potluck.core.plain_text import show_controls
from potluck.experiment import Comparison, Tuning
from potluck.report.canvas import Facts, ReportFigure
from potluck.report.choices import CHOICE_HEAD, TRIAL_HEAD, list_choices, list_trials, tell_choice
from potluck.report.columns import (
    describe_federation,
    explain_intervals,
    list_columns,
    list_remarks,
    tell_global_test,
)
from potluck.report.contents import draw_all, list_deeds
from potluck.report.csv_files import make_slug, write_figure
from potluck.report.gather import is_one_federation
from potluck.report.plain_labels import make_plain
from potluck.report.verdict import join_names, tell_verdict

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
.verdict { font-size: 1.15rem; margin: 1rem 0; }
.warning { border-left: 4px solid #D55E00; padding-left: 0.75rem; }
nav { margin: 1.5rem 0; line-height: 1.9; }
a { color: inherit; } .data { white-space: nowrap; }
@media print {
  :root { --ink: #1c1c1e; --soft: #55555a; --paper: #ffffff; --line: #d9d9de; }
  body { font-size: 11pt; margin: 0; max-width: none; padding: 0; }
  .wide { overflow: visible; } table { font-size: 8pt; } th, td { padding: 0.2rem 0.3rem; }
  section, table { break-inside: avoid; } h2 { break-after: avoid; margin-top: 1rem; }
  nav, .data, .modebar { display: none !important; }
}
"""

# Plotly draws in fixed colours and sizes, so they follow the page's: dark, light, or a sheet of paper.
FOLLOW = """
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function paint(change) {
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  for (const plot of document.querySelectorAll(".plotly-graph-div"))
    Plotly.relayout(plot, {"font.color": ink, ...change});
}
paint({});
dark.addEventListener("change", () => paint({}));
window.addEventListener("beforeprint", () => paint({"font.color": "#1c1c1e", width: 680, autosize: false}));
window.addEventListener("afterprint", () => paint({width: null, autosize: true}));
"""

# Nothing leaves the page: plotly's own bar would offer to send the data to its makers.
CONFIG = {"displaylogo": False, "responsive": True, "showSendToCloud": False, "plotlyServerURL": ""}

Figures = Sequence[ReportFigure]


def render(comparison: Comparison, figures: Figures | None = None) -> str:
    """The page as text; its figures may have been drawn already."""
    e = comparison.experiment.resolve()
    names = " vs ".join(comparison.algorithms)
    seeds = ", ".join(str(seed) for seed in comparison.experiment.seeds or [e.seed])
    versus = (
        f" The column “vs {escape(comparison.algorithms[0])}” holds differences in accuracy, in percentage "
        "points, paired by seed."
        if any(row.difference for row in comparison.rows)
        else ""
    )
    means = explain_intervals(len(comparison.experiment.seeds))
    explained = f" {means[0].upper()}{means[1:]}." if means else ""
    real = bool(comparison.runs) and all(run.deployed for run in comparison.runs)
    clock = "Times were measured, on real devices" if real else "Times are on the virtual clock"
    bold = "; bold is best" if len(comparison.algorithms) > 1 else ""
    tested = escape(tell_global_test(comparison.tested))
    lead = f"""{_render_remarks(comparison)}<div class="wide">{_render_table(comparison)}</div>
<p class="soft">Accuracy is the mean over devices, each on its own test data; {tested}.
{clock}{bold}.{explained}{versus}</p>
{_render_deeds(comparison)}
{"" if comparison.tuning is None else _render_tuning(comparison.tuning)}"""
    drawn = draw_all(comparison) if figures is None else figures
    what = describe_federation(e) if is_one_federation(comparison) else f"{len(comparison.runs)} runs"
    what = f"real devices; model {e.model.name}" if real else what
    page = render_page(e.name, f"{e.name}: {names}", f"{what}; seeds: {seeds}.", lead, drawn)
    return page.replace("virtual time", "measured time") if real else page


def _render_deeds(comparison: Comparison) -> str:
    """What happened inside, before any figure."""
    deeds = list_deeds(comparison)
    whose = f" (seed {comparison.runs[0].summary['seed']})" if len(comparison.experiment.seeds) > 1 else ""
    lines = "".join(f"<li><b>{escape(name)}</b>: {escape(told)}</li>\n" for name, told in deeds)
    return f"<h2>What each did{whose}</h2>\n<ul>\n{lines}</ul>" if deeds else ""


def _render_remarks(comparison: Comparison) -> str:
    """Who won, and what a reader should know before believing it."""
    lines = [f'<p class="warning">{escape(told)}</p>' for told in list_remarks(comparison)]
    unfinished = [run for run in comparison.runs if not run.finished]
    if unfinished:
        names = join_names([f"{run.name} (round {run.summary['rounds']})" for run in unfinished])
        lines.append(f'<p class="warning">Unfinished: {escape(names)}. Numbers are those so far.</p>')
    if not is_one_federation(comparison):
        lines.append(
            '<p class="warning">These runs are not of one crowd: their data, devices, models or ends differ. '
            "So differences between them say little about algorithms, and none is called the winner.</p>"
        )
    elif sentence := tell_verdict(comparison):
        lines.append(f'<p class="verdict">{escape(sentence)}</p>')
    old = [run for run in comparison.runs if run.finished and run.devices is None]
    if old:
        whose = join_names(list(dict.fromkeys(run.name for run in old)))
        who = "these runs" if len(old) == len(comparison.runs) else whose
        lines.append(
            f'<p class="soft">No devices.json in the folder of {escape(who)}, '
            "so without fleet, holdings and rounds.</p>"
        )
    return "\n".join(lines)


def render_page(heading: str, title: str, about: str, lead: str, figures: Figures) -> str:
    """A whole page: a heading, a line about it, some HTML and figures, each with what to look for."""
    body = f"""<h1>{escape(heading)}</h1>
<p class="soft">{escape(about)}</p>
{lead}
{_render_index(figures)}
{"".join(map(_render_section, figures))}"""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{show_controls(escape(title))}</title>
<style>{STYLE}</style>
<script>{plotly.offline.get_plotlyjs()}</script>
</head>
<body>
{show_controls(body)}
<script>{FOLLOW}</script>
</body>
</html>
"""


def list_facts(facts: Facts) -> str:
    """What is known, in a table of two columns."""
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts)
    return f'<div class="wide"><table>{rows}</table></div>'


def _render_section(drawn: ReportFigure) -> str:
    name = make_slug(drawn.title)
    plot = plotly.io.to_html(
        make_plain(drawn.figure),
        validate=False,
        full_html=False,
        include_plotlyjs=False,
        config=CONFIG,
        div_id=f"figure-{name}",
    )
    data = base64.b64encode(write_figure(drawn.figure).encode()).decode()
    link = f'<a class="data" download="{name}.csv" href="data:text/csv;base64,{data}">data (CSV)</a>'
    return (
        f'<section id="{name}">\n<h2>{escape(drawn.title)}</h2>\n<figure>{plot}'
        f"<figcaption>{escape(drawn.hint)} {link}</figcaption></figure>\n</section>\n"
    )


def _render_index(figures: Figures) -> str:
    """Where to find what, in a page of many figures."""
    if len(figures) < 5:
        return ""
    links = (f'<a href="#{make_slug(each.title)}">{escape(each.title)}</a>' for each in figures)
    return f"<nav>{' · '.join(links)}</nav>"


def _render_table(comparison: Comparison) -> str:
    columns = list_columns(comparison)
    lines = ["<tr><th>algorithm</th>" + "".join(f"<th>{escape(c.name)}</th>" for c in columns) + "</tr>"]
    for i, name in enumerate(comparison.algorithms):
        cells = (f"<td{_mark_best(i in c.best)}>{escape(c.texts[i])}</td>" for c in columns)
        lines.append(f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _render_tuning(tuning: Tuning) -> str:
    """What was chosen and all trials: a comparison at tuned settings is worth what its tuning is."""
    chosen = _render_lines(["", *CHOICE_HEAD], [(line, False) for line in list_choices(tuning)])
    tried = _render_lines(TRIAL_HEAD, [(line[:-1], line.chosen) for line in list_trials(tuning)])
    return (
        f'<h2>Tuning</h2>\n<div class="wide">{chosen}</div>\n'
        f'<p class="soft">{escape(tell_choice(tuning))}</p>\n'
        f'<details><summary>All trials</summary><div class="wide">{tried}</div></details>'
    )


def _render_lines(head: Sequence[str], lines: Sequence[tuple[Sequence[str], bool]]) -> str:
    """A table of texts; the lines that are marked are bold."""
    rows = ["<tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr>"]
    for texts, best in lines:
        rows.append(f"<tr{_mark_best(best)}>" + "".join(f"<td>{escape(t)}</td>" for t in texts) + "</tr>")
    return "<table>\n" + "\n".join(rows) + "\n</table>"


def _mark_best(best: bool) -> str:
    return ' class="best"' if best else ""
