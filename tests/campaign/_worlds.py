"""Worlds of loss and churn, drawn by number: who comes and goes, forgets, lies or is slow; when runs end."""

import math
import random
import tomllib

import numpy as np
import pinned

from potluck import algorithms
from potluck.experiment import Experiment
from potluck.fleet import ATTACKS

BASE = tomllib.loads(pinned.EXPERIMENT)
ROBUST = ("krum", "multi_krum", "adaptive_krum", "trimmed_mean", "median", "clip")


def draw_world(number, again, folder):
    """An experiment; `again` counts draws, should one not be allowed."""
    rng = random.Random(f"{number} {again}")
    names = algorithms.names()
    name = names[number % len(names)]
    stop = draw_stop(rng)
    tables = {
        "name": "churn",
        "algorithm": name,
        "seed": rng.randrange(1000),
        "data": BASE["data"] | {"rows": 500, "users": 6, "smallest": 8} | draw_data(rng),
        "model": {"name": rng.choice(["linear", "mlp"]), "width": 0.03},
        "fleet": {"edges": rng.choice([1, 2, 3]), "memory": [2_000, 20_000]} | draw_fleet(rng, folder),
        "train": draw_training(rng),
        "stop": stop,
        "evaluate": rng.choice(
            [{"rounds": 2}, {"seconds": draw_log(rng, 0.3, 10)}, {"rounds": 1, "panel": 12}]
        ),
        "run": {"executor": "loop", "snapshot_every": 1e9},
        "algorithms": {name: draw_parameters(rng, name)},
    }
    if rng.random() < 0.15:
        tables["robust"] = {"kind": rng.choice(ROBUST)}
    return Experiment(**tables)


def draw_log(rng, low, high):
    """Evenly by magnitude."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def draw_stop(rng):
    """Rounds alone, mostly: then nothing but rounds ends a run in which all is lost."""
    return rng.choice(
        [
            {"rounds": rng.randint(1, 4)},
            {"rounds": rng.randint(1, 4)},
            {"seconds": draw_log(rng, 0.5, 20)},
            {"rounds": 3, "device_seconds": draw_log(rng, 1, 50)},
        ]
    )


def draw_training(rng):
    found = {"lr": draw_log(rng, 1e-3, 1.0), "batch": rng.choice([1, 5, 20])}
    if rng.random() < 0.2:
        found["optimizer"] = "adam"
    if rng.random() < 0.1:
        found["privacy"] = {"clip": 0.5, "sigma": 0.1}
    if rng.random() < 0.3:
        found["steps"] = rng.randint(1, 4)
    return found


def draw_data(rng):
    """Drift, wrong labels, test rows of other classes."""
    found = {}
    if rng.random() < 0.3:
        times = sorted({round(draw_log(rng, 0.1, 10), 3) for _ in range(rng.randint(1, 3))})
        found["changes"] = [{"at": at, "kind": "labels", "share": rng.uniform(0.1, 1)} for at in times]
    if rng.random() < 0.2:
        found["flip"] = {"share": rng.uniform(0.1, 1.0), "kind": rng.choice(["random", "next"])}
    if rng.random() < 0.2:
        found["shift"] = rng.random()
    return found


def draw_fleet(rng, folder):
    found = draw_presence(rng, folder)
    if rng.random() < 0.4:
        found["jitter"] = {
            "every": draw_log(rng, 0.1, 5),
            "rates": rng.random(),
            "compute": rng.uniform(0, 2),
        }
    if rng.random() < 0.4:
        found["forget"] = rng.choice([1.0, rng.random()])
    if rng.random() < 0.4:
        found["stragglers"] = {"share": rng.uniform(0.05, 0.9), "slower": draw_log(rng, 1, 1000)}
    if rng.random() < 0.3:
        found["claims"] = [
            {"share": rng.uniform(0.1, 0.9), "compute": draw_log(rng, 0.01, 100), "memory": 10.0}
        ]
    if rng.random() < 0.4:
        kind = rng.choice([*sorted(ATTACKS), "malformed"])
        found["attack"] = {"kind": kind, "share": rng.choice([0.95, rng.uniform(0.05, 0.95)])}
        if rng.random() < 0.3:
            found["attack"]["start"] = rng.uniform(0, 5)
    return found


def draw_presence(rng, folder):
    """Who is there, and when; sometimes nobody ever."""
    kind = rng.choice(["always", "on_off", "on_off", "day_night", "intervals"])
    if kind == "on_off":
        return {"availability": kind, "period": draw_log(rng, 0.3, 60), "share": draw_log(rng, 0.02, 0.98)}
    if kind == "day_night":
        return {"availability": kind, "period": draw_log(rng, 1, 100), "zones": rng.randint(1, 5)}
    if kind == "intervals":
        nodes = rng.randint(1, 8)
        start = [rng.uniform(0, 10) for _ in range(nodes)]
        length = [draw_log(rng, 0.01, 20) for _ in range(nodes)]
        end = [at + more for at, more in zip(start, length, strict=True)]
        np.savez(folder / "trace.npz", node=np.arange(nodes), start=np.array(start), end=np.array(end))
        return {"availability": kind, "intervals": str(folder / "trace.npz")}
    return {"availability": kind}


def draw_parameters(rng, name):
    """Few clients, deadlines that many miss, more asked than needed."""
    known = {p.name for p in algorithms.describe(name).parameters}
    drawn = {"clients": rng.randint(1, 8), "buffer": rng.randint(1, 4)}
    if rng.random() < 0.5:
        drawn["deadline"] = draw_log(rng, 0.001, 10)  # so short sometimes that nobody keeps it
        drawn["overcommit"] = rng.uniform(1, 3)
    own = {key: value for key, value in drawn.items() if key in known}
    if algorithms.find_published(name):
        own["mode"] = rng.choice(algorithms.list_modes(name))
    if name == "fedgs":
        own["syncs"] = 3  # of a round, of which each takes long
    return own
