"""What a report shows, in order: every figure that a comparison or a run has something to say in."""

from collections.abc import Iterator

import plotly.graph_objects as go

from potluck.core.notes import Figure
from potluck.experiment import Comparison, Run
from potluck.report import (
    anomalies,
    captions,
    cohorts,
    curves,
    fleet_figures,
    hierarchy,
    holding_figures,
    note_figures,
    per_device,
    round_timeline,
    served,
    tiers,
)
from potluck.report.canvas import ReportFigure, pick_colour
from potluck.report.gather import is_one_federation

Maybe = tuple[str, go.Figure | None, str]  # a title, a figure or none, what to look for


def draw_all(comparison: Comparison) -> list[ReportFigure]:
    """All figures that apply; those that don't are left out."""
    found = [
        *_name("The race", _draw_race(comparison)),
        *_name("The race", _draw_served(comparison)),
        *_draw_federation(comparison),
        *_draw_lives(comparison),
        *_name("What it cost", _draw_costs(comparison)),
        *_draw_rounds(comparison),
    ]
    return [each for each in found if each.figure.data]


def list_colours(comparison: Comparison) -> dict[str, str]:
    """Each algorithm's, the same in every figure."""
    return {name: pick_colour(i) for i, name in enumerate(comparison.algorithms)}


def _name(group: str, found: Iterator[Maybe], of: str = "") -> Iterator[ReportFigure]:
    for title, figure, hint in found:
        if figure is not None:
            yield ReportFigure(title, figure, hint, group, of)


def _draw_race(comparison: Comparison) -> Iterator[Maybe]:
    """What was reached, when, and for whom."""
    over_time = _drop_empty(curves.draw_over_time(comparison))
    yield "Accuracy over time", over_time, captions.tell_race(comparison)
    yield (
        "Time to the target",
        curves.draw_time_to_target(comparison),
        captions.tell_times(comparison),
    )
    yield (
        "Accuracy over traffic",
        _drop_empty(curves.draw_over_bytes(comparison)),
        "Look at who is further left at the same height: it pays less traffic for the same accuracy.",
    )
    yield (
        "Accuracy over rounds",
        _drop_empty(curves.draw_over_rounds(comparison)),
        "Look at how much each change of the model brings; asynchronous methods take many small steps, "
        "so more rounds don't mean more time.",
    )
    yield (
        "Who is served well",
        per_device.draw_spread(comparison),
        "Look at how far the left end lies from the dot: far apart, a good mean hides devices that are "
        "served badly.",
    )
    yield (
        "Every device's accuracy",
        per_device.draw_devices(comparison),
        captions.tell_devices(comparison),
    )


def _draw_served(comparison: Comparison) -> Iterator[Maybe]:
    """Each layer that serves, beside the same models without it."""
    for layer in served.list_layers(comparison):
        figure = served.draw_served(comparison, layer)
        if figure is not None:
            yield f"What the layer “{layer}” brings", figure, served.tell_served(comparison, layer)


def _draw_federation(comparison: Comparison) -> Iterator[ReportFigure]:
    """Who takes part: once if it is the same for all, else for each."""
    drawn = [run for run in _find_first_runs(comparison) if run.devices is not None]
    one = is_one_federation(comparison)
    found = [
        each
        for run in (drawn[:1] if one else drawn)
        for each in _name("The crowd", _draw_crowd(run), "" if one else run.summary["algorithm"])
    ]
    yield from sorted(found, key=lambda each: each.title)  # all of one title together: a reader chooses whose


def _draw_crowd(run: Run) -> Iterator[Maybe]:
    yield (
        "The fleet",
        fleet_figures.draw_speeds(run),
        captions.tell_speeds(run),
    )
    yield (
        "Who holds what",
        holding_figures.draw_before(run),
        captions.tell_holdings(run),
    )


def _draw_lives(comparison: Comparison) -> Iterator[ReportFigure]:
    """What became of groups and of data, algorithm by algorithm, each with its first seed."""
    colours = list_colours(comparison)
    for run in _find_first_runs(comparison):
        name = run.summary["algorithm"]
        seed = f" Seed {run.summary['seed']}." if len(comparison.of(name)) > 1 else ""
        several = len(comparison.algorithms) > 1
        group, of = (f"Inside {name}", name) if several else ("Inside", "")
        for each in _name(group, _draw_life(run, colours[name]), of):
            yield each._replace(hint=f"{each.hint}{seed}")


def list_deeds(comparison: Comparison) -> list[tuple[str, str]]:
    """What each algorithm did, in sentences that its rules make of its first seed's records, if they do."""
    found = []
    for run in _find_first_runs(comparison):
        tells = dict.fromkeys(notes.tell for notes in note_figures.read_own(run) if notes.tell is not None)
        if told := " ".join(filter(None, (tell(run.lines) for tell in tells))):
            found.append((run.summary["algorithm"], told))
    return found


def _draw_life(run: Run, colour: str) -> Iterator[Maybe]:
    """What became of one run's groups and data."""
    yield "What each view reaches", per_device.draw_views(run, colour), captions.tell_views(run)
    yield "Rows before and after", holding_figures.draw_before_and_after(run), captions.tell_moves(run)
    yield (
        "The fleet by tier",
        fleet_figures.draw_by_tier(run),
        "Look at which of these parts the tiers, here at the end of the run: tiers are cut by what devices "
        "can do, and who would be late with the work of one, for many rows, say, goes to the next.",
    )
    for each in note_figures.read_notes(run).figures:
        yield each.title, _draw_note(run, each), each.hint + captions.tell_ending(run, each)
    yield "Who was judged anomalous", anomalies.draw_judgements(run), captions.tell_judgements(run)
    tiers = note_figures.list_tiers(run)
    for tier in tiers:
        title = f"{tier}s over time".capitalize() if tier and len(tiers) > 1 else "Groups over time"
        yield title, note_figures.draw_numbers(run, tier), captions.tell_numbers(run, tier)


def _draw_note(run: Run, figure: Figure) -> go.Figure | None:
    """A note's own figure, by the kind of it."""
    match figure.kind:
        case "counts":
            return note_figures.draw_counts(run, figure.note, figure.each)
        case "stretches":
            return hierarchy.draw_stretches(run, figure.note)
        case "tree":
            return cohorts.draw_tree(run, figure.note)
        case "tiers":
            return tiers.draw_sizes(run, figure.note)


def _draw_costs(comparison: Comparison) -> Iterator[Maybe]:
    """What it took."""
    traffic = hierarchy.draw_traffic(comparison)
    yield "Traffic by tier", traffic, captions.tell_traffic(comparison)
    yield (
        "Where a task's time goes",
        round_timeline.draw_shares(comparison),
        "Look at the grey part: time in which devices are done and wait for slower ones. "
        "Mean over the last tasks of a run.",
    )


def _draw_rounds(comparison: Comparison) -> Iterator[ReportFigure]:
    """One round of each algorithm, under one title: a reader chooses whose."""
    for run in _find_first_runs(comparison):
        figure = round_timeline.draw_round(run)
        of = run.summary["algorithm"] if len(comparison.algorithms) > 1 else ""
        if figure is not None:
            hint = captions.tell_round(run, figure)
            yield ReportFigure("The anatomy of a round", figure, hint, "What it cost", of)


def _find_first_runs(comparison: Comparison) -> list[Run]:
    """Of each algorithm the first seed's run."""
    return [comparison.of(name)[0] for name in comparison.algorithms]


def _drop_empty(figure: go.Figure) -> go.Figure | None:
    """None if all curves are empty."""
    return figure if any(trace.x is not None and len(trace.x) for trace in figure.data) else None
