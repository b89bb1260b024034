"""The life of groups: cohorts that split, and whatever else was noted of cohorts, tiers, edges or users."""

from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from potluck.experiment import Run
from potluck.report.canvas import COLOURS, blank, clock, colour
from potluck.report.cohorts import hidden, memberships
from potluck.report.words import in_words

ROOT = "all"
LINES = 12  # groups that are told apart; of more, the middle and the extremes are drawn
PANELS = 8  # of things noted
_COUNTERS = ("bytes_up", "bytes_down", "lost")  # by tier or reason: no group's own
_ELSEWHERE = ("split", "guarded", "anomalous", "local_rounds", "tier", "tiers")  # have figures of their own


class Branch(NamedTuple):
    """A cohort from its birth to its split, or to the end."""

    name: str
    parent: str | None
    born: float
    size: int | None  # members that were known at birth


def branches(run: Run) -> dict[str, Branch]:
    """Every cohort that there was, parents first; empty if none split."""
    found: dict[str, Branch] = {}
    for r in run.lines:
        if r["metric"] == "split":
            parent, value = _named(r.get("group")), r["value"]
            sizes = value.get("sizes", {})
            into = value.get("into") or list(sizes)
            known = sizes if isinstance(sizes, dict) else dict(zip(into, sizes, strict=False))
            found.setdefault(parent, Branch(parent, None, 0.0, None))
            for name in map(str, into):
                found[name] = Branch(name, parent, r["time"], known.get(name))
    return found


def tree(run: Run) -> go.Figure | None:
    """Cohorts over time, each a line from its birth on; None if none ever split."""
    every = branches(run)
    if not every:
        return None
    ends = {b.parent: b.born for b in every.values() if b.parent is not None}
    longest = max(run.summary["virtual_seconds"], *ends.values())
    size, unit = clock(longest)
    height = _heights(every)
    figure = blank(f"virtual time ({unit})", "")
    leaves = [name for name in every if name not in ends]
    at_end = _members(run)
    for name, b in every.items():
        end, y = ends.get(name, longest), height[name]
        start = [] if b.parent is None else [(b.born / size, height[b.parent])]
        points = [*start, (b.born / size, y), (end / size, y)]
        shade = colour(leaves.index(name)) if name in leaves else "#808080"
        label = at_end.get(name, "nobody chooses it" if at_end else "")
        born = "" if b.size is None else f"{b.size} devices at its birth"
        figure.add_scatter(
            x=[x for x, _ in points],
            y=[y for _, y in points],
            name=f"cohort {name}",
            mode="lines",
            line={"color": shade, "width": 4},
            text=[born] * len(points),
            hovertemplate=f"cohort {name}<br>%{{text}}<extra></extra>",
            showlegend=False,
        )
        if name in leaves:
            text = f"cohort {name}" + (f": {label}" if label else "")
            figure.add_annotation(x=end / size, y=y, text=text, showarrow=False, xanchor="right", yshift=14)
    figure.update_yaxes(visible=False, range=[0.7 - len(leaves), 0.7])
    figure.update_layout(height=max(260, 140 + 60 * len(leaves)))
    return figure


def noted(run: Run) -> go.Figure | None:
    """What was noted of groups over time, a panel for each thing; None if nothing was."""
    table = _numbers(run)
    if not table:
        return None
    size, unit = clock(max(run.summary["virtual_seconds"], 0.0))
    things = list(table)[:PANELS]
    titles = [in_words(thing) for thing in things]
    figure = make_subplots(
        len(things), 1, shared_xaxes=True, vertical_spacing=0.3 / len(things), subplot_titles=titles
    )
    like = blank("", "").layout
    figure.update_layout(like)
    figure.update_xaxes(gridcolor=like.xaxis.gridcolor, zeroline=False)
    figure.update_yaxes(gridcolor=like.xaxis.gridcolor, zeroline=False)
    names = sorted({name for thing in things for name in table[thing]}, key=_by_number)
    for row, thing in enumerate(things, 1):
        if len(table[thing]) <= LINES:
            for name, points in sorted(table[thing].items(), key=lambda item: names.index(item[0])):
                _line(figure, row, points, size, name, names.index(name), f"{name}, {in_words(thing)}")
        else:
            every = sorted(p for points in table[thing].values() for p in points)
            _range(figure, row, every, size, len(table[thing]))
    figure.update_xaxes(title_text=f"virtual time ({unit})", row=len(things), col=1)
    figure.update_annotations(x=0, xanchor="left")
    figure.update_layout(height=140 + 170 * len(things), legend_y=1 + 0.3 / len(things), margin_t=60)
    return figure


