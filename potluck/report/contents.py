"""What a report shows, in order: every figure that a comparison or a run has something to say in."""

from collections.abc import Iterator

import plotly.graph_objects as go

from potluck.core.notes import Figure
from potluck.core.units import percent
from potluck.experiment import Comparison, Run
from potluck.metrics import series
from potluck.report import (
    anomalies,
    cohorts,
    curves,
    fleet_figures,
    hierarchy,
    holding_figures,
    note_figures,
    per_device,
    round_timeline,
    tiers,
)
from potluck.report.canvas import ReportFigure
from potluck.report.gather import is_one_federation


def draw_all(comparison: Comparison) -> list[ReportFigure]:
    """All figures that apply; those that don't are left out."""
    found = [
        *_draw_race(comparison),
        *_draw_federation(comparison),
        *_draw_lives(comparison),
        *_draw_costs(comparison),
    ]
    return [
        ReportFigure(title, figure, hint)
        for title, figure, hint in found
        if figure is not None and figure.data
    ]


Maybe = tuple[str, go.Figure | None, str]


def _draw_race(comparison: Comparison) -> Iterator[Maybe]:
    """What was reached, when, and for whom."""
    band = " The band spans all seeds." if len(comparison.experiment.seeds) > 1 else ""
    yield (
        "Accuracy over time",
        _drop_empty(curves.draw_over_time(comparison)),
        "Look at who crosses the dotted line first: that is the time a crowd with these devices "
        f"and links would need.{band}",
    )
    yield (
        "Time to the target",
        curves.draw_time_to_target(comparison),
        "Look for the shortest bar. A bar is drawn for algorithms that got there with every seed; "
        "dots are the seeds.",
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
        "Look at the left: a curve that falls off steeply there leaves devices behind, whatever its mean. "
        "Shaded are the worst and the best tenth; attackers are left out.",
    )


def _draw_federation(comparison: Comparison) -> Iterator[Maybe]:
    """Who takes part: once if it is the same for all, else for each."""
    drawn = [run for run in _find_first_runs(comparison) if run.devices is not None]
    for run in drawn[:1] if is_one_federation(comparison) else drawn:
        name = "" if is_one_federation(comparison) else f": {run.summary['algorithm']}"
        yield (
            f"The fleet{name}",
            fleet_figures.draw_speeds(run),
            "Look at the lower right: slow at computing and at sending, these are the stragglers. "
            f"Both axes are logarithmic; larger dots hold more rows.{_count_shown(run)}",
        )
        yield (
            f"Who holds what{name}",
            holding_figures.draw_before(run),
            "Look for rows with few bright cells: devices that know only some classes. "
            f"This is before anything is trained.{_count_shown(run)}",
        )


def _draw_lives(comparison: Comparison) -> Iterator[Maybe]:
    """What became of groups and of data, algorithm by algorithm, each with its first seed."""
    several = len(comparison.algorithms) > 1
    for run in _find_first_runs(comparison):
        name = f": {run.summary['algorithm']}" if several else ""
        seed = f" Seed {run.summary['seed']}." if len(comparison.of(run.summary["algorithm"])) > 1 else ""
        for title, figure, hint in _draw_life(run):
            yield f"{title}{name}", figure, f"{hint}{seed}"


def list_deeds(comparison: Comparison) -> list[tuple[str, str]]:
    """What each algorithm did, in the sentence that it makes of its first seed's records, if it makes one."""
    found = []
    for run in _find_first_runs(comparison):
        tell = note_figures.read_own(run).tell
        if tell is not None and (told := tell(run.lines)):
            found.append((run.summary["algorithm"], told))
    return found


