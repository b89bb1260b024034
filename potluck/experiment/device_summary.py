"""The devices of a run, summed up once when it ends: who is how fast, who held what, the last tasks.

It is of the devices that are evaluated, a thousand at most, so it stays small whatever the population. A run
whose file is missing (an unfinished one's, say) has everything but these.
"""

from collections.abc import Iterable
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from potluck.engine.timeline import make_columns
from potluck.federation import Federation
from potluck.fleet import list_machines
from potluck.simulate import Simulation

MOST = 1000  # devices


class Belonging(TypedDict, total=False):
    """To whom each device belongs, where devices belong to somebody."""

    user: list[int]
    edge: list[int]
    group: list[int]
    name: list[str]  # whose rows it holds, where the data know that by name


class DeviceSummary(Belonging):
    """The content of devices.json; lists have one entry for each of `nodes`, but for `tasks`."""

    devices: int  # of the whole fleet
    tiers: dict[str, int]  # the first node of each
    nodes: list[int]
    compute: list[float]
    up: list[float]
    down: list[float]
    latency: list[float]
    memory: list[float]
    rows: list[list[int]]  # train rows by class at the start
    rows_at_end: list[list[int]] | None  # None: as at the start
    tasks: dict[str, list[int | float | str]]  # the last ones, as columns


def summarise_devices(sim: Simulation) -> DeviceSummary:
    """Who the devices are, who the aggregators are, and the last tasks."""
    federation, fleet, topology = sim.federation, sim.federation.fleet, sim.topology
    nodes = sim.panel[np.linspace(0, len(sim.panel) - 1, min(len(sim.panel), MOST)).astype(int)]
    profiles = list_machines(fleet, topology).take(nodes)
    labels, classes = federation.pool.y.cpu().numpy(), federation.classes
    first = _count_rows([federation.partition.rows(int(n), "train") for n in nodes], labels, classes)
    last = _count_rows([sim.devices.rows(int(n)) for n in nodes], labels, classes)
    tasks = make_columns(sim.devices.timeline)
    belonging: Belonging = {}
    if fleet.user.max() >= 0:
        belonging["user"] = fleet.user[nodes].tolist()
    if fleet.edge.max() >= 0:
        belonging["edge"] = fleet.edge[nodes].tolist()
    if fleet.group.max() >= 0:
        belonging["group"] = fleet.group[nodes].tolist()
    if names := _find_names(federation, nodes):
        belonging["name"] = names
    return {
        "devices": len(fleet),
        "tiers": {tier: topology.members(tier).start for tier in ("cloud", *topology.tiers)},
        "nodes": nodes.tolist(),
        "compute": _shorten(profiles.compute),
        "up": _shorten(profiles.up),
        "down": _shorten(profiles.down),
        "latency": _shorten(profiles.latency),
        "memory": _shorten(profiles.memory),
        **belonging,
        "rows": first.tolist(),
        "rows_at_end": None if np.array_equal(first, last) else last.tolist(),
        "tasks": {name: [_cut(x) for x in c] if name in _TIMES else c for name, c in tasks.items()},
    }


_TIMES = ("began", "down", "compute", "up", "ended")
_WHOLE = ("barrier", "sender", "node")


def find_mismatch(devices: DeviceSummary) -> str | None:
    """What doesn't fit together in a summary that was read; None if all does."""
    count, classes = len(devices["nodes"]), {len(row) for row in devices["rows"]}
    lengths = {len(devices[key]) for key in ("compute", "up", "down", "latency", "memory")}
    lengths |= {len(devices[key]) for key in ("user", "edge", "group", "name") if key in devices}
    if not count or lengths != {count}:
        return "not one entry for each of nodes"
    for rows in (devices["rows"], devices["rows_at_end"]):
        if rows is not None and (len(rows) != count or {len(row) for row in rows} != classes):
            return "rows are no table"
    tasks = devices["tasks"]
    if tasks.keys() != {*_WHOLE, *_TIMES, "fate"} or len({len(column) for column in tasks.values()}) > 1:
        return "tasks are no table"
    if not all(isinstance(number, float | int) for name in (*_WHOLE, *_TIMES) for number in tasks[name]):
        return "tasks have texts where numbers should be"
    if not all(number in range(len(tasks["barrier"])) for number in tasks["barrier"]):
        return "tasks of barriers that aren't there"
    return None if classes - {0} and len(classes) == 1 else "rows are no table"


def _find_names(federation: Federation, nodes: NDArray[np.int64]) -> list[str]:
    """Of the people whose rows devices hold; none where a device holds several people's."""
    pool = federation.pool
    if pool.user is None or pool.names is None:
        return []
    whose = [pool.user[federation.partition.rows(int(n), "train")] for n in nodes]
    return [pool.names[of[0]] for of in whose] if all((of == of[0]).all() for of in whose) else []


def _count_rows(rows: list[NDArray[np.int64]], labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    return np.stack([np.bincount(labels[mine], minlength=classes) for mine in rows])


def _shorten(column: Iterable[float]) -> list[float]:
    """Nine digits tell all that a picture can show, and are half as long."""
    return [_cut(number) for number in column]


def _cut(number: float | str) -> float:
    return float(f"{float(number):.9g}")
