"""What to look for in figures, in words that are true of what they show."""

import plotly.graph_objects as go

from potluck import metrics
from potluck.core.notes import Figure
from potluck.core.units import duration, percent, plural
from potluck.experiment import Comparison, Run
from potluck.layers import find_source
from potluck.metrics import series
from potluck.report import (
    anomalies,
    cohorts,
    fleet_figures,
    holding_figures,
    note_figures,
    owners,
    per_device,
    round_timeline,
)

LATE = 0.02  # of the time that a run has: a later end shows in a figure


def tell_race(comparison: Comparison) -> str:
    """Who is first, where there is a line to cross."""
    band = " The band spans all seeds." if len(comparison.experiment.seeds) > 1 else ""
    band += _tell_late_ends(comparison)
    if comparison.target is None:
        return f"Look at who is higher at the same time, and who still climbs at the end.{band}"
    if all(comparison.time(run) is None for run in comparison.runs):
        return f"Look at who comes nearest to the dotted line: nobody got there.{band}"
    return (
        "Look at who crosses the dotted line first: that is the time a crowd with these devices "
        f"and links would need.{band}"
    )


def _tell_late_ends(comparison: Comparison) -> str:
    """Why curves of equal time end apart."""
    limit = comparison.experiment.stop.seconds
    if limit is None:
        return ""
    late = [
        name
        for name in comparison.algorithms
        if any(run.summary["virtual_seconds"] > (1 + LATE) * limit for run in comparison.of(name))
    ]
    if not late:
        return ""
    whose = f"{' and '.join(late)} {'ends' if len(late) == 1 else 'end'} later"
    return f" After {duration(limit)} no round begins; {whose}, with last tasks."


def tell_looks(comparison: Comparison) -> str:
    """How exact times to the target are: they are those of evaluations, which lie apart."""
    late: dict[str, float] = {}
    for run in comparison.runs:
        there, when = series(run.lines, "accuracy_mean", run.summary["view"]), comparison.time(run)
        before = [p.time for p in there if when is not None and p.time < when]
        if when is not None and before:
            name = run.summary["algorithm"]
            late[name] = max(late.get(name, 0.0), when - before[-1])
    if not late:
        return ""
    if max(late.values()) - min(late.values()) < 0.1 * max(late.values()):
        far = f"by up to {duration(max(late.values()))}"
    else:
        far = "by up to " + ", ".join(f"{duration(gap)} ({name})" for name, gap in late.items())
    return f"Times to the target are read off evaluations, so that they may be late {far}."


def tell_times(comparison: Comparison) -> str:
    """What bars and dots are."""
    dots = "; dots are seeds" if len(comparison.experiment.seeds) > 1 else ""
    return f"Look at how far bars reach{dots}. {tell_looks(comparison)}"


def tell_devices(comparison: Comparison) -> str:
    """Who is shaded, and who isn't there."""
    attacked = any(r["metric"] == "attackers" for run in comparison.runs for r in run.lines)
    without = "; attackers are left out" if attacked else ""
    return (
        "Look at the left: a curve that falls off steeply there leaves devices behind, whatever its mean. "
        f"Shaded are the worst and the best tenth{without}."
    )


def tell_speeds(run: Run) -> str:
    """What dots are."""
    unlike = " Larger dots hold more rows." if fleet_figures.hold_unlike(run) else ""
    return (
        "Look at the lower right: slow at computing and at sending, these are the stragglers."
        f"{unlike}{count_shown(run)}"
    )


def tell_holdings(run: Run) -> str:
    """How many classes devices know, and in which order they stand."""
    found, crowd = holding_figures.read_holdings(run), run.devices
    if found is None or crowd is None:
        return ""
    known, owned = float((found.first > 0).sum(1).mean()), len(set(crowd.get("user", [-1]))) > 1
    order = "of one user stand together" if owned else "stand in the order of their main class"
    return (
        "Look for rows with few bright cells: devices that know only some classes. On average they know "
        f"{known:.1f} of {found.first.shape[1]}, before anything is trained. Devices {order}."
        f"{count_shown(run)}"
    )


def tell_views(run: Run) -> str:
    """What the views are, in the algorithm's words."""
    words = {view: said for notes in note_figures.read_own(run) for view, said in notes.views.items()}
    views = list(per_device.read_views(run))
    told = [f"“{view}” is {words[view]}" for view in views if view in words]
    for view in views:
        if view not in words and (found := find_source(view, views)) is not None:
            layer, without = found
            told.append(f"“{view}” is “{without}” with the layer {layer}")
    known = f" {'; '.join(told)}." if told else ""
    return (
        "Look at which of these models would serve devices best."
        f"{known} Runs are judged by “{run.summary['view']}”."
    )


def tell_moves(run: Run) -> str:
    """How unlike devices were before and after."""
    found = holding_figures.measure_skews(run)
    numbers = (
        "" if found is None else f" Mean distance from everybody's mix: {found[0]:.2f}, then {found[1]:.2f}."
    )
    return f"Look at whether devices' rows have become more alike from left to right.{numbers}"


