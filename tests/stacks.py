"""Base rules with layers, at the size of a test, and the cells of the matrix."""

from dataclasses import replace

import numpy as np
import torch
from every import FEW, parameters
from federations import LOCAL, LOOP, STACKED, chained, finished, lines, small, values, weights

from potluck import algorithms
from potluck.engine.schedule import StopAt
from potluck.jobs import SGD
from potluck.layers import LAYERS, drop_fitted, find_refusal, list_matrix, stacked

PLAIN = replace(LOCAL, optim=SGD(0.1))
WHOLE = replace(PLAIN, batch=64)  # one step on all rows, in whatever order
PLAIN_EDGES = {"go_on": False}
COHORTS = {"clients": 4, "cohorts": 2, "force": (2,), "first_split": 1}
TERMS = {(base, "edges"): PLAIN_EDGES for base in ("fedpvr", "pyramidfl", "scaffold")}
TERMS |= {("flexcfl", "users"): {"shuffle": False}}
TABLES = {"users": {"planner": "fill"}, "edges": {}, "cohorts": COHORTS, "sizes": {"rates": (1.0, 0.5)}}
TABLES |= {"tuned": {"lr": 0.05}, "switch": {"epochs": 2}}
STACKS = [("users", "edges"), ("users", "cohorts"), ("edges", "cohorts"), ("cohorts", "sizes")]
STACKS += [("users", "edges", "cohorts"), ("users", "cohorts", "tuned"), ("cohorts", "sizes", "switch")]
NAMES = algorithms.names()
STACKED_BASES = ("fedavg", "fedyogi", "scaffold", "auxo", "cfl", "shufflefl", "fededge", "hierfl", "maverick")
STACKED_BASES += ("heterofl", "ifca")
CELLS = [(row.algorithm, (layer,)) for row in list_matrix(NAMES) for layer in drop_fitted(LAYERS)]
CELLS += [(name, stack) for name in STACKED_BASES for stack in STACKS]
OFFERED = [cell for cell in CELLS if find_refusal(*cell) is None]
QUICK = [
    ("fedavg", ("users", "edges", "cohorts")),
    ("fedavg", ("cohorts", "sizes")),
    ("scaffold", ("users",)),
    ("fedavg", ("users", "cohorts", "tuned")),
    ("heterofl", ("switch",)),
]


def build(base, layers, **more):
    tables = {name: TABLES[name] | more.get(name, {}) for name in layers}
    own = {k: v for k, v in FEW.items() if k in parameters(base)}
    own = {"clients": 4} if "sizes" in layers else own
    return stacked(base, PLAIN, own, **tables)


def run_every_way(where, made, often):
    """By loop, killed and resumed now and then, and stacked: all the same."""
    terms = {"stop": StopAt(rounds=4, device_seconds=150), "often": often}
    plain = finished(where, made, plan=LOOP, **terms)
    assert plain.round >= 2
    assert np.isfinite(values(plain, "accuracy_mean")).all()
    again, _ = chained(where, made, every=13, plan=LOOP, **terms)
    assert lines(again) == lines(plain)
    stack = finished(where, made, plan=STACKED, **terms)
    assert stack.now == plain.now
    torch.testing.assert_close(weights(stack), weights(plain), rtol=0, atol=1e-10)
    return plain


def crowd(**more):
    return small(users=5, edges=3, compute=4e5, **more)
