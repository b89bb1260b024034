"""What a federation is like, in numbers: taken of its rows, its labels and its machines, never of settings.

So advice can be given on data that somebody else divided. Of large populations a fixed choice is looked at.
No measure trains the federation's model. Of test rows only labels are read, and only to see whether devices
meet classes that they don't train on.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.advice.conflict import find_conflict
from potluck.advice.labels import count_rows, measure_gini, measure_skew, measure_unseen
from potluck.advice.times import Floats, Times, find_links
from potluck.core.advice import Conflict, Edges, Ints, Labels, Measured, Memory, Speeds, Users
from potluck.data import Pool
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
from potluck.federation import Federation
from potluck.fleet import Fleet, Topology, list_machines, transfer_seconds

LOOKED_AT = 300  # devices whose rows are looked at; thousands would say the same, and take minutes
ROWS = 200  # of each, at most, where rows are compared
MOMENTS = 48  # at which it is asked who is online, over two days
TWO_DAYS = 172_800.0
LATE = 2.0  # times the median task: a server that waits no longer still hears from most


def measure_file(experiment: Experiment, pool: Pool | None = None) -> tuple[Federation, Measured]:
    """The federation of a file (with the data of a pool, if given) and what was measured of it."""
    full = experiment.resolve()
    federation = build_federation(full, pool)
    return federation, measure(federation, full)


def measure(federation: Federation, experiment: Experiment) -> Measured:
    """Everything, of a federation that was built from a resolved experiment."""
    rng = np.random.default_rng(0)  # fixed: advice must not change from one look to the next
    nodes = np.linspace(0, federation.devices - 1, min(federation.devices, LOOKED_AT)).astype(np.int64)
    train, test = count_rows(federation, nodes, "train"), count_rows(federation, nodes, "test")
    sizes = np.array([federation.partition.size(int(n)) for n in nodes])
    rows = np.resize(sizes, federation.devices) if len(nodes) < federation.devices else sizes
    times = Times(federation, experiment, rows)
    labels = Labels(
        measure_skew(train, train.sum(0), rng),
        measure_unseen(train, test, rng),
        measure_gini(train.sum(1)),
    )
    conflict = _measure_conflict(federation, nodes, rng)
    users, edges = federation.fleet.user[nodes], federation.fleet.edge[nodes]
    return Measured(
        federation.devices,
        nodes,
        federation.classes,
        federation.server,
        labels,
        conflict,
        _measure_speeds(federation.fleet, times),
        _measure_memory(federation.fleet, times),
        _measure_users(federation, times, conflict.measure_alike(users), rng),
        _measure_edges(federation, times, conflict.measure_alike(edges), rng),
    )


def _measure_conflict(federation: Federation, nodes: Ints, rng: np.random.Generator) -> Conflict:
    chosen = [rng.permutation(federation.partition.rows(int(n), "train"))[:ROWS] for n in nodes]
    owner = np.repeat(np.arange(len(nodes)), [len(rows) for rows in chosen])
    rows = np.concatenate(chosen)
    x = federation.pool.x[torch.from_numpy(rows)].cpu()
    if not x.is_floating_point():  # tokens: a random direction for every token at every place
        codes = torch.from_numpy(rng.normal(size=(int(federation.pool.x.max()) + 1, 8)))
        x = codes[x]
    flat = x.reshape(len(rows), -1).double().numpy()
    return find_conflict(
        flat, federation.pool.y.cpu().numpy()[rows], owner, len(nodes), federation.classes, rng
    )


def _measure_speeds(fleet: Fleet, times: Times) -> Speeds:
    task = times.task(times.net, find_links(fleet))
    some = np.arange(min(len(fleet), 2000))
    moments = np.linspace(0, TWO_DAYS, MOMENTS, endpoint=False)
    online = np.mean([fleet.availability.online_many(some, float(t)).mean() for t in moments])
    middle = float(np.median(task))
    links = _measure_spread(fleet.true.up)
    return Speeds(
        _measure_spread(fleet.true.compute),
        links,
        float(np.quantile(task, 0.95)) / middle,
        middle,
        float(online),
    )


def _measure_spread(column: Floats) -> float:
    low, high = np.quantile(column, [0.05, 0.95])
    return float(high / low)


def _measure_memory(fleet: Fleet, times: Times) -> Memory:
    at, needed = find_links(fleet), times.count_bytes(times.net)
    task = times.task(times.net, at)
    deadline = LATE * np.median(task)
    short, late = fleet.true.memory < needed, task > deadline
    could = np.zeros(len(fleet), np.bool_)
    for net in times.smaller:
        could |= (fleet.true.memory >= times.count_bytes(net)) & (times.task(net, at) <= deadline)
    rescued = (short | late) & could
    lack, slow, saved = (float(each.mean()) for each in (short, late, rescued))
    return Memory(needed, lack, slow, saved, resizable=bool(times.smaller))


def _measure_users(
    federation: Federation, times: Times, alike: float | None, rng: np.random.Generator
) -> Users | None:
    user, training = federation.fleet.user, times.training(times.net)
    several = _find_members(user)
    if not several:
        return None
    devices = sum(len(own) for own in several)
    spread = float(np.median([training[own].max() / training[own].min() for own in several]))
    counts = [count_rows(federation, own, "train") for own in _pick_some(several, LOOKED_AT // 3)]
    within = float(np.mean([measure_skew(own, own.sum(0), rng) for own in counts]))
    saved = float(np.median([training[own].max() - training[own].mean() for own in several]))
    edge = federation.fleet.edge
    together = all((edge[own] == edge[own[0]]).all() for own in several)
    return Users(len(several), devices / federation.devices, within, spread, saved, alike, together)


def _find_members(group: NDArray[np.int32]) -> list[Ints]:
    """The members of each group that has two or more."""
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    return [own for own in np.split(order, cuts) if group[own[0]] >= 0 and len(own) > 1]


def _pick_some(groups: list[Ints], count: int) -> list[Ints]:
    return [groups[i] for i in np.linspace(0, len(groups) - 1, min(len(groups), count)).astype(int)]


def _measure_edges(
    federation: Federation, times: Times, alike: float | None, rng: np.random.Generator
) -> Edges | None:
    fleet = federation.fleet
    groups = _find_members(fleet.edge)
    if len(groups) < 2:
        return None
    topology = Topology.build(len(fleet), ("edge",), fleet.groups)
    everybody, far = list_machines(fleet, topology), find_links(fleet)
    near, above = everybody.take(range(len(fleet))), everybody.take(topology.members("edge"))
    task = times.task(times.net, near)
    rounds = np.array([task[own].max() for own in groups])
    ways = (transfer_seconds(times.net.nbytes, rate, above.latency) for rate in (above.up, above.down))
    period = rounds.max() + float(np.median(sum(ways)))  # the cloud waits for the slowest edge
    counts = [
        count_rows(federation, own[:: -(-len(own) // 30)], "train").sum(0) for own in _pick_some(groups, 30)
    ]
    return Edges(
        len(groups),
        float(np.median([len(own) for own in groups])),
        float(np.median(far.latency) / max(float(np.median(near.latency)), 1e-6)),
        float(np.median(times.task(times.net, far) / task)),
        float(np.mean(1 - rounds / period)),
        float(np.median([task[own].max() / np.median(task[own]) for own in groups])),
        measure_skew(np.stack(counts), np.sum(counts, 0), rng),
        alike,
    )
