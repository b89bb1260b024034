"""Answers whose numbers are finite, but of any size, to every algorithm: none makes a model that is none."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from every import NAMES, OFTEN, crowd, make, mark, parameters
from federations import LOCAL, pool, simulate, values, weights

from potluck import algorithms
from potluck.core import keys
from potluck.core.errors import DivergedError
from potluck.core.trees import finite, tmap
from potluck.data import reserve_rows
from potluck.engine.schedule import StopAt
from potluck.fleet import place_attackers
from potluck.jobs import SGD
from potluck.rules.server_optim import Average

pytestmark = pytest.mark.slow


def lie(rule, falsify, dtype=torch.float32):
    """A run in which four of ten devices answer as this function says.

    It may fail with a line, but never with a model that is none.
    """
    good = crowd(data=reserve_rows(pool(dtype=dtype), 0.05, 1))
    liars = place_attackers(good.fleet, 0, kind="misreport", nodes=[1, 4, 5, 8])
    where, stop = replace(good, fleet=liars), StopAt(rounds=12, seconds=40)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("potluck.simulate.devices.falsify", falsify)
        sim = simulate(where, rule, stop=stop, often=OFTEN)
        with suppress(DivergedError):  # whose line other tests look at
            sim.run()
    assert finite(weights(sim))
    assert all(finite(task.send) for node in (0, 1) for task in sim.serve(node).values())
    return sim


def honest(result, sends, trained, attack, seed):
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", mark())
def test_updates_of_any_size_make_no_model_that_is_none(name, dtype):
    most = torch.finfo(dtype).max
    sizes = (most, -most, most / 2, 1e20, -1e20, most**0.5, 2 * most**0.5, 0.0)

    def blow_up(result, sends, trained, attack, seed):
        def fill(t):
            size = sizes[keys.derive(seed, t.numel()) % len(sizes)]
            return torch.full_like(t, size) if t.is_floating_point() else t

        return replace(result, body=tmap(fill, result.body), finite=False)

    lie(make(name), blow_up, dtype)


@pytest.mark.parametrize("name", mark())
def test_metrics_of_any_size_harm_nobody(name):
    sizes = (-1e30, -1e15, -1.0, 0.0, 1e-300, 1e15, 1e30)

    def tell(result, sends, trained, attack, seed):
        told = {n: sizes[keys.derive(seed, i) % len(sizes)] for i, n in enumerate(result.metrics)}
        return replace(result, metrics=told)

    assert lie(make(name), tell).finished


@pytest.mark.parametrize("name", [n for n in NAMES if {"server_lr", "server"} & parameters(n)])
def test_a_server_that_steps_too_far_is_told_so(name):
    # Beyond single precision, and beyond what a file may say: by the callable itself.
    far = {"server_lr": 1e300} if "server_lr" in parameters(name) else {"server": Average(1e300)}
    local = replace(LOCAL, optim=SGD(0.1))
    sim = lie(algorithms.find(name)(local=local, clients=4, **far), honest)
    assert not sim.finished
    assert values(sim, "undone") or name == "fedbuff"  # whose buffer is full without the last answer too
