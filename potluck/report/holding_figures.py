"""Who holds what: rows by device and class, before training, at first and after rows have moved."""

from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from potluck.core.colours import OTHERS
from potluck.data import Partition, Pool, RowCount, Shift
from potluck.experiment import Run
from potluck.federation import Federation
from potluck.report.canvas import LOOKED_AT, SHADES, Facts, ReportFigure, make_figure

SHOWN = 100  # devices in a picture; more would be thinner than a line of text
COLUMNS = 200  # devices in a picture that has no names


class RowTable(NamedTuple):
    """Rows by device and class."""

    nodes: list[int]
    first: NDArray[np.int64]
    last: NDArray[np.int64] | None  # None: as at first


def read_holdings(run: Run) -> RowTable | None:
    """Of the devices that are shown: user by user if there are any, then in the order of their main class."""
    crowd = run.devices
    if crowd is None:
        return None
    first = np.array(crowd["rows"])
    last = None if crowd["rows_at_end"] is None else np.array(crowd["rows_at_end"])
    whose = np.array(crowd.get("user", [-1] * len(first)))
    order = np.lexsort((-first.max(1), first.argmax(1), whose))
    if len(order) > SHOWN:
        order = order[np.linspace(0, len(order) - 1, SHOWN).astype(int)]
    nodes = [int(crowd["nodes"][i]) for i in order]
    return RowTable(nodes, first[order], None if last is None else last[order])


def draw_before(run: Run) -> go.Figure | None:
    """Who holds what at first."""
    found = read_holdings(run)
    if found is None:
        return None
    figure = make_figure("class", "device")
    figure.add_trace(_make_heatmap(found.nodes, found.first, "at first", int(found.first.max())))
    return _set_height(figure, found)


def draw_before_and_after(run: Run) -> go.Figure | None:
    """Who holds what at first and at the end, on one scale; None if nothing moved or changed."""
    found = read_holdings(run)
    if found is None or found.last is None or (found.first == found.last).all():
        return None
    figure = make_subplots(1, 2, shared_yaxes=True, subplot_titles=("at first", "at the end"))
    figure.update_layout(make_figure("class", "device").layout)
    most = int(max(found.first.max(), found.last.max()))
    figure.add_trace(_make_heatmap(found.nodes, found.first, "at first", most), 1, 1)
    figure.add_trace(_make_heatmap(found.nodes, found.last, "at the end", most), 1, 2)
    figure.update_xaxes(title={"text": "class", "standoff": 8})
    figure.update_layout(margin_t=50)
    return _set_height(figure, found)


def measure_skews(run: Run) -> tuple[float, float] | None:
    """How far devices' mixes of classes lie from everybody's, at first and at the end: 0 alike, 1 apart."""
    found = read_holdings(run)
    if found is None or found.last is None:
        return None
    return measure_skew(found.first), measure_skew(found.last)


def measure_skew(table: NDArray[np.int64]) -> float:
    """Mean distance (total variation) of devices' mixes from that of all; empty devices don't count."""
    some = table[table.sum(1) > 0]
    if not len(some):
        return 0.0
    share, whole = some / some.sum(1, keepdims=True), some.sum(0) / some.sum()
    return float(0.5 * np.abs(share - whole).sum(1).mean())


def _make_heatmap(nodes: list[int], table: NDArray[np.int64], name: str, most: int) -> go.Heatmap:
    return go.Heatmap(
        z=table.tolist(),
        x=[str(c) for c in range(table.shape[1])],
        y=[f"device {n}" for n in nodes],
        name=name,
        zmin=0,
        zmax=most,
        colorscale=SHADES,
        colorbar={"title": {"text": "rows"}},
        hovertemplate="%{y}, class %{x}: %{z} rows<extra>" + name + "</extra>",
    )


def _set_height(figure: go.Figure, found: RowTable) -> go.Figure:
    figure.update_layout(height=min(900, 180 + 16 * len(found.nodes)))
    figure.update_yaxes(autorange="reversed", showgrid=False, tickfont_size=11)  # a name for every device
    figure.update_xaxes(showgrid=False, type="category")
    return figure


def count_rows(federation: Federation) -> NDArray[np.int64]:
    """Training rows by device and class, of all devices or of a fixed choice."""
    partition, classes = federation.partition, federation.pool.classes
    labels, nodes = federation.pool.y.numpy(), _look_at(partition)
    return np.stack([np.bincount(labels[partition.rows(n, "train")], minlength=classes) for n in nodes])


