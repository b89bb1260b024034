"""What a report shows, in order: every figure that a comparison or a run has something to say in."""

from collections.abc import Callable, Iterator

import plotly.graph_objects as go

from potluck.experiment import Comparison, Run
from potluck.report import (
    anomalies,
    counters,
    curves,
    edges,
    groups,
    holdings,
    judged,
    tiers,
    traffic,
)
from potluck.report import fleet as fleets
from potluck.report import (
    per_device as people,
)
from potluck.report import (
    round_timeline as anatomy,
)
from potluck.report.canvas import Drawn
from potluck.report.cohorts import final_agreement
from potluck.report.gather import alike
from potluck.report.units import percent


def contents(comparison: Comparison) -> list[Drawn]:
    """All figures that apply; those that don't are left out."""
    found = [*_race(comparison), *_crowd(comparison), *_lives(comparison), *_costs(comparison)]
    return [Drawn(title, figure, hint) for title, figure, hint in found if figure is not None and figure.data]


Maybe = tuple[str, go.Figure | None, str]


def _race(comparison: Comparison) -> Iterator[Maybe]:
    """What was reached, when, and for whom."""
    band = " The band spans all seeds." if len(comparison.experiment.seeds) > 1 else ""
    yield (
        "Accuracy over time",
        _drawn(curves.over_time(comparison)),
        "Look at who crosses the dotted line first: that is the time a crowd with these devices "
        f"and links would need.{band}",
    )
    yield (
        "Time to the target",
        curves.to_target(comparison),
        "Look for the shortest bar. A bar is drawn for algorithms that got there with every seed; "
        "dots are the seeds.",
    )
    yield (
        "Accuracy over traffic",
        _drawn(curves.over_bytes(comparison)),
        "Look at who is further left at the same height: it pays less traffic for the same accuracy.",
    )
    yield (
        "Accuracy over rounds",
        _drawn(curves.over_rounds(comparison)),
        "Look at how much each change of the model brings; asynchronous methods take many small steps, "
        "so more rounds don't mean more time.",
    )
    yield (
        "Who is served well",
        people.over_devices(comparison),
        "Look at how far the left end lies from the dot: the worst-served tenth of the devices "
        "pays for a good mean.",
    )
    yield (
        "Every device's accuracy",
        people.served(comparison),
        "Look at the left: a curve that falls off steeply there leaves devices behind, whatever its mean. "
        "Shaded are the worst and the best tenth; attackers are left out.",
    )


def _crowd(comparison: Comparison) -> Iterator[Maybe]:
    """Who takes part: once if it is the same for all, else for each."""
    drawn = [run for run in _firsts(comparison) if run.devices is not None]
    for run in drawn[:1] if alike(comparison) else drawn:
        name = "" if alike(comparison) else f": {run.summary['algorithm']}"
        yield (
            f"The fleet{name}",
            fleets.speeds(run),
            "Look at the lower right: slow at computing and at sending, these are the stragglers. "
            f"Both axes are logarithmic; larger dots hold more rows.{_some(run)}",
        )
        yield (
            f"Who holds what{name}",
            holdings.before(run),
            "Look for rows with few bright cells: devices that know only some classes. "
            f"This is before anything is trained.{_some(run)}",
        )


def _lives(comparison: Comparison) -> Iterator[Maybe]:
    """What became of groups and of data, algorithm by algorithm, each with its first seed."""
    several = len(comparison.algorithms) > 1
    for run in _firsts(comparison):
        name = f": {run.summary['algorithm']}" if several else ""
        seed = f" Seed {run.summary['seed']}." if len(comparison.of(run.summary["algorithm"])) > 1 else ""
        for title, draw, hint in _OF_A_RUN:
            figure = draw(run)
            yield f"{title}{name}", figure, f"{hint(run) if figure is not None else ''}{seed}"


