"""What the page of a comparison says before its figures: remarks, the table, whom algorithms are for."""

from collections.abc import Sequence
from html import escape

from potluck.experiment import Comparison, Tuning
from potluck.report.canvas import make_slug
from potluck.report.captions import tell_looks
from potluck.report.choices import CHOICE_HEAD, TRIAL_HEAD, list_choices, list_trials, tell_choice
from potluck.report.columns import explain_intervals, list_columns, list_remarks, tell_global_test
from potluck.report.contents import list_colours, list_deeds
from potluck.report.crowds import draw_crowd, measure_crowd
from potluck.report.floors import read_floors
from potluck.report.gather import is_one_federation
from potluck.report.note_figures import read_own
from potluck.report.stack_picture import render_stack
from potluck.report.verdict import join_names, tell_verdict

STACKS = "Who stands above whom"


def write_lead(comparison: Comparison, real: bool) -> str:
    """`real`: whether devices were, so that times were measured."""
    first = comparison.algorithms[0]
    versus = (
        f"The column “vs {first}” holds differences in accuracy, in percentage points, paired by seed."
        if any(row.difference for row in comparison.rows)
        else ""
    )
    means = explain_intervals(len(comparison.experiment.seeds))
    explained = f"{means[0].upper()}{means[1:]}." if means else ""
    clock = "Times were measured, on real devices" if real else "Times are on the virtual clock"
    bold = "; bold is best" if len(comparison.algorithms) > 1 else ""
    tested = tell_global_test(comparison.tested)
    test = f"Accuracy is the mean over devices, each on its own test data; {tested}."
    told = [test, f"{clock}{bold}.", tell_looks(comparison), explained, versus]
    return f"""{_render_remarks(comparison)}<h2 id="results">Results</h2>
<div class="wide">{_render_table(comparison)}</div>
<p class="soft">{escape(" ".join(filter(None, told)))}</p>
{_render_cards(comparison)}
{_render_stacks(comparison)}
{"" if comparison.tuning is None else _render_tuning(comparison.tuning)}"""


def mark_colour(colour: str | None) -> str:
    """The dot before an algorithm's name."""
    return f'<i class="dot" style="background:{colour}"></i>' if colour else ""


def _render_cards(comparison: Comparison) -> str:
    """The crowd that each algorithm is for, and what it did with this one, before any figure."""
    deeds, colours, cards = dict(list_deeds(comparison)), list_colours(comparison), []
    for name in comparison.algorithms:
        run, parts = comparison.of(name)[0], []
        for crowd in dict.fromkeys(notes.crowd for notes in read_own(run) if notes.crowd is not None):
            whose = f"{crowd.told} {measure_crowd(crowd.trait, run)}".strip()
            parts += [draw_crowd(crowd.trait, escape(crowd.told)), f"<p>{escape(whose)}</p>"]
        if name in deeds:
            parts.append(f"<p>{escape(deeds[name])}</p>")
        if parts:
            cards.append(f"<li>{mark_colour(colours[name])}<b>{escape(name)}</b>{''.join(parts)}</li>")
    if not cards:
        return ""
    seed = f" (seed {comparison.runs[0].summary['seed']})" if len(comparison.experiment.seeds) > 1 else ""
    title = f"What each did{seed}"
    return f'<h2 id="{make_slug(title)}">{title}</h2>\n<ul class="cards">\n{"".join(cards)}</ul>'


def _render_stacks(comparison: Comparison) -> str:
    """Who stands above whom, of those that aren't just a cloud above its devices."""
    cards, colours = [], list_colours(comparison)
    for name in comparison.algorithms:
        if floors := read_floors(comparison.of(name)[0]):
            cards.append(f"<li>{mark_colour(colours[name])}<b>{escape(name)}</b>{render_stack(floors)}</li>")
    if not cards:
        return ""
    return (
        f'<h2 id="{make_slug(STACKS)}">{STACKS}</h2>\n<p class="soft">From the cloud downward; of many, some '
        "are drawn. Settings are those that aren't defaults.</p>\n"
        f'<ul class="cards">\n{"".join(cards)}</ul>'
    )


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


def _render_table(comparison: Comparison) -> str:
    columns = list_columns(comparison)
    lines = ["<tr><th>algorithm</th>" + "".join(f"<th>{escape(c.name)}</th>" for c in columns) + "</tr>"]
    colours = list_colours(comparison)
    for i, name in enumerate(comparison.algorithms):
        cells = (f"<td{_mark_best(i in c.best)}>{escape(c.texts[i])}</td>" for c in columns)
        lines.append(f"<tr><td>{mark_colour(colours[name])}{escape(name)}</td>{''.join(cells)}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _render_tuning(tuning: Tuning) -> str:
    """What was chosen and all trials: a comparison at tuned settings is worth what its tuning is."""
    chosen = _render_lines(["", *CHOICE_HEAD], [(line, False) for line in list_choices(tuning)])
    tried = _render_lines(TRIAL_HEAD, [(line[:-1], line.chosen) for line in list_trials(tuning)])
    return (
        f'<h2 id="tuning">Tuning</h2>\n<div class="wide">{chosen}</div>\n'
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
