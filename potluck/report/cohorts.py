"""Cohorts, from a run's records: how they split, who would choose which, and how that fits hidden groups."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from potluck.core.records import Group, Record
from potluck.experiment import Run
from potluck.metrics import Measurement, headline, series, time_to, totals
from potluck.report.canvas import make_figure, pick_shade, pick_time_unit

ROOT = "all"


class Branch(NamedTuple):
    """A cohort from its birth to its split, or to the end."""

    name: str
    parent: str | None
    born: float
    size: int | None  # members that were known at birth


class Membership(NamedTuple):
    """What devices would choose at one evaluation."""

    round: int
    time: float
    chosen: dict[int, str]
    times: dict[int, float]  # how often each has trained

    @property
    def seen(self) -> list[int]:
        """Devices that have ever trained."""
        return [node for node, times in self.times.items() if times > 0]

    @property
    def parted(self) -> bool:
        """Whether there was more than one cohort to choose from."""
        return any(name_cohort(name) != ROOT for name in self.chosen.values())


class Agreement(NamedTuple):
    """How choices fit hidden groups: the adjusted Rand index, and over how many devices."""

    rand: float
    devices: int


def read_memberships(records: Iterable[Record]) -> list[Membership]:
    """One for each evaluation at which devices chose."""
    found: dict[tuple[int, float], Membership] = {}
    for r in records:
        if r["metric"] == "chosen":
            at = found.setdefault((r["round"], r["time"]), Membership(r["round"], r["time"], {}, {}))
            at.chosen[r["node"]] = r["value"]["name"]
            at.times[r["node"]] = r["value"].get("times", 0.0)
    return list(found.values())


def read_hidden_groups(records: Iterable[Record]) -> dict[int, int]:
    """The hidden group of every evaluated device, if there are groups."""
    return {r["node"]: r["value"] for r in records if r["metric"] == "hidden_group"}


def measure_agreement(at: Membership, truth: dict[int, int], *, seen: bool) -> Agreement | None:
    """Over devices ever seen, or over all that were evaluated.

    A device never seen counts by the cohort whose model it would use: that of least loss on its own rows.
    None where any index would be an artefact: before the first split, with one hidden group among these
    devices, or where only some devices choose (those that a rule has sorted don't).
    """
    nodes = at.seen if seen else list(at.chosen)
    if not at.parted or truth.keys() != at.chosen.keys() or len({truth[node] for node in nodes}) < 2:
        return None
    from sklearn.metrics import adjusted_rand_score  # here: it takes a second to import

    index = adjusted_rand_score([truth[n] for n in nodes], [at.chosen[n] for n in nodes])
    return Agreement(float(index), len(nodes))


def measure_final_agreement(run: Run, *, seen: bool) -> Agreement | None:
    """Of a run's last evaluation; None without cohorts or groups."""
    at, truth = read_memberships(run.lines), read_hidden_groups(run.lines)
    return measure_agreement(at[-1], truth, seen=seen) if at else None


def count_seen(run: Run) -> float | None:
    """How many of the evaluated devices have trained by the end."""
    at = read_memberships(run.lines)
    return float(len(at[-1].seen)) if at else None


def count_evaluated(run: Run) -> float | None:
    """How many devices are evaluated, all or a panel of them; None where they don't choose."""
    at = read_memberships(run.lines)
    return float(len(at[-1].chosen)) if at else None


def count_cohorts(run: Run) -> float:
    """How many cohorts there are at the end: as the last split says, or as many models as were chosen."""
    count, models = 1.0, set()
    for r in run.lines:
        if r["metric"] == "split":
            count = float(r["value"]["groups"])
        elif r["metric"] == "chose":
            models.add(r["group"])
    return max(count, float(len(models)))


def find_best(run: Run) -> float | None:
    """The best mean accuracy at any evaluation."""
    points = series(run.lines, "accuracy_mean", headline(run.lines))
    return max((p.value for p in points), default=None)


def find_time_and_effort(run: Run, target: float) -> tuple[float | None, float | None]:
    """Virtual seconds and device-seconds until a target; None each if it was never reached."""
    when = time_to(series(run.lines, "accuracy_mean", headline(run.lines)), target)
    spent = [p for p in totals(run.lines, "device_seconds") if when is not None and p.time >= when]
    return when, spent[0].value if spent else None


def trace_agreement(run: Run, *, seen: bool) -> list[Measurement]:
    """The index at every evaluation that has one."""
    truth = read_hidden_groups(run.lines)
    found = ((at, measure_agreement(at, truth, seen=seen)) for at in read_memberships(run.lines))
    return [Measurement(at.round, at.time, fits.rand) for at, fits in found if fits is not None]


def read_branches(run: Run, note: str = "split") -> dict[str, Branch]:
    """Every cohort that there was, parents first; empty if none split."""
    found: dict[str, Branch] = {}
    for r in run.lines:
        if r["metric"] == note:
            parent, value = name_cohort(r.get("group")), r["value"]
            sizes = value.get("sizes", {})
            into = value.get("into") or list(sizes)
            known = sizes if isinstance(sizes, dict) else dict(zip(into, sizes, strict=False))
            found.setdefault(parent, Branch(parent, None, 0.0, None))
            for name in map(str, into):
                found[name] = Branch(name, parent, r["time"], known.get(name))
    return found


def draw_tree(run: Run, note: str = "split") -> go.Figure | None:
    """Cohorts over time, each a line from its birth on; None if none ever split."""
    every = read_branches(run, note)
    if not every:
        return None
    ends = {b.parent: b.born for b in every.values() if b.parent is not None}
    longest = max(run.summary["virtual_seconds"], *ends.values())
    size, unit = pick_time_unit(longest)
    height = _find_heights(every)
    figure = make_figure(f"virtual time ({unit})", "")
    leaves = [name for name in every if name not in ends]
    at_end = _describe_members(run)
    for name, b in every.items():
        end, y = ends.get(name, longest), height[name]
        start = [] if b.parent is None else [(b.born / size, height[b.parent])]
        points = [*start, (b.born / size, y), (end / size, y)]
        shade = pick_shade(leaves.index(name)) if name in leaves else "#808080"
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
            # Away from where its line comes from, which a long name would lie across on a phone.
            lower = b.parent is not None and y < height[b.parent]
            away = {"yanchor": "top", "yshift": -3} if lower else {"yanchor": "bottom", "yshift": 3}
            figure.add_annotation(x=end / size, y=y, text=text, showarrow=False, xanchor="right", **away)
    figure.update_yaxes(visible=False, range=[0.55 - len(leaves), 0.6])
    figure.update_layout(height=max(260, 140 + 60 * len(leaves)))
    return figure


def name_cohort(group: Group | None) -> str:
    return ROOT if group in ("", None) else str(group)


def _find_heights(every: dict[str, Branch]) -> dict[str, float]:
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


def _describe_members(run: Run) -> dict[str, str]:
    """Who would choose which cohort at the end, by hidden group where that is known."""
    at, truth = read_memberships(run.lines), read_hidden_groups(run.lines)
    if not at:
        return {}
    who: dict[str, list[int]] = {}
    for node, name in at[-1].chosen.items():
        who.setdefault(name_cohort(name), []).append(node)
    out = {}
    for name, nodes in who.items():
        kinds = sorted((truth[n] for n in nodes if n in truth), key=int)
        mix = ", ".join(f"{kinds.count(k)} of hidden group {k}" for k in dict.fromkeys(kinds))
        out[name] = f"{len(nodes)} devices" + (f" ({mix})" if mix else "")
    return out
