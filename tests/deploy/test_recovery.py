"""Whatever ends, and whatever a network does: what goes on from its folders ends with the same bytes."""

import random

import pytest
from every import make
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import Stage, find_difference, record
from test_parity import FLAT, STREAMS, crowd

from potluck.core.errors import SnapshotError
from potluck.deploy.conduct import journal
from potluck.deploy.conduct.replay import replay
from potluck.deploy.port import Incoming

pytestmark = pytest.mark.slow


def perform(name, folder, *, every, saved=7):
    """A schedule, with all processes ended after every so many moments; every report comes twice."""
    rounds = 20 if name in STREAMS else 6
    federation, algorithm = crowd(), make(name)
    sim, script = record(federation, algorithm, rounds=rounds)
    stage = Stage(federation, algorithm, folder, rounds=rounds, claims=sim.claimed)
    stage.begin()
    for count, moment in enumerate(script, start=1):
        stage.play(moment)
        if count % saved == 0:
            stage.server.save()
        if count % every == 0:
            stage.recover()
    return sim, stage


@pytest.mark.parametrize("name", FLAT)
def test_a_run_goes_on_after_every_event(name, tmp_path):
    sim, stage = perform(name, tmp_path, every=3 if name in STREAMS else 2)
    assert find_difference(sim, stage.server) is None
    stage.server.save()
    assert replay(tmp_path / "server", stage.terms).difference is None


def test_a_journal_that_was_cut_short_is_read_up_to_there(tmp_path):
    _, stage = perform("fedavg", tmp_path, every=1000, saved=1000)
    stage.server.close()
    path = tmp_path / "server" / journal.name(1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    entries = len(list(journal.read(tmp_path / "server", 1)))
    assert path.read_bytes() == whole[: len(path.read_bytes())]
    assert len(path.read_bytes()) < len(whole) - 5
    path.write_bytes(whole)
    assert len(list(journal.read(tmp_path / "server", 1))) == entries + 1


def test_a_damaged_journal_is_refused(tmp_path):
    _, stage = perform("fedavg", tmp_path, every=1000, saved=1000)
    stage.server.close()
    path = tmp_path / "server" / journal.name(1)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(SnapshotError, match=r"journal-00000001.log: damaged at byte"):
        list(journal.read(tmp_path / "server", 1))


class Unruly:
    """A network that loses a third, repeats and reorders; devices seem to start anew now and then."""

    def __init__(self, port, seed):
        self.port, self.random, self.at = port, random.Random(seed), 0
        self.late: list[Incoming] = []

    def nodes(self):
        return {n: f"{session}.{self.at // 25}" for n, session in self.port.nodes().items() if n < 10}

    def post_all(self, out):
        self.port.post_all(out)

    def whim(self):
        self.at += 1
        return self.random.choice((0, 0, 1, 2, 3, 4))

    def poll(self, wait):
        heard = [*self.late, *self.port.poll(wait)]
        self.late = []
        out = []
        for one in heard:
            whim = self.whim()
            if whim == 0 and one.node < 10:
                continue  # lost; it is asked for again when its device comes back
            if whim == 1:
                self.late.append(one)
            elif whim == 2:
                out += [one, one]
            elif whim == 3:
                out.insert(0, one)
            else:
                out.append(one)
        return out


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon"])
def test_messages_may_be_lost_doubled_and_reordered(name, seed, tmp_path_factory):
    federation, algorithm = crowd(), make(name)
    sim, _ = record(federation, algorithm, rounds=4)
    stage = Stage(federation, algorithm, tmp_path_factory.mktemp("run"), rounds=4)
    server = stage.server
    server.poster.port = Unruly(stage.port, seed)
    for step in range(2000):
        stage.now = float(step)
        server.step()
        if server.state.finished:
            break
    assert server.state.finished
    assert find_difference(sim, server, spent=False) is None
