"""Every flat algorithm, by the simulator's schedule, over devices that see parcels alone: equal bytes."""

import pytest
from every import EVERYONE, make, mark, parameters, split
from federations import SIZES, pool, small
from schedules import Stage, find_difference, record

from potluck.core.rule import Tiered
from potluck.data import reserve_rows
from potluck.deploy.conduct.conductor import Conductor

pytestmark = pytest.mark.slow
STREAMS = ("classter_async", "fedasync", "fedbuff")  # a round is one reply
FLAT = [name for name in EVERYONE if not (isinstance(make(name), Tiered) and make(name).tiers)]
LATE = {"overcommit": 1.5, "deadline": 2.0}  # some are called off, some come too late


def crowd(sizes=SIZES):
    return small(sizes, data=reserve_rows(pool(), 0.2, 3), users=min(4, len(sizes)))


def play(name, folder, *, eager=False, rounds=6, **params):
    rounds = 20 if split(name)[0] in STREAMS else rounds
    federation, algorithm = crowd(), make(name, **params)
    sim, script = record(federation, algorithm, rounds=rounds)
    stage = Stage(federation, algorithm, folder, rounds=rounds, claims=sim.claimed)
    stage.begin()
    for moment in script:
        if eager:
            stage.compute_ahead()
        stage.play(moment)
    return sim, stage


@pytest.mark.parametrize("name", mark(FLAT))
def test_deployed_runs_equal_simulated_ones(name, tmp_path):
    sim, stage = play(name, tmp_path)
    assert find_difference(sim, stage.server) is None
    assert stage.server.state.stopping


@pytest.mark.parametrize("name", mark(FLAT))
def test_they_do_if_devices_finish_before_they_are_called_off(name, tmp_path):
    params = {key: value for key, value in LATE.items() if key in parameters(name)}
    sim, stage = play(name, tmp_path, eager=True, **params)
    assert find_difference(sim, stage.server) is None


@pytest.mark.parametrize("name", ["scaffold", "moon"])
def test_without_a_base_they_do_not(name, tmp_path, monkeypatch):
    """A device that begins with its newest memory, instead of the one that counted, goes another way."""
    newest = {}

    def find_newest(self, node, slot):
        return newest.get((node, slot))

    def note(self, flight, work=Conductor.make_work):
        made = work(self, flight)
        newest[made.node, made.slot] = made.key  # it will have been done by then
        return made

    monkeypatch.setattr(Conductor, "find_base", find_newest)
    monkeypatch.setattr(Conductor, "make_work", note)
    sim, stage = play(name, tmp_path, eager=True, rounds=20, **LATE)
    assert sim.accounts.lost["late"] > 0
    assert find_difference(sim, stage.server) is not None


def test_all_flat_algorithms_are_here():
    assert len(FLAT) >= 27
