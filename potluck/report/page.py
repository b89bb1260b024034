"""One self-contained page: plotly is embedded once, nothing is fetched, light and dark are both legible."""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from types import MappingProxyType

from potluck.core.plain_text import show_controls
from potluck.experiment import Comparison
from potluck.report.canvas import Facts, ReportFigure, make_slug
from potluck.report.columns import describe_federation
from potluck.report.contents import draw_all, list_colours
from potluck.report.csv_files import write_figure
from potluck.report.gather import is_one_federation
from potluck.report.lead import mark_colour, write_lead
from potluck.report.packed import embed, embed_plotly
from potluck.report.plain_labels import make_plain

FEW = 5  # figures that need no contents

Figures = Sequence[ReportFigure]


def render(comparison: Comparison, figures: Figures | None = None) -> str:
    """The page as text; its figures may have been drawn already."""
    e = comparison.experiment.resolve()
    names = " vs ".join(comparison.algorithms)
    seeds = comparison.experiment.seeds or [e.seed]
    drawn_by = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    real = bool(comparison.runs) and all(run.deployed for run in comparison.runs)
    drawn = draw_all(comparison) if figures is None else figures
    what = describe_federation(e) if is_one_federation(comparison) else f"{len(comparison.runs)} runs"
    what = f"real devices; model {e.model.name}" if real else what
    return render_page(
        e.name,
        f"{e.name}: {names}",
        f"{what}; {drawn_by}.",
        write_lead(comparison, real),
        drawn,
        list_colours(comparison),
        "measured time" if real else "virtual time",
    )


def render_page(
    heading: str,
    title: str,
    about: str,
    lead: str,
    figures: Figures,
    colours: Mapping[str, str] = MappingProxyType({}),
    clock: str = "virtual time",
) -> str:
    """A whole page: a heading, a line about it, some HTML and figures, each with what to look for.

    `colours`: of algorithms, by name. `clock`: what virtual time is called here.
    """
    sections = [list(same) for _, same in groupby(figures, lambda each: (each.group, each.title))]
    drawn = [[_pack_figure(each) for each in same] for same in sections]
    body = f"""<h1>{escape(heading)}</h1>
<p class="soft">{escape(about)}</p>
{lead}
<p class="warning" id="old" hidden>This browser is too old for the figures: Chrome 98, Firefox 113 and
Safari 16.4 have what they need.</p>
<noscript><p class="warning">Figures are drawn by JavaScript, which is off here.</p></noscript>
{_render_groups(sections, colours)}"""
    contents = _render_contents(lead, sections)
    told = join_units(show_controls(f"{contents}<main>{body}</main>").replace("virtual time", clock))
    held = json.dumps(drawn, ensure_ascii=False, separators=(",", ":")).replace("virtual time", clock)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{show_controls(escape(title))}</title>
<style>{_read_part("page.css")}</style>
</head>
<body>
<div{' class="beside"' if contents else ""}>{told}</div>
{embed_plotly()}
{embed("figures", held)}
<script>{_read_part("page.js")}</script>
</body>
</html>
"""


def join_units(text: str) -> str:
    """No number ends a line whose unit begins the next one."""
    return re.sub(r"(?<=\d) (?=(?:%|s|min|h|d|B|kB|MB|GB)(?!\w))", "\N{NO-BREAK SPACE}", text)


def _read_part(name: str) -> str:
    return files("potluck.report").joinpath(name).read_text(encoding="utf-8")


def list_facts(facts: Facts) -> str:
    """What is known, in a table of two columns."""
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts)
    return f'<div class="wide"><table>{rows}</table></div>'


def _pack_figure(drawn: ReportFigure) -> dict[str, object]:
    """All that the page's script needs of a figure."""
    return {
        "figure": make_plain(drawn.figure),
        "csv": write_figure(drawn.figure),
        "hint": join_units(show_controls(drawn.hint)),
        "file": f"{drawn.slug}.csv",
    }


def _render_groups(sections: Sequence[Figures], colours: Mapping[str, str]) -> str:
    """Sections below the headings of their groups."""
    parts = []
    numbered = enumerate(sections)
    for group, same in groupby(numbered, lambda item: item[1][0].group):
        shown = list(same)
        of = {each.of for _, figures in shown for each in figures}
        mark = mark_colour(colours.get(of.pop())) if len(of) == 1 else ""
        head = f'<h2 id="{make_slug(group)}">{mark}{escape(group)}</h2>\n' if group else ""
        found = "".join(_render_section(place, figures) for place, figures in shown)
        parts.append(f'{head}<div class="figures">\n{found}</div>\n')
    return "".join(parts)


def _render_section(place: int, figures: Figures) -> str:
    """A figure, or several of which a reader chooses one."""
    first = figures[0]
    name = make_slug(first.title) if len(figures) > 1 else first.slug
    options = "".join(f"<option>{escape(each.of)}</option>" for each in figures)
    choice = f'<label>of <select aria-label="algorithm">{options}</select></label>\n'
    return f"""<section id="{name}" data-figure="{place}">
<h3>{escape(first.title)}</h3>
{choice if len(figures) > 1 else ""}<figure><div class="plotly-graph-div" id="figure-{name}"></div>
<figcaption><span class="hint">{escape(first.hint)}</span>
<a class="data" href="#{name}">data (CSV)</a></figcaption>
</figure>
</section>
"""


def _render_contents(lead: str, sections: Sequence[Figures]) -> str:
    """Where to find what, in a page of many figures."""
    if len(sections) < FEW:
        return ""
    before = re.findall(r'<h2 id="([^"]*)">([^<]*)', lead)
    parts = [f"<ul>{_list_links(before)}</ul>"]
    for group, same in groupby(sections, lambda figures: figures[0].group):
        links = [
            (make_slug(each[0].title) if len(each) > 1 else each[0].slug, escape(each[0].title))
            for each in same
        ]
        head = f"<strong>{escape(group)}</strong>" if group else ""
        parts.append(f"{head}<ul>{_list_links(links)}</ul>")
    return f"<nav><details><summary>Contents</summary>{''.join(parts)}</details></nav>\n"


def _list_links(links: Sequence[tuple[str, str]]) -> str:
    return "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in links)
