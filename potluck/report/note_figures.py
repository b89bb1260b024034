"""What algorithms noted, in plain words: numbers of groups over time, and figures of a note's own.

Which notes there are and how they read, algorithms say themselves (`NOTES`); here are those that parts of
several algorithms write.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from potluck.algorithms import canonical, find_notes
from potluck.core.colours import OTHERS
from potluck.core.errors import ConfigError
from potluck.core.notes import Figure, Notes
from potluck.core.records import Record
from potluck.experiment import Run
from potluck.report.canvas import INK, SHADES, make_figure, pick_shade, pick_time_unit
from potluck.report.cohorts import ROOT
from potluck.report.floors import list_rules
from potluck.report.hierarchy import find_tier, name_group

Curves: TypeAlias = dict[str, list[tuple[float, float]]]  # by group: when, and how much

LINES = 12  # groups that are told apart; of more, the middle and the extremes are drawn
ROUNDING = 1e-5  # of a number
PANELS = 8  # of things noted
COLUMNS = 200  # moments in a picture
_COUNTERS = ("bytes_up", "bytes_down", "lost")  # by tier or reason: no group's own
_ELSEWHERE = ("guarded", "anomalous", "tiers")  # have figures of their own
WORDS = {
    "anomalous_members": "users or edges whose updates were refused",
    "mixed": "distance of its model from the cloud's",
    "train_loss": "loss in training",
}
FIGURES = (
    Figure(
        "tree",
        "split",
        "The tree of cohorts",
        "Look at when a cohort splits, and whether its parts are of one hidden group each.",
    ),
    Figure(
        "tiers",
        "tier",
        "Who is in which tier",
        "Look at steps: devices that were given another tier after they had been seen to be slower or faster "
        "than they said.",
    ),
    Figure(
        "stretches",
        "local_rounds",
        "Rounds of the edges' own",
        "Look at the colours, and at numbers where there is room: rounds that an edge trained between two "
        "models of the cloud's. Long stretches with few rounds are slow edges.",
    ),
)


def read_notes(run: Run) -> Notes:
    """How a run's notes read: as its own algorithms say, else as others do whose notes bear that name.

    An algorithm may be built from another one, or around it, and then writes that one's notes.
    """
    words, figures = dict(WORDS), {figure.note: figure for figure in FIGURES}
    for notes in (*find_notes().values(), *read_own(run)):
        words |= notes.words
        figures |= {figure.note: figure for figure in notes.figures}
    return Notes(words, tuple(figures.values()))


def read_own(run: Run) -> list[Notes]:
    """What the algorithms that a run is built from say of their notes, the base rule first."""
    return [notes for name in list_rules(run) if (notes := read_of(name)) != Notes()]


def read_of(algorithm: str) -> Notes:
    """What an algorithm says of its notes; nothing where it isn't known."""
    try:
        return find_notes().get(canonical(algorithm), Notes())
    except ConfigError:  # the code of an algorithm from outside isn't at hand
        return Notes()


def list_tiers(run: Run) -> list[str]:
    """The tiers whose aggregators noted numbers; "" stands for groups of the cloud's."""
    groups = {r.get("group") for r in run.lines if any(list_numbers(r))}
    return sorted({find_tier(run, group) for group in groups})