def _draw_life(run: Run) -> Iterator[Maybe]:
    """What became of one run's groups and data."""
    yield (
        "What each view reaches",
        per_device.draw_views(run),
        "Look at which model a device would best use: its own, its edge's or the one for all. "
        f"Runs are judged by “{run.summary['view']}”.",
    )
    yield "Rows before and after", holding_figures.draw_before_and_after(run), _hint_at_moves(run)
    yield (
        "The fleet by tier",
        fleet_figures.draw_by_tier(run),
        "Look at whether tiers part the fast from the slow, here at the end of the run.",
    )
    for each in note_figures.read_notes(run).figures:
        yield each.title, _draw_note(run, each), each.hint + _tell_ending(run, each)
    yield "Who was judged anomalous", anomalies.draw_judgements(run), _hint_at_judgements(run)
    yield (
        "Groups over time",
        note_figures.draw_numbers(run),
        "Groups whose curve leaves the others need attention. Every panel shows one number that the "
        "algorithm noted.",
    )


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


def _tell_ending(run: Run, figure: Figure) -> str:
    """What a figure came to, in numbers."""
    choices = _tell_agreement(run) if figure.kind == "tree" else ""
    found = series(run.lines, figure.number) if figure.number else []
    name = figure.number.replace("_", " ").capitalize()
    return choices + (f" {name} at the end: {found[-1].value:.2f}." if found else "")


def _tell_agreement(run: Run) -> str:
    """How choices fit the hidden groups, and whose choices these are."""
    told = [
        f"{fits.rand:.2f} over {who.format(fits.devices)}"
        for seen, who in ((True, "the {} devices ever seen"), (False, "all {} evaluated"))
        if (fits := cohorts.measure_final_agreement(run, seen=seen))
    ]
    if not told:
        return ""
    return (
        f" Choices fit the hidden groups with an adjusted Rand index of {' and of '.join(told)}; "
        "who was never seen uses the cohort with the least loss on its own rows."
    )


def _draw_costs(comparison: Comparison) -> Iterator[Maybe]:
    """What it took."""
    yield (
        "Traffic by tier",
        hierarchy.draw_traffic(comparison),
        "Look at which links carry the load: those of devices, or those of edges and users above them. "
        "Up is towards the cloud.",
    )
    yield (
        "Where a task's time goes",
        round_timeline.draw_shares(comparison),
        "Look at the pale part: time in which devices are done and wait for slower ones. "
        "Mean over the last tasks of a run.",
    )
    several = len(comparison.algorithms) > 1
    for run in _find_first_runs(comparison):
        name = f": {run.summary['algorithm']}" if several else ""
        if round_timeline.has_rounds(run):
            hint = "Look at the top: the longest bars are the stragglers that all others wait for (pale)."
            yield (
                f"The anatomy of a round{name}",
                round_timeline.draw_round(run),
                f"{hint} This round has the median length.",
            )
        else:
            hint = (
                "Look at how unequal bars are: here nobody waits for the longest. The last tasks of the run."
            )
            yield f"The anatomy of tasks{name}", round_timeline.draw_round(run), hint


def _hint_at_judgements(run: Run) -> str:
    numbers = [
        f"{name} {percent(share)}"
        for name, share in (
            ("precision", anomalies.measure_precision(run)),
            ("recall", anomalies.measure_recall(run)),
        )
        if share is not None
    ]
    rates = f" Of updates, {' and '.join(numbers)}." if numbers else " Who really was at fault isn't known."
    return f"Look for lines of marks: devices that are refused again and again.{rates}"


def _hint_at_moves(run: Run) -> str:
    found = holding_figures.measure_skews(run)
    numbers = (
        "" if found is None else f" Mean distance from everybody's mix: {found[0]:.2f}, then {found[1]:.2f}."
    )
    return f"Look at whether devices' rows have become more alike from left to right.{numbers}"


def _find_first_runs(comparison: Comparison) -> list[Run]:
    """Of each algorithm the first seed's run."""
    return [comparison.of(name)[0] for name in comparison.algorithms]


def _count_shown(run: Run) -> str:
    crowd = run.devices
    if crowd is None:
        return ""
    shown = len(crowd["nodes"])
    return "" if shown == crowd["devices"] else f" {shown:,} of {crowd['devices']:,} devices."


def _drop_empty(figure: go.Figure) -> go.Figure | None:
    """None if all curves are empty."""
    return figure if any(trace.x is not None and len(trace.x) for trace in figure.data) else None