def _costs(comparison: Comparison) -> Iterator[Maybe]:
    """What it took."""
    yield (
        "Traffic by tier",
        traffic.by_tier(comparison),
        "Look at which links carry the load: those of devices, or those of edges and users above them. "
        "Up is towards the cloud.",
    )
    yield (
        "Where a task's time goes",
        anatomy.shares(comparison),
        "Look at the pale part: time in which devices are done and wait for slower ones. "
        "Mean over the last tasks of a run.",
    )
    several = len(comparison.algorithms) > 1
    for run in _firsts(comparison):
        name = f": {run.summary['algorithm']}" if several else ""
        if anatomy.in_rounds(run):
            hint = "Look at the top: the longest bars are the stragglers that all others wait for (pale)."
            yield f"The anatomy of a round{name}", anatomy.a_round(run), f"{hint} A round of middling length."
        else:
            hint = (
                "Look at how unequal bars are: here nobody waits for the longest. The last tasks of the run."
            )
            yield f"The anatomy of tasks{name}", anatomy.a_round(run), hint


def _tree(run: Run) -> str:
    found = final_agreement(run)
    fits = (
        "" if found is None else f" Choices fit the hidden groups with an adjusted Rand index of {found:.2f}."
    )
    return f"Look at when a cohort splits, and whether its parts are of one hidden group each.{fits}"


def _classes(run: Run) -> str:
    found = counters.imbalance(run)
    told = "" if found is None else f" Imbalance at the end: {found:.2f}."
    return f"Look for dark rows: classes whose detectors are trained less often than the others'.{told}"


def _judgements(run: Run) -> str:
    told = [
        f"{name} {percent(share)}"
        for name, share in (("precision", anomalies.precision(run)), ("recall", anomalies.recall(run)))
        if share is not None
    ]
    numbers = f" Of updates, {' and '.join(told)}." if told else " Who really was at fault isn't known."
    return f"Look for lines of marks: devices that are refused again and again.{numbers}"


def _moved(run: Run) -> str:
    found = holdings.evened(run)
    told = (
        "" if found is None else f" Mean distance from everybody's mix: {found[0]:.2f}, then {found[1]:.2f}."
    )
    return f"Look at whether devices' rows have become more alike from left to right.{told}"


_OF_A_RUN: tuple[tuple[str, Callable[[Run], go.Figure | None], Callable[[Run], str]], ...] = (
    (
        "What each view reaches",
        people.views,
        lambda run: (
            "Look at which model a device would best use: its own, its edge's or the one for all. "
            f"Runs are judged by “{run.summary['view']}”."
        ),
    ),
    ("Rows before and after", holdings.before_and_after, _moved),
    ("The tree of cohorts", groups.tree, _tree),
    (
        "The fleet by tier",
        fleets.by_tier,
        lambda run: "Look at whether tiers part the fast from the slow, here at the end of the run.",
    ),
    (
        "Who is in which tier",
        tiers.sizes,
        lambda run: (
            "Look at steps: devices that were given another tier after they had been seen to be "
            "slower or faster than they said."
        ),
    ),
    ("How often classes were trained", counters.classes, _classes),
    (
        "Rounds of the edges' own",
        edges.local_rounds,
        lambda run: (
            "Look at the numbers: rounds that an edge trained between two models of the cloud's. "
            "Long stretches with few rounds are slow edges."
        ),
    ),
    ("Who was judged anomalous", judged.judgements, _judgements),
    (
        "What was noted of groups",
        groups.noted,
        lambda run: (
            "Look for groups that part from the others. Every panel is one thing that the algorithm noted."
        ),
    ),
)


def _firsts(comparison: Comparison) -> list[Run]:
    """Of each algorithm the first seed's run."""
    return [comparison.of(name)[0] for name in comparison.algorithms]


def _some(run: Run) -> str:
    crowd = run.devices or {"devices": 0, "nodes": []}
    shown = len(crowd["nodes"])
    return "" if shown == crowd["devices"] else f" {shown:,} of {crowd['devices']:,} devices."


def _drawn(figure: go.Figure) -> go.Figure | None:
    """None if all curves are empty."""
    return figure if any(trace.x is not None and len(trace.x) for trace in figure.data) else None
