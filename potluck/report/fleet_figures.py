"""Who is how fast: devices before training, and a run's by tier or by whom they hang below."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from potluck.core.colours import COLOURS
from potluck.core.job import ModelSpec
from potluck.core.units import duration, size
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
from potluck.report.canvas import LOOKED_AT, Facts, ReportFigure, make_figure, pick_colour
from potluck.report.tiers import find_last_tiers

SHOWN = 12  # groups that colours and a legend can tell apart
BARS = 200  # devices in a picture; more would be narrower than a pixel


def draw_speeds(run: Run) -> go.Figure | None:
    """Every device, coloured by its edge or else its user; None if nothing is known of devices."""
    return _draw_dots(run, find_owners(run))


def draw_by_tier(run: Run) -> go.Figure | None:
    """Every device, coloured by the tier that the algorithm gave it; None if it gave none."""
    tiers = {node: f"tier {tier}" for node, tier in find_last_tiers(run).items()}
    return _draw_dots(run, tiers) if tiers else None


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


def _draw_dots(run: Run, groups: dict[int, str]) -> go.Figure | None:
    """By compute and upload rate; the more rows, the larger."""
    crowd = run.devices
    if crowd is None:
        return None
    nodes = np.array(crowd["nodes"])
    compute, up = np.array(crowd["compute"]), np.array(crowd["up"]) / 1e6
    rows = np.array(crowd["rows"]).sum(1)
    sizes = 6 + 14 * np.sqrt(rows / max(1, rows.max()))
    figure = make_figure("compute (ms a sample; right is slower)", "upload (Mbit/s; down is slower)")
    names = dict.fromkeys(groups.get(int(n), "no tier") if groups else "devices" for n in nodes)
    for i, name in enumerate(sorted(names)):
        mine = np.array([not groups or groups.get(int(n), "no tier") == name for n in nodes])
        figure.add_scatter(
            x=compute[mine],
            y=up[mine],
            name=name,
            mode="markers",
            marker={"color": pick_colour(i), "opacity": 0.7, "size": sizes[mine]},
            text=[f"device {n}, {count} rows" for n, count in zip(nodes[mine], rows[mine], strict=True)],
            hovertemplate="%{text}<br>%{x:.3g} ms a sample, %{y:.3g} Mbit/s<extra>" + name + "</extra>",
        )
    figure.update_layout(showlegend=len(names) > 1)
    figure.update_xaxes(type="log", dtick="D2")  # 1, 2, 5, 10
    figure.update_yaxes(type="log", dtick="D2")
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
    dots.add_scatter(x=p.compute, y=p.up / 1e6, mode="markers", marker={"color": COLOURS[0], "opacity": 0.6})
    dots.update_xaxes(type="log")
    dots.update_yaxes(type="log")
    bars = make_figure("device, fastest first", "seconds a task")
    some = np.linspace(0, len(nodes) - 1, min(len(nodes), BARS)).astype(int)
    order = np.argsort(parts.sum(0), kind="stable")[some]
    for name, seconds, shade in zip(
        ("download", "compute", "upload"), parts[:, order], COLOURS, strict=False
    ):
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