def draw_numbers(run: Run, tier: str | None = None) -> go.Figure | None:
    """What groups noted over time, a panel for each number; None if there is none.

    `tier`: of this one's aggregators alone; None: of all groups.
    """
    table, words = _read_changing(run, tier), read_notes(run).words
    if not table:
        return None
    size, unit = pick_time_unit(max(run.summary["virtual_seconds"], 0.0))
    things = list(table)[:PANELS]
    titles = {thing: _name_thing(thing, words) for thing in things}
    figure = make_subplots(
        len(things),
        1,
        shared_xaxes=True,
        vertical_spacing=0.3 / len(things),
        subplot_titles=list(titles.values()),
    )
    like = make_figure("", "").layout
    figure.update_layout(like)
    figure.update_xaxes(gridcolor=like.xaxis.gridcolor, zeroline=False)
    figure.update_yaxes(gridcolor=like.xaxis.gridcolor, zeroline=False, exponentformat="none")
    groups = {name for thing in things for name in table[thing]}
    names = sorted(groups, key=lambda name: (*_split_number(name), name))  # cohort 01 isn't cohort 1
    parts = [name for name in names if name != ROOT] or names  # the whole is grey beside its parts
    last = max(time for thing in things for points in table[thing].values() for time, _ in points)
    figure.update_xaxes(range=[0, 1.02 * last / size])
    for row, thing in enumerate(things, 1):
        if len(table[thing]) <= LINES:
            for name, points in sorted(table[thing].items(), key=lambda item: names.index(item[0])):
                place = _find_place(name, parts)
                _draw_line(figure, row, points, size, name, place, f"{name}, {titles[thing]}")
        else:
            every = sorted(p for points in table[thing].values() for p in points)
            _draw_range(figure, row, every, size, len(table[thing]))
    figure.update_xaxes(title_text=f"virtual time ({unit})", row=len(things), col=1)
    figure.update_layout(showlegend=len(names) > 1)
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_layout(height=140 + 170 * len(things), legend_y=1 + 0.3 / len(things), margin_t=60)
    return figure


def list_steady(run: Run, tier: str | None = None) -> dict[str, float]:
    """Numbers that are the same in every group and at all times, by their names: they have no panel."""
    words = read_notes(run).words
    found = {
        thing: min(n for points in groups.values() for _, n in points)
        for thing, groups in _read_numbers(run, tier).items()
        if not _change(groups)
    }
    return {_name_thing(thing, words): n for thing, n in found.items()}


def count_groups(run: Run, tier: str | None = None) -> int:
    """How many groups have a curve."""
    return len({name for groups in _read_changing(run, tier).values() for name in groups})


def count_more(run: Run, tier: str | None = None) -> int:
    """How many numbers there are beyond those that have a panel."""
    return max(0, len(_read_changing(run, tier)) - PANELS)


