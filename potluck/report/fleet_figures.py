"""Who is how fast: devices before training, and a run's by tier or by whom they hang below."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from potluck.core.colours import OTHERS
from potluck.core.job import ModelSpec
from potluck.core.units import duration, plural, size
from potluck.experiment import Experiment, Run
from potluck.federation import Federation
from potluck.fleet import (
    TRAINING_FACTOR,
    Profiles,
    Topology,
    compute_seconds,
    list_machines,
    transfer_seconds,
)
from potluck.report.canvas import (
    GRID,
    LOOKED_AT,
    Facts,
    ReportFigure,
    make_figure,
    make_logarithmic,
    pick_shade,
    pick_size_unit,
)
from potluck.report.tiers import find_last_tiers

SHOWN = 12  # groups that colours and a legend can tell apart
ALIKE = 1.1  # times apart: what is closer isn't drawn as if it differed
BARS = 200  # devices in a picture; more would be narrower than a pixel


def draw_by_tier(run: Run) -> go.Figure | None:
    """Every device by what tiers are cut by, a panel each, in the line of its tier; None without tiers."""
    tiers, crowd = find_last_tiers(run), run.devices
    if crowd is None or not tiers:
        return None
    where = {n: f"tier {tiers[n]}" if n in tiers else "no tier" for n in crowd["nodes"]}
    names = sorted(set(where.values()), key=lambda name: (name == "no tier", name))
    length, unit = pick_size_unit(max(crowd["memory"]))
    columns = (
        ("compute (ms a sample)", np.array(crowd["compute"])),
        ("upload (Mbit/s)", np.array(crowd["up"]) / 1e6),
        (f"memory ({unit})", np.array(crowd["memory"]) / length),
        ("rows", np.array(crowd["rows"]).sum(1)),
    )
    shown = [(label, values) for label, values in columns if values.max() > ALIKE * values.min()]
    if not shown:
        return None
    each, between = 30 * len(names), 70  # pixels: of a panel, and of its ticks and title
    inside = len(shown) * each + (len(shown) - 1) * between
    figure = make_subplots(len(shown), 1, vertical_spacing=between / inside if len(shown) > 1 else 0)
    figure.update_layout(make_figure("", "").layout, height=inside + 90)
    for row, (label, values) in enumerate(shown, 1):
        for i, name in enumerate(names):
            mine = [(n, v) for n, v in zip(crowd["nodes"], values, strict=True) if where[n] == name]
            figure.add_scatter(
                x=[value for _, value in mine],
                y=[name] * len(mine),
                name=f"{name} ({plural(len(mine), 'device')})",
                legendgroup=name,
                showlegend=row == 1,
                mode="markers",
                marker={"color": pick_shade(i), "opacity": 0.6, "size": 10},
                text=[f"device {n}" for n, _ in mine],
                hovertemplate=f"%{{text}}: %{{x:.3g}}, {label}<extra>{name}</extra>",
                row=row,
                col=1,
            )
        axis = next(figure.select_xaxes(row=row))
        axis.update(title_text=label, gridcolor=GRID, zeroline=False, title_standoff=4)
        make_logarithmic(axis, values.tolist())
    figure.update_yaxes(
        type="category", categoryarray=names[::-1], categoryorder="array", gridcolor=GRID, automargin=True
    )
    return figure


def find_owners(run: Run) -> dict[int, str]:
    """Of each device: its edge, else its user; empty if there are none or too many."""
    crowd = run.devices
    if crowd is None:
        return {}
    for kind, owners in (("edge", crowd.get("edge", [])), ("user", crowd.get("user", []))):
        if 1 < len(set(owners)) <= SHOWN:
            pairs = zip(crowd["nodes"], owners, strict=True)
            return {node: f"{kind} {at}" if at >= 0 else f"no {kind}" for node, at in pairs}
    return {}


def hold_unlike(run: Run) -> bool:
    """Whether some devices hold more rows than others."""
    rows = np.zeros(1) if run.devices is None else np.array(run.devices["rows"]).sum(1)
    return bool(rows.max() > ALIKE * rows.min())


def draw_speeds(run: Run) -> go.Figure | None:
    """Every device by compute and upload rate, coloured by edge or else user; None if all are alike."""
    groups, crowd = find_owners(run), run.devices
    if crowd is None or len(set(zip(crowd["compute"], crowd["up"], strict=True))) < 2:
        return None
    nodes = np.array(crowd["nodes"])
    compute, up = np.array(crowd["compute"]), np.array(crowd["up"]) / 1e6
    rows = np.array(crowd["rows"]).sum(1)
    sizes = 6 + 14 * np.sqrt(rows / max(1, rows.max()))
    figure = make_figure("compute (ms a sample; right is slower)", "upload (Mbit/s; down is slower)")
    names = dict.fromkeys(groups[int(n)] if groups else "devices" for n in nodes)
    for i, name in enumerate(sorted(names)):
        mine = np.array([not groups or groups[int(n)] == name for n in nodes])
        figure.add_scatter(
            x=compute[mine],
            y=up[mine],
            name=name,
            mode="markers",
            marker={"color": pick_shade(i), "opacity": 0.7, "size": sizes[mine]},
            text=[f"device {n}, {count} rows" for n, count in zip(nodes[mine], rows[mine], strict=True)],
            hovertemplate="%{text}<br>%{x:.3g} ms a sample, %{y:.3g} Mbit/s<extra>" + name + "</extra>",
        )
    figure.update_layout(showlegend=len(names) > 1)
    make_logarithmic(figure.layout.xaxis, compute)
    make_logarithmic(figure.layout.yaxis, up)
    return figure


def list_fleet_facts(federation: Federation, experiment: Experiment) -> Facts:
    """Who is how fast, in numbers; a round is one local epoch of the experiment's model."""
    p, fleet = _find_profiles(federation), federation.fleet
    parts = _estimate_seconds(federation, experiment)
    total = parts.sum(0)
    online = fleet.availability.online_many(np.arange(min(len(fleet), LOOKED_AT)), 0.0)
    spread = (("compute", p.compute, "ms a sample"), ("up", p.up / 1e6, "Mbit/s"))
    more = (("down", p.down / 1e6, "Mbit/s"), ("latency", p.latency * 1e3, "ms one way"))
    facts = [(name, _tell_range(column, unit)) for name, column, unit in (*spread, *more)]
    facts += [
        ("memory", f"{size(float(p.memory.min()))} to {size(float(p.memory.max()))}"),
        ("online at first", f"{online.mean():.0%}"),
        ("users, edges", ", ".join(f"{len(np.unique(g[g >= 0])):,}" for g in (fleet.user, fleet.edge))),
        ("a task takes", f"{duration(float(np.median(total)))} median, {duration(float(total.max()))} worst"),
        ("of it computing", f"{(parts[1] / total).mean():.0%}, the rest is transfer"),
    ]
    return facts