def name_of(run: Run, group: Any) -> str:
    """An aggregator by its tier and number; other groups as they call themselves."""
    tiers: dict[str, int] = (run.devices or {}).get("tiers", {})
    if not isinstance(group, int) or not tiers or group < tiers["cloud"]:
        return ROOT if group in ("", None) else str(group)
    tier = max((name for name in tiers if tiers[name] <= group), key=lambda name: tiers[name])
    return tier if tier == "cloud" else f"{tier} {group - tiers[tier]}"


def _by_number(name: str) -> tuple[str, int]:
    """Edge 2 before edge 10."""
    words = name.rstrip("0123456789")
    return words, int(name[len(words) :] or -1)


def _named(group: Any) -> str:
    return ROOT if group in ("", None) else str(group)


def _heights(every: dict[str, Branch]) -> dict[str, float]:
    """Leaves one below another, parents between their children."""
    children: dict[str, list[str]] = {}
    for b in every.values():
        if b.parent is not None:
            children.setdefault(b.parent, []).append(b.name)
    height: dict[str, float] = {}
    below = 0

    def place(name: str) -> float:
        nonlocal below
        if name not in children:
            height[name] = float(-below)
            below += 1
        else:
            height[name] = float(np.mean([place(child) for child in children[name]]))
        return height[name]

    for b in every.values():
        if b.parent is None:
            place(b.name)
    return height


def _members(run: Run) -> dict[str, str]:
    """Who would choose which cohort at the end, by hidden group where that is known."""
    at, truth = memberships(run.lines), hidden(run.lines)
    if not at:
        return {}
    who: dict[str, list[int]] = {}
    for node, name in at[-1].chosen.items():
        who.setdefault(_named(name), []).append(node)
    out = {}
    for name, nodes in who.items():
        kinds = sorted((truth[n] for n in nodes if n in truth), key=int)
        mix = ", ".join(f"{kinds.count(k)} of hidden group {k}" for k in dict.fromkeys(kinds))
        out[name] = f"{len(nodes)} devices" + (f" ({mix})" if mix else "")
    return out


def _numbers(run: Run) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """By thing and group: when, and how much; of lists of devices their length, of tables each number."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for r in run.lines:
        if "group" not in r or r["metric"] in (*_COUNTERS, *_ELSEWHERE):
            continue
        value, name = r["value"], r["metric"]
        parts = value if isinstance(value, dict) else {"": value}
        for key, own in parts.items():
            devices = isinstance(own, list) and all(isinstance(node, int) for node in own)
            number = len(own) if devices else own
            if isinstance(number, int | float):
                thing = found.setdefault(f"{name} {key}".strip(), {})
                thing.setdefault(name_of(run, r["group"]), []).append((r["time"], float(number)))
    return found


def _line(
    figure: go.Figure,
    row: int,
    points: list[tuple[float, float]],
    size: int,
    name: str,
    place: int,
    label: str,
) -> None:
    figure.add_scatter(
        x=[time / size for time, _ in points],
        y=[number for _, number in points],
        name=name,
        legendgroup=name,
        showlegend=not any(trace.name == name for trace in figure.data),
        mode="lines+markers",
        marker={"size": 4},
        line={"color": colour(place), "width": 1.5, "dash": "solid" if place < len(COLOURS) else "dot"},
        hovertemplate=f"{label}: %{{y:.4g}}<extra></extra>",
        row=row,
        col=1,
    )


def _range(figure: go.Figure, row: int, points: list[tuple[float, float]], size: int, count: int) -> None:
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
            line={"color": colour(0), "dash": style, "width": 1.5},
            row=row,
            col=1,
        )
