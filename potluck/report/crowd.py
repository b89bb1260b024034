"""A federation before anything is trained: who holds what, and who is how fast."""

from html import escape

import numpy as np
from numpy.typing import NDArray

from potluck.core.job import ModelSpec
from potluck.core.units import duration, size
from potluck.experiment import Experiment
from potluck.federation import Federation
from potluck.fleet import TRAINING_FACTOR, Profiles, Topology, compute_seconds, machines, transfer_seconds
from potluck.report.canvas import COLOURS, Drawn, blank
from potluck.report.page import document

SHOWN = 200  # devices in a picture; more would be narrower than a pixel
LOOKED_AT = 2000  # devices whose rows are counted: a million would take minutes

Facts = list[tuple[str, str]]


def counted(federation: Federation) -> NDArray[np.int64]:
    """Training rows by device and class, of all devices or of a fixed choice."""
    partition, classes = federation.partition, federation.pool.classes
    nodes = np.linspace(0, partition.clients - 1, min(partition.clients, LOOKED_AT)).astype(int)
    labels = federation.pool.y.numpy()
    return np.stack([np.bincount(labels[partition.rows(int(n), "train")], minlength=classes) for n in nodes])


def data_facts(federation: Federation) -> Facts:
    """Who holds what, in numbers."""
    pool, table = federation.pool, counted(federation)
    sizes, held = table.sum(1), (table > 0).sum(1)
    share, whole = table / sizes[:, None].clip(1), table.sum(0) / table.sum().clip(1)
    skew = 0.5 * np.abs(share - whole).sum(1)  # total variation: 0 alike, near 1 all different
    some = "" if len(table) == federation.partition.clients else f" (of {len(table):,} looked at)"
    wrong = (
        []
        if federation.flips is None
        else [("wrong labels", f"train rows of {federation.flips.sum():,} devices")]
    )
    return [
        ("rows", f"{len(pool):,} of shape {list(pool.shape)}, {pool.classes} classes"),
        ("test set", f"{len(federation.test_rows()):,} rows that no device holds"),
        ("server's", f"{len(federation.server_rows()):,} rows"),
        (
            "devices",
            f"{federation.partition.clients:,}; {federation.partition.left_out:,} users with too few rows",
        ),
        ("rows a device", f"{sizes.min()} to {sizes.max()}, median {np.median(sizes):g}{some}"),
        ("classes a device", f"{held.min()} to {held.max()}, median {np.median(held):g}{some}"),
        ("label skew", f"{skew.mean():.2f} mean distance from everybody's mix (0: alike, 1: nothing shared)"),
        *wrong,
    ]


def fleet_facts(federation: Federation, experiment: Experiment) -> Facts:
    """Who is how fast, in numbers; a round is one local epoch of the experiment's model."""
    p, fleet = _profiles(federation), federation.fleet
    parts = _seconds(federation, experiment)
    total = parts.sum(0)
    online = fleet.availability.online_many(np.arange(min(len(fleet), LOOKED_AT)), 0.0)
    spread = (("compute", p.compute, "ms a sample"), ("up", p.up / 1e6, "Mbit/s"))
    more = (("down", p.down / 1e6, "Mbit/s"), ("latency", p.latency * 1e3, "ms one way"))
    facts = [(name, _range(column, unit)) for name, column, unit in (*spread, *more)]
    facts += [
        ("memory", f"{size(float(p.memory.min()))} to {size(float(p.memory.max()))}"),
        ("online at first", f"{online.mean():.0%}"),
        ("users, edges", ", ".join(f"{len(np.unique(g[g >= 0])):,}" for g in (fleet.user, fleet.edge))),
        ("a task takes", f"{duration(float(np.median(total)))} median, {duration(float(total.max()))} worst"),
        ("of it computing", f"{(parts[1] / total).mean():.0%}, the rest is transfer"),
    ]
    return facts


def data_page(federation: Federation, experiment: Experiment) -> str:
    """Who holds what, drawn."""
    table = counted(federation)
    shown = table[np.argsort(-table.sum(1), kind="stable")][:SHOWN]
    heat = blank("class", "device, largest first")
    heat.add_heatmap(z=shown, colorscale="Blues", colorbar={"title": {"text": "rows"}})
    sizes = blank("rows a device", "devices")
    sizes.add_histogram(x=table.sum(1), marker_color=COLOURS[0])
    figures = [
        Drawn(
            "Who holds what", heat, "Look for rows with few dark cells: devices that know only some classes."
        ),
        Drawn(
            "How much everybody holds", sizes, "Look at the tail: devices with many rows weigh and cost more."
        ),
    ]
    return document(experiment.name, f"{experiment.name}: data", "", _list(data_facts(federation)), figures)


def fleet_page(federation: Federation, experiment: Experiment) -> str:
    """Who is how fast, drawn."""
    nodes = np.linspace(0, len(federation.fleet) - 1, min(len(federation.fleet), LOOKED_AT)).astype(int)
    p, parts = _profiles(federation).take(nodes), _seconds(federation, experiment)[:, nodes]
    dots = blank("compute (ms a sample)", "upload (Mbit/s)")
    dots.add_scatter(x=p.compute, y=p.up / 1e6, mode="markers", marker={"color": COLOURS[0], "opacity": 0.6})
    dots.update_xaxes(type="log")
    dots.update_yaxes(type="log")
    bars = blank("device, fastest first", "seconds a task")
    some = np.linspace(0, len(nodes) - 1, min(len(nodes), SHOWN)).astype(int)
    order = np.argsort(parts.sum(0), kind="stable")[some]
    for name, seconds, colour in zip(
        ("download", "compute", "upload"), parts[:, order], COLOURS, strict=False
    ):
        bars.add_bar(y=seconds, name=name, marker_color=colour)
    bars.update_layout(barmode="stack", showlegend=True)
    figures = [
        Drawn("Who is how fast", dots, "Look at the lower right: slow at both, these are the stragglers."),
        Drawn(
            "What a task takes",
            bars,
            "Look at the right end: a round that waits for everybody lasts that long.",
        ),
    ]
    lead = _list(fleet_facts(federation, experiment))
    return document(experiment.name, f"{experiment.name}: fleet", "", lead, figures)


def _profiles(federation: Federation) -> Profiles:
    """What devices can do when the cloud itself asks them."""
    everybody = machines(federation.fleet, Topology.build(len(federation.fleet)))
    return everybody.take(range(len(federation.fleet)))


def _seconds(federation: Federation, experiment: Experiment) -> NDArray[np.float64]:
    """Seconds of a task on every device: download, compute, upload; one local epoch of the model."""
    m, p = experiment.model, _profiles(federation)
    net = federation.models[ModelSpec(m.name, m.width, m.depth)]
    rows = np.array([federation.partition.size(n) for n in range(min(len(federation.fleet), LOOKED_AT))])
    rows = np.resize(rows, len(federation.fleet))
    down, up = (transfer_seconds(net.nbytes, rate, p.latency) for rate in (p.down, p.up))
    return np.stack([down, rows * compute_seconds(TRAINING_FACTOR * net.ops, p.compute), up])


def _range(column: NDArray[np.float64], unit: str) -> str:
    low, middle, high = np.quantile(column, [0.0, 0.5, 1.0])
    return f"{low:.3g} to {high:.3g} {unit}, median {middle:.3g}, spread {high / max(low, 1e-12):.0f}x"


def _list(facts: Facts) -> str:
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts)
    return f'<div class="wide"><table>{rows}</table></div>'