def tell_ending(run: Run, figure: Figure) -> str:
    """What a figure came to, in numbers."""
    choices = _tell_agreement(run) if figure.kind == "tree" else ""
    found = series(run.lines, figure.number) if figure.number else []
    name = figure.number.replace("_", " ").capitalize()
    return choices + (f" {name} at the end: {found[-1].value:.2f}." if found else "")


def _tell_agreement(run: Run) -> str:
    """How choices fit the hidden groups, and whose choices these are."""
    seen, every = (cohorts.measure_final_agreement(run, seen=seen) for seen in (True, False))
    told = [
        f"{fits.rand:.2f} over {who} {fits.devices} {what}"
        for fits, who, what in ((seen, "the", "devices ever seen"), (every, "all", "evaluated"))
        if fits is not None
    ]
    if not told:
        return ""
    owned = "".join(map(_tell_owners, owners.measure_owners_agreement(run).items()))
    fit = " Choices fit the hidden groups with an adjusted Rand index (1: the same, 0: by chance) of"
    if seen == every and every is not None:
        return f"{fit} {every.rand:.2f} over all {every.devices} devices.{owned}"
    unseen = "who was never seen uses the cohort with the least loss on its own rows"
    return f"{fit} {' and of '.join(told)}; {unseen}.{owned}"


def _tell_owners(item: tuple[str, owners.OwnersAgreement]) -> str:
    """The same by whoever answers as one, and what no choice of theirs can mend."""
    kind, fits = item
    torn = plural(fits.torn, kind) if fits.torn else f"no {kind}"
    has = "have" if fits.torn > 1 else "has"
    return (
        f" By {kind}, each counted once by what most of its devices choose: {fits.rand:.2f} over "
        f"{plural(fits.owners, kind)}; {torn} {has} devices of several hidden groups."
    )


def tell_judgements(run: Run) -> str:
    """How right they were, as far as the truth is known."""
    truth, refused = anomalies.know_culprits(run), anomalies.read_anomalies(run)
    if truth is not None and not truth:
        count = sum(len(at.nodes) for at in refused)
        return f"Look for devices that are refused again and again: nobody lies, so {_tell_false(count)}."
    numbers = [
        f"{percent(share)} of {whose}"
        for share, whose in (
            (anomalies.measure_precision(run), "those refused were culprits' (precision)"),
            (anomalies.measure_recall(run), "culprits' were refused (recall)"),
        )
        if share is not None
    ]
    rates = f" Of updates, {', and '.join(numbers)}." if numbers else " Who really was at fault isn't known."
    return f"Look for lines of marks: devices that are refused again and again.{rates}"


def _tell_false(count: int) -> str:
    return "the one refusal is a false alarm" if count == 1 else f"all {count:,} refusals are false alarms"


def tell_numbers(run: Run, tier: str | None = None) -> str:
    """What was left out of the panels, and why."""
    steady = note_figures.list_steady(run, tier)
    told = {
        name: f"{value:.4g}" if abs(value) >= 1e-4 or not value else "about 0"
        for name, value in steady.items()
    }
    same = ", ".join(f"{name} ({value})" for name, value in told.items())
    look = (
        "at what changes" if note_figures.count_groups(run, tier) == 1 else "for groups that leave the others"
    )
    hint = f"Look {look}. Every panel shows one number that the algorithm noted"
    more = note_figures.count_more(run, tier)
    rest = f"; {plural(more, 'further number')} {'is' if more == 1 else 'are'} in the records" if more else ""
    return f"{hint}{rest}.{f' Always the same, so without a panel: {same}.' if same else ''}"


def tell_traffic(comparison: Comparison) -> str:
    """Links are compared where there are several tiers of them."""
    tiers = {
        tier
        for run in comparison.runs
        for way in ("up", "down")
        for tier, total in metrics.groups(run.lines, f"bytes_{way}").items()
        if total
    }
    if len(tiers) < 2:
        return "Look at who sends most. Up is towards the cloud."
    return (
        "Look at which links carry the load: those of devices, or those of edges and users above them. "
        "Up is towards the cloud."
    )


def tell_round(run: Run, figure: go.Figure) -> str:
    """Whether anybody waits for the longest."""
    if not round_timeline.has_rounds(run):
        return (
            "Look at how unequal bars are: there are no rounds, and nobody waits. These are the last tasks."
        )
    waits = any(trace.name == "wait" for trace in figure.data)
    top = "the stragglers that all others wait for (grey)" if waits else "the stragglers"
    names = [str(name) for name in figure.data[0].y] if figure.data else []
    count = round_timeline.count_tasks(run)
    some = f" {len(names):,} of its {count:,} tasks are drawn." if len(names) < count else ""
    again = " “(2)” is a device's second task in it." if any(name.endswith(" (2)") for name in names) else ""
    return f"Look at the top: the longest bars are {top}. This round has the median length.{some}{again}"


def count_shown(run: Run) -> str:
    """How many devices of all are drawn, unless all are."""
    crowd = run.devices
    if crowd is None:
        return ""
    shown = len(crowd["nodes"])
    return "" if shown == crowd["devices"] else f" {shown:,} of {crowd['devices']:,} devices."