def draw_counts(run: Run, note: str, each: str) -> go.Figure | None:
    """Lists of counts over time, as shares of the largest one; None if none was noted."""
    every = [r for r in run.lines if r["metric"] == note and isinstance(r["value"], list)]
    if not every:
        return None
    step = -(-len(every) // COLUMNS)
    some = every[::-1][::step][::-1]  # the last one is always there
    size, unit = pick_time_unit(some[-1]["time"])
    figure = make_figure(f"virtual time ({unit})", each)
    counts = [r["value"] for r in some]
    names = [str(c) for c in range(len(counts[0]))]
    figure.add_heatmap(
        x=[r["time"] / size for r in some],
        y=names,
        z=[[mine[c] / max(1, *mine) for mine in counts] for c in range(len(names))],
        customdata=[[mine[c] for mine in counts] for c in range(len(names))],
        name=f"share of the most trained {each}'s {note}",
        zmin=0,
        zmax=1,
        colorscale=SHADES,
        colorbar={
            "title": {"text": "of the most"},
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0 %", "25 %", "50 %", "75 %", "100 %"],
        },
        hovertemplate=f"{each} %{{y}}: %{{customdata}} {note}<extra></extra>",
    )
    figure.update_yaxes(type="category", showgrid=False)
    return figure


def _find_place(name: str, parts: list[str]) -> int | None:
    """Of a group's colour: its number where these are small, so that class 6 has one colour on a page."""
    if name not in parts:
        return None
    own = [_split_number(each)[1] for each in parts]
    # Cohort 10 is a part of cohort 1, and stands in its place.
    small = sorted(set(own)) == sorted(own) and 0 <= min(own) <= max(own) < 10
    return own[parts.index(name)] if small else parts.index(name)


def _split_number(name: str) -> tuple[str, int]:
    """Edge 2 before edge 10."""
    words = name.rstrip("0123456789")
    return words, int(name[len(words) :] or -1)


def _name_thing(thing: str, words: Mapping[str, str]) -> str:
    return words.get(thing, thing.replace("_", " "))


def _read_changing(run: Run, tier: str | None) -> dict[str, Curves]:
    """All but what is the same in every group and at all times."""
    return {thing: groups for thing, groups in _read_numbers(run, tier).items() if _change(groups)}


def _change(groups: Curves) -> bool:
    """By more than the last digits of numbers that were added up in another order."""
    every = [n for points in groups.values() for _, n in points]
    return max(every) - min(every) > ROUNDING * max(map(abs, every))


def _read_numbers(run: Run, tier: str | None = None) -> dict[str, Curves]:
    """By thing and group: when, and how much; of lists of devices their length, of tables each number."""
    drawn = {figure.note: figure.kind for figure in read_notes(run).figures}
    word = next((notes.group for notes in read_own(run) if notes.group), "")
    found: dict[str, Curves] = {}
    for r in run.lines:
        name, group = r["metric"], r.get("group")
        if name in drawn and (drawn[name] != "counts" or isinstance(r["value"], list)):  # in its own figure
            continue
        for thing, number in list_numbers(r):
            if tier in (None, find_tier(run, group)):
                groups = found.setdefault(thing, {})
                shown = name_numbered(name_group(run, group), word)
                groups.setdefault(shown, []).append((r["time"], number))
    return found


def name_numbered(name: str, word: str) -> str:
    """A group that has a number alone by what it is, too: class 3."""
    return f"{word} {name}" if word and name[:1].isdigit() else name


def list_numbers(r: Record) -> Iterator[tuple[str, float]]:
    """What a group noted: of lists of devices their length, of tables each number."""
    value, name = r["value"], r["metric"]
    if "group" not in r or name in (*_COUNTERS, *_ELSEWHERE):
        return
    for key, own in (value if isinstance(value, dict) else {"": value}).items():
        devices = isinstance(own, list) and all(isinstance(node, int) for node in own)
        number = len(own) if devices else own
        if isinstance(number, int | float):
            yield f"{name} {key}".strip(), float(number)


def _draw_line(
    figure: go.Figure,
    row: int,
    points: list[tuple[float, float]],
    size: int,
    name: str,
    place: int | None,
    label: str,
) -> None:
    figure.add_scatter(
        x=[time / size for time, _ in points],
        y=[number for _, number in points],
        name=name,
        legendgroup=name,
        showlegend=not any(trace.name == name for trace in figure.data),
        mode="lines+markers",
        marker={"size": 4 if len(points) > 1 else 8},
        line={
            "color": INK if place is None else pick_shade(place),
            "width": 1.5,
            "dash": "solid" if place is None or place < len(OTHERS) else "dot",
        },
        hovertemplate=f"{label}: %{{y:.4g}}<extra></extra>",
        row=row,
        col=1,
    )


def _draw_range(
    figure: go.Figure, row: int, points: list[tuple[float, float]], size: int, count: int
) -> None:
    """Of many groups: the middle, the least and the greatest in each of forty stretches of time."""
    times, numbers = (np.array(column) for column in zip(*points, strict=True))
    stretch = np.minimum(39, (40 * times / max(times.max(), 1e-9)).astype(int))
    places = np.unique(stretch)
    for name, at, style in (("least", 0.0, "dot"), ("middle", 0.5, "solid"), ("greatest", 1.0, "dot")):
        figure.add_scatter(
            x=[float(times[stretch == s].mean()) / size for s in places],
            y=[float(np.quantile(numbers[stretch == s], at)) for s in places],
            name=f"{name} of {count} groups",
            legendgroup=name,
            showlegend=row == 1,
            mode="lines",
            line={"color": pick_shade(0), "dash": style, "width": 1.5},
            row=row,
            col=1,
        )