def list_data_facts(federation: Federation, count: RowCount, test_from: str, shift: Shift) -> Facts:
    """Where rows went and who holds what, in numbers."""
    pool, table = federation.pool, count_rows(federation)
    sizes, classes = table.sum(1), (table > 0).sum(1)
    share, whole = table / sizes[:, None].clip(1), table.sum(0) / table.sum().clip(1)
    skew = 0.5 * np.abs(share - whole).sum(1)  # total variation: 0 alike, near 1 all different
    some = "" if len(table) == federation.partition.clients else f" (of {len(table):,} looked at)"
    wrong = (
        []
        if federation.flips is None
        else [("wrong labels", f"train rows of {federation.flips.sum():,} devices")]
    )
    own = "the last of each device's" if pool.by_time else "by chance"
    return [
        ("rows", f"{sum(asdict(count).values()):,} of shape {list(pool.shape)}, {pool.classes} classes"),
        ("scaled", _tell_scale(pool)),
        ("users", _tell_users(pool)),
        ("to train on", f"{count.train:,} rows of devices"),
        ("to validate on", f"{count.validation:,}"),
        ("to test on", f"{count.test:,}, {own}"),
        ("global test set", f"{count.global_test:,} that no device holds, {_tell_origin(pool, test_from)}"),
        ("server's", f"{count.server:,}"),
        ("left out", f"{count.dropped:,} by limit or without, {count.unheld:,} that no device was given"),
        (
            "devices",
            f"{federation.partition.clients:,}; {federation.partition.left_out:,} users with too few rows",
        ),
        ("rows a device", f"{sizes.min()} to {sizes.max()}, median {np.median(sizes):g}{some}"),
        ("classes a device", f"{classes.min()} to {classes.max()}, median {np.median(classes):g}{some}"),
        ("label skew", f"{skew.mean():.2f} mean distance from everybody's mix (0: alike, 1: nothing shared)"),
        *wrong,
        *_tell_shifts(federation, shift),
    ]


def _tell_shifts(federation: Federation, shift: Shift) -> Facts:
    """What devices are tested on at `data.shift`, and at each of `evaluate.shifts`."""
    told = [("shift", shift, federation.partition)] if shift.share else []
    told += [("at the end", level, partition) for level, partition in federation.shifts.items()]
    return [
        (
            f"{when}: {level.kind} {level.share:g}",
            f"{100 * measure_strangers(federation, partition):.0f} % of devices' test rows are of classes "
            f"that they don't train on{', met in that order' if level.ordered else ''}",
        )
        for when, level, partition in told
    ]


def measure_strangers(federation: Federation, partition: Partition) -> float:
    """The share of devices' test rows whose class is absent from their train rows, of those looked at."""
    labels, strange, rows = federation.pool.y.numpy(), 0, 0
    for node in _look_at(partition):
        tested = labels[partition.rows(node, "test")]
        strange += int((~np.isin(tested, labels[partition.rows(node, "train")])).sum())
        rows += len(tested)
    return strange / max(rows, 1)


def _look_at(partition: Partition) -> list[int]:
    """All devices, or a fixed choice."""
    some = np.linspace(0, partition.clients - 1, min(partition.clients, LOOKED_AT))
    return [int(node) for node in some]


def _tell_scale(pool: Pool) -> str:
    if not pool.x.is_floating_point():
        return "no: tokens, as they are"
    if (pool.mean, pool.std) == (0.0, 1.0):
        return "no: values as they are, bytes in [0, 1]"
    return (
        f"mean {pool.mean:.4g} and deviation {pool.std:.4g}, of all rows but the global test set, taken out"
    )


def _tell_users(pool: Pool) -> str:
    if pool.user is None:
        return "not known"
    return f"{len(np.unique(pool.user[~pool.test])):,} with rows outside of the global test set"


def _tell_origin(pool: Pool, test_from: str) -> str:
    if not pool.drawn:
        return "named by the source"
    if test_from == "users":
        return f"all rows of {len(np.unique(pool.user[pool.test])) if pool.user is not None else 0:,} users"
    if test_from == "time":
        return "the last fifth of " + ("all rows" if pool.user is None else "each user's rows")
    return "a fifth of every class by chance"


def draw_data(federation: Federation) -> list[ReportFigure]:
    """Who holds what before anything is trained, drawn."""
    table = count_rows(federation)
    shown = table[np.argsort(-table.sum(1), kind="stable")][:COLUMNS]
    heat = make_figure("class", "device, largest first")
    heat.add_heatmap(z=shown, colorscale="Blues", colorbar={"title": {"text": "rows"}})
    sizes = make_figure("rows a device", "devices")
    sizes.add_histogram(x=table.sum(1), marker_color=OTHERS[0])
    return [
        ReportFigure(
            "Who holds what", heat, "Look for rows with few dark cells: devices that know only some classes."
        ),
        ReportFigure(
            "How much everybody holds", sizes, "Look at the tail: devices with many rows weigh and cost more."
        ),
    ]
