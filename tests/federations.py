"""Small federations for tests: few rows, unequal devices, double precision."""

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from potluck import fleet
from potluck.core import codec, keys
from potluck.core.job import ModelSpec
from potluck.core.trees import leaves
from potluck.data import StoredPartition, load
from potluck.engine.kept_records import KeptRecords
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import ExecutionPlan
from potluck.federation import Federation
from potluck.fleet import Always
from potluck.jobs import SGD, Train
from potluck.models import Models
from potluck.simulate import Simulation, flocks

torch.set_num_threads(1)  # as Simulation.run does; here for those that step by hand

SIZES = (3, 7, 10, 12, 5, 9, 20, 4, 11, 6)  # train rows: batches of 4 leave partial ones
SPEC = ModelSpec("mlp", width=0.03)  # 6 hidden units
LOCAL = Train(SPEC, optim=SGD(0.1, momentum=0.9), batch=4)
LOOP, WORKERS = ExecutionPlan("loop"), ExecutionPlan("workers", workers=2)
STACKED = ExecutionPlan("stacked", chunk=3)  # one thread: forked children can't use two if their parent has
STACKS = (  # every way to train them: captured, captured one by one, in processes of their own
    *(STACKED, replace(STACKED, graphs=True), replace(STACKED, graphs=True, chunk=1)),
    replace(STACKED, workers=2),
)


@cache
def pool(rows=400, classes=4, dimension=5, dtype=torch.float64):
    found = load("synthetic", rows=rows, classes=classes, dimension=dimension)
    return replace(found, x=found.x.to(dtype))


def dealt(pool, sizes, key=0):
    """A partition with exactly so many train rows each, one to validate and three to test on."""
    rows = pool.free
    rows = rows[keys.permute(key, len(rows))]
    cells = np.array([[n, 1, 3] for n in sizes]).reshape(-1)
    offsets = np.concatenate([[0], np.cumsum(cells)])
    assert offsets[-1] <= len(rows), "a larger pool is needed"
    return StoredPartition(rows[: offsets[-1]], offsets)


def small(
    sizes=SIZES, *, data=None, availability=Always(), source="mobile", users=None, edges=None, **profile
):
    """A federation of a few devices; `profile` is passed to the fleet's source."""
    data = pool() if data is None else data
    devices = fleet.build(source, len(sizes), 5, users, edges, availability, **profile)
    return Federation(data, dealt(data, sizes), devices, Models(data.shape, data.classes, data.x.dtype))


def simulate(federation, algorithm, *, rounds=3, seed=0, often=EvaluateAt(), **settings):
    """A simulation that hasn't begun; `stop` in settings overrides `rounds`."""
    settings.setdefault("stop", StopAt(rounds=rounds))
    return Simulation(federation, algorithm, seed=seed, evaluate=often, **settings)


def finished(federation, algorithm, **settings):
    """A simulation that has run to its end."""
    sim = simulate(federation, algorithm, **settings)
    sim.run()
    return sim


@contextmanager
def one_by_one():
    """Replies that nothing comes between are heard one by one, and not together as one event."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flocks, "MOST", 1)
        yield


def under_way(sim):
    """All flights of a simulation."""
    queues = sim.devices.queues
    rows = [(flock, row) for flock in queues.flocks.values() for row in np.flatnonzero(flock.there)]
    return [*queues.flights.values(), *(flock.make_flight(int(row)) for flock, row in rows)]


def chained(federation, algorithm, every=1, **settings):
    """A finished simulation that was stored, thrown away and restored before every single event, or so many.

    As a new process would find it: through bytes, and with nothing but the logs beside them. Also how often.
    """
    with one_by_one():
        return _chained(federation, algorithm, every, **settings)


def _chained(federation, algorithm, every, **settings):
    sim, events = simulate(federation, algorithm, **settings), 0
    sim.start()
    while True:
        if events % every == 0:
            sim = _restored(sim, simulate(federation, algorithm, **settings))
        if not sim.step():
            sim.close()
            return sim, events
        events += 1


def _restored(sim, fresh):
    """What a new process would make of a simulation."""
    state = codec.encode(sim.make_state())
    sim.memories.file.seek(0)
    fresh.memories.file.write(sim.memories.file.read())
    fresh.logs.kept = KeptRecords(sim.logs.kept)
    fresh.restore(codec.decode(state))
    assert codec.encode(fresh.make_state()) == state, "something was lost on the way"
    sim.close()
    return fresh


def lines(sim):
    """A run's records as bytes."""
    return "\n".join(json.dumps(r, default=str) for r in sim.records).encode()


def values(sim, metric, **whose):
    """All values of a metric, in order, of those records that say so."""
    return [
        r["value"]
        for r in sim.records
        if r["metric"] == metric and all(r.get(k) == v for k, v in whose.items())
    ]


def weights(sim):
    """All numbers of all that the cloud serves."""
    sent = [task.send for _, task in sorted(sim.serve(sim.root).items())]
    return torch.cat([t.double().reshape(-1) for t in leaves(sent)])
