"""The same runs over real sockets and real TLS, both certificates verified; and who isn't let in."""

import threading
from contextlib import contextmanager

import pytest
import torch
from every import make
from schedules import Stage, find_difference, record
from test_parity import crowd

from potluck.deploy.conduct.here import WithServer
from potluck.deploy.https.hub import Hub
from potluck.deploy.https.wire import Wire
from potluck.deploy.members import keyfiles, pki
from potluck.deploy.work.agent import Agent

pytestmark = pytest.mark.slow
FEW = (12, 9, 15)  # train rows of three devices


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    """An authority, a server's certificate and some devices', in folders of their own."""
    home = tmp_path_factory.mktemp("federation")
    pki.make_authority(home, "test")
    pki.make_server(home, "127.0.0.1")
    for name in ("0", "1", "2", "stranger"):
        (home / name).mkdir()
        request = pki.make_request(home / name, name)
        (home / name / keyfiles.DEVICE).write_bytes(pki.certify(home, name, request))
        (home / name / keyfiles.CA).write_bytes((home / keyfiles.CA).read_bytes())
    return home


def list_fingerprints(keys):
    return {pki.find_fingerprint((keys / str(n) / keyfiles.DEVICE).read_bytes()): n for n in range(3)}


@contextmanager
def fleet(stage, keys, folder):
    """The stage's devices, each with a thread and a wire; its server with a hub."""
    known, said = list_fingerprints(keys), []
    hub = Hub(("127.0.0.1", 0), keys, folder / "blobs", known.get, say=said.append)
    address = f"127.0.0.1:{hub.address[1]}"
    agents = [Agent(stage.devices[n], Wire(address, keys / str(n)), said.append) for n in range(3)]
    threads = [threading.Thread(target=agent.run, daemon=True) for agent in agents]
    port = WithServer(hub, 3, stage.devices[3])
    stage.server.poster.port = port
    for thread in threads:
        thread.start()
    try:
        yield hub, agents, said
    finally:
        for agent in agents:
            agent.end()
        hub.close()
        port.close()
        for thread in threads:
            thread.join(10)


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_runs_over_https_equal_simulated_ones(name, keys, tmp_path):
    torch.set_num_threads(1)
    federation, algorithm = crowd(FEW), make(name, clients=2)
    sim, _ = record(federation, algorithm, rounds=5)
    stage = Stage(federation, algorithm, tmp_path, rounds=5, real=True)
    with fleet(stage, keys, tmp_path):
        stage.server.run()
    assert find_difference(sim, stage.server, spent=False) is None


@pytest.mark.parametrize("name, params", [("fedasync", {}), ("auxo", {"cohorts": 2})])
def test_others_run_to_their_end(name, params, keys, tmp_path):
    federation, algorithm = crowd(FEW), make(name, clients=2, **params)
    stage = Stage(federation, algorithm, tmp_path, rounds=6, real=True)
    with fleet(stage, keys, tmp_path):
        stage.server.run()
    assert stage.server.state.finished
    assert stage.server.state.point.round >= 6