def draw_fleet(federation: Federation, experiment: Experiment) -> list[ReportFigure]:
    """Who is how fast before anything is trained, drawn."""
    nodes = np.linspace(0, len(federation.fleet) - 1, min(len(federation.fleet), LOOKED_AT)).astype(int)
    p, parts = _find_profiles(federation).take(nodes), _estimate_seconds(federation, experiment)[:, nodes]
    dots = make_figure("compute (ms a sample)", "upload (Mbit/s)")
    dots.add_scatter(x=p.compute, y=p.up / 1e6, mode="markers", marker={"color": OTHERS[0], "opacity": 0.6})
    make_logarithmic(dots.layout.xaxis, p.compute)
    make_logarithmic(dots.layout.yaxis, p.up / 1e6)
    bars = make_figure("device, fastest first", "seconds a task")
    some = np.linspace(0, len(nodes) - 1, min(len(nodes), BARS)).astype(int)
    order = np.argsort(parts.sum(0), kind="stable")[some]
    for name, seconds, shade in zip(("download", "compute", "upload"), parts[:, order], OTHERS, strict=False):
        bars.add_bar(y=seconds, name=name, marker_color=shade)
    bars.update_layout(barmode="stack", showlegend=True)
    return [
        ReportFigure(
            "Who is how fast", dots, "Look at the lower right: slow at both, these are the stragglers."
        ),
        ReportFigure(
            "What a task takes",
            bars,
            "Look at the right end: a round that waits for everybody lasts that long.",
        ),
    ]


def _find_profiles(federation: Federation) -> Profiles:
    """What devices can do when the cloud itself asks them."""
    everybody = list_machines(federation.fleet, Topology.build(len(federation.fleet)))
    return everybody.take(range(len(federation.fleet)))


def _estimate_seconds(federation: Federation, experiment: Experiment) -> NDArray[np.float64]:
    """Seconds of a task on every device: download, compute, upload; one local epoch of the model."""
    m, p = experiment.model, _find_profiles(federation)
    net = federation.models[ModelSpec(m.name, m.width, m.depth)]
    rows = np.array([federation.partition.size(n) for n in range(min(len(federation.fleet), LOOKED_AT))])
    rows = np.resize(rows, len(federation.fleet))
    down, up = (transfer_seconds(net.nbytes, rate, p.latency) for rate in (p.down, p.up))
    return np.stack([down, rows * compute_seconds(TRAINING_FACTOR * net.ops, p.compute), up])


def _tell_range(column: NDArray[np.float64], unit: str) -> str:
    low, middle, high = np.quantile(column, [0.0, 0.5, 1.0])
    return f"{low:.3g} to {high:.3g} {unit}, median {middle:.3g}, spread {high / max(low, 1e-12):.0f}x"
