"""The devices of a run, summed up once when it ends: who is how fast, who held what, the last tasks.

It is of the devices that are evaluated, a thousand at most, so it stays small whatever the population. A run
whose file is missing (an unfinished one's, say) has everything but these.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.engine.timeline import table
from potluck.fleet import COLUMNS, machines
from potluck.simulate import Simulation

MOST = 1000  # devices


def summarise_devices(sim: Simulation) -> dict[str, Any]:
    """Columns with one entry for each of `nodes`, who the aggregators are, and the last tasks."""
    federation, fleet, topology = sim.federation, sim.federation.fleet, sim.topology
    nodes = sim.panel[np.linspace(0, len(sim.panel) - 1, min(len(sim.panel), MOST)).astype(int)]
    profiles = machines(fleet, topology).take(nodes)
    labels = federation.pool.y.cpu().numpy()
    first = _count_rows(
        [federation.partition.rows(int(n), "train") for n in nodes], labels, federation.classes
    )
    last = _count_rows([sim.devices.rows(int(n)) for n in nodes], labels, federation.classes)
    groups = {name: column[nodes].tolist() for name, column in fleet.groups.items() if column.max() >= 0}
    return {
        "devices": len(fleet),
        "tiers": {tier: topology.members(tier).start for tier in ("cloud", *topology.tiers)},  # first node
        "nodes": nodes.tolist(),
        **{name: _shorten(getattr(profiles, name)) for name in COLUMNS},
        **groups,
        "rows": first.tolist(),  # train rows by class at the start
        "rows_at_end": None if np.array_equal(first, last) else last.tolist(),
        "tasks": {name: _shorten(c) if name in _TIMES else c for name, c in table(sim.devices.trail).items()},
    }


_TIMES = ("began", "down", "compute", "up", "ended")


def _count_rows(rows: list[NDArray[np.int64]], labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    return np.stack([np.bincount(labels[mine], minlength=classes) for mine in rows])


def _shorten(column: Any) -> list[float]:
    """Nine digits tell all that a picture can show, and are half as long."""
    return [float(f"{number:.9g}") for number in column]
