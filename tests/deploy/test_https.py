"""The same runs over real sockets and real TLS, both certificates verified; who isn't let in, who lies."""

import random
import socket
import ssl
import threading
import time
from contextlib import suppress

import pytest
import torch
import urllib3
from every import make
from https_fleets import fleet, found_federation
from schedules import Stage, find_difference, find_difference_between, record, run_by_script
from test_parity import crowd
from wrong_answers import KINDS, LIMITS, spoil

from potluck.deploy import parcels
from potluck.deploy.conduct.crowd import BAD
from potluck.deploy.https import doors, hub
from potluck.deploy.https.wire import Wire
from potluck.deploy.members import keyfiles
from potluck.deploy.work.agent import Agent

pytestmark = pytest.mark.slow
FEW = (12, 9, 15)  # train rows of three devices
LIAR = 1


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return found_federation(tmp_path_factory.mktemp("federation"), ("0", "1", "2", "stranger"))


@pytest.fixture(scope="session")
def others(tmp_path_factory):
    """Another federation, of the same names."""
    return found_federation(tmp_path_factory.mktemp("others"), ("0", "1", "2"))


def read_all(connection):
    """All that comes until the connection is closed."""
    found = b""
    try:
        while chunk := connection.recv(4096):
            found += chunk
    except (ConnectionError, ssl.SSLError):
        pass
    return found


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it didn't happen"
        time.sleep(0.01)


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


# ------------------------------------------------------------------------------------------ who isn't let in


def test_those_outside_change_nothing(keys, others, tmp_path, capfd):
    """No certificate, another authority's, plain text, no HTTP, a second process: a line each."""
    torch.set_num_threads(1)
    federation, algorithm = crowd(FEW), make("fedavg", clients=2)
    sim, _ = record(federation, algorithm, rounds=5)
    stage = Stage(federation, algorithm, tmp_path, rounds=5, real=True)
    with fleet(stage, keys, tmp_path) as made:
        wait_for(lambda: len(made.hub.nodes()) == 3)
        with made.connect() as bare:
            bare.sendall(b"GET /v1/next?session=a&after=0 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_all(bare) == b""
        with socket.create_connection(made.hub.address, timeout=5) as plain:
            plain.sendall(b"GET /v1/next HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_all(plain)[:4] != b"HTTP"
        with made.connect(keys / "0") as member:
            member.sendall(b"\x00\xff" * 40 + b"\r\n\r\n")
            assert read_all(member).startswith(b"HTTP/1.0 400")
        # A certificate by another authority, though it trusts this server.
        mixed = tmp_path / "mixed"
        mixed.mkdir()
        for name in (keyfiles.DEVICE, keyfiles.DEVICE_KEY):
            (mixed / name).write_bytes((others / "0" / name).read_bytes())
        (mixed / keyfiles.CA).write_bytes((keys / keyfiles.CA).read_bytes())
        with pytest.raises((urllib3.exceptions.HTTPError, OSError)):
            Wire(made.address, mixed).receive()
        # A second process with the certificate of the first.
        second, told = Wire(made.address, keys / "0"), []
        copy = Agent(stage.devices[0], second, told.append)
        copying = threading.Thread(target=copy._listen, daemon=True)
        copying.start()
        wait_for(lambda: told)
        copy.over.set()
        stage.server.run()
        copying.join(10)
    assert find_difference(sim, stage.server, spent=False) is None
    for words in ("no certificate", "plain text", "no HTTP", "isn't this federation's", "a second process"):
        assert len([line for line in made.said if words in line]) == 1, words
    assert told == ["not let in: another process with this certificate is here"]
    assert made.hub.refused >= 5
    assert "Traceback" not in capfd.readouterr().err


def test_a_stranger_is_told_and_may_do_nothing(keys, tmp_path):
    """Of the same authority, but not in the federation's file."""
    stage = Stage(crowd(FEW), make("fedavg", clients=2), tmp_path, rounds=2, real=True)
    with fleet(stage, keys, tmp_path) as made:
        wire = Wire(made.address, keys / "stranger")
        for method, path in (
            ("GET", "/v1/next?session=a&after=0"),
            ("GET", f"/v1/blobs/{'0' * 64}"),
            ("PUT", f"/v1/parts/{'0' * 64}"),
            ("PUT", "/v1/reports/r/3/0"),
            ("POST", "/v1/leave"),
        ):
            assert wire._ask(method, path, b"").status == 403
        stage.server.run()
    assert stage.server.state.finished


def test_a_device_refuses_another_authoritys_server(keys, others, tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=2), tmp_path, rounds=2, real=True)
    with fleet(stage, keys, tmp_path) as made:
        wire, told = Wire(made.address, others / "0"), []
        with pytest.raises(urllib3.exceptions.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            wire.receive()
        agent = Agent(stage.devices[0], wire, told.append)
        listening = threading.Thread(target=agent._listen, daemon=True)
        listening.start()
        wait_for(lambda: told)
        agent.over.set()
        listening.join(10)
        stage.server.run()
    assert len(told) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in told[0]
    assert "\n" not in told[0]


def test_a_revoked_device_is_out_at_once(keys, tmp_path):
    federation, algorithm = crowd(FEW), make("fedavg", clients=3)
    stage = Stage(federation, algorithm, tmp_path, rounds=6, real=True)
    stage.server.patience = 0.5
    with fleet(stage, keys, tmp_path) as made:
        wait_for(lambda: stage.server.step() or stage.server.state.point.round >= 2)
        done = made.agents[LIAR].done
        del made.known[next(k for k, n in made.known.items() if n == LIAR)]
        stage.server.run()
        wait_for(lambda: made.told[LIAR])
        assert made.agents[LIAR].done <= done + 1  # what was taken before
    assert stage.server.state.finished
    assert stage.server.state.accounts.lost["gone"] >= 1
    assert [line for line in made.said if "isn't any more" in line]
    assert made.told[LIAR] == ["not let in: this certificate isn't in the federation, or isn't any more"]


# -------------------------------------------------------------------------------------- what isn't asked for


def test_answers_that_nobody_waits_for_are_counted_and_dropped(keys, tmp_path):
    """For another's key, twice, or never asked for."""
    torch.set_num_threads(1)
    federation, algorithm = crowd(FEW), make("fedavg", clients=3)
    sim, _ = record(federation, algorithm, rounds=4)
    stage = Stage(federation, algorithm, tmp_path, rounds=4, real=True)
    statuses = []

    def meddle(node, count, report):
        wire = fleet_.agents[LIAR].wire
        for key in (
            f"r/3/{3 * count}",
            f"r/3/{3 * count + 2}",
            f"r/3/{max(0, 3 * count - 2)}",
            "r/3/9999",
            "x",
        ):
            statuses.append(wire._ask("PUT", f"/v1/reports/{key}", report).status)
        return report

    with fleet(stage, keys, tmp_path, {LIAR: meddle}) as fleet_:
        stage.server.run()
    assert find_difference(sim, stage.server, spent=False) is None
    assert statuses.count(410) >= len(statuses) - 1  # the third is its own key, in the first round
    assert fleet_.hub.refused >= statuses.count(410) >= 19


# -------------------------------------------------------------------------------------------------- who lies


def lie_by(heard):
    """The same lies, as the server would have said it itself."""
    return parcels.pack(parcels.Failed("", "bad", "")) if heard.node == LIAR else heard.parcel


def test_every_wrong_answer_is_lost_and_none_is_merged(keys, tmp_path, capfd):
    torch.set_num_threads(1)
    federation, algorithm = crowd(FEW), make("fedavg", clients=3)
    rounds, rng = len(KINDS) + len(KINDS) // 4 + 1, random.Random(0)
    kinds = iter(KINDS)

    def tell_a_lie(node, count, report):
        return report if count % BAD == BAD - 1 else spoil(rng, report, next(kinds, KINDS[0]))

    def lose(heard):
        count = [node for node, _ in other.port.keys].count(LIAR) - 1
        return lie_by(heard) if count % BAD != BAD - 1 else heard.parcel

    stage = Stage(federation, algorithm, tmp_path / "https", rounds=rounds, real=True, limits=LIMITS)
    with fleet(stage, keys, tmp_path, {LIAR: tell_a_lie}) as made:
        stage.server.run()
    other = Stage(federation, algorithm, tmp_path / "memory", rounds=rounds)
    run_by_script(other, lose)
    assert next(kinds, None) is None
    assert stage.server.state.accounts.lost["bad"] >= len(KINDS)
    assert find_difference_between(stage.server, other.server) is None
    lines = [line for line in made.said if line.startswith(f"device {LIAR}: bad: ")]
    assert len(lines) == stage.server.state.accounts.lost["bad"]
    assert all(line.isprintable() for line in made.said)
    assert "Traceback" not in capfd.readouterr().err


def test_after_five_in_a_row_a_device_is_asked_nothing_for_an_hour(keys, tmp_path):
    torch.set_num_threads(1)
    federation, algorithm = crowd(FEW), make("fedavg", clients=3)
    stage = Stage(federation, algorithm, tmp_path / "https", rounds=BAD + 4, real=True)
    with fleet(stage, keys, tmp_path, {LIAR: lambda node, count, report: b"no"}) as made:
        stage.server.run()
    assert made.agents[LIAR].count == BAD
    assert stage.server.state.accounts.lost == {"bad": BAD}
    assert stage.server.state.members[LIAR].banned > 3500
    assert len([line for line in made.said if "it is asked nothing for 3600 s" in line]) == 1
    other = run_by_script(Stage(federation, algorithm, tmp_path / "memory", rounds=BAD + 4), lie_by)
    assert find_difference_between(stage.server, other.server) is None
    assert [to for to, _ in other.port.keys].count(LIAR) == BAD


def test_after_that_hour_it_is_asked_again(tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=3), tmp_path, rounds=BAD + 4)

    def lose(heard):
        if len(stage.port.keys) > 3 * BAD + 2:
            stage.now += 1000.0
        return lie_by(heard)

    run_by_script(stage, lose)
    assert [to for to, _ in stage.port.keys].count(LIAR) > BAD


def test_what_is_not_allowed_is_refused_by_the_device(keys, tmp_path):
    """Its job isn't in the device's list: both sides say which, and the run ends as if these were lost."""
    torch.set_num_threads(1)
    federation, algorithm = crowd(FEW), make("fedavg", clients=3)
    stage = Stage(federation, algorithm, tmp_path / "https", rounds=3, real=True)
    stage.devices[LIAR].allow -= {"Train"}
    with fleet(stage, keys, tmp_path) as made:
        stage.server.run()
    other = run_by_script(
        Stage(federation, algorithm, tmp_path / "memory", rounds=3),
        lambda heard: parcels.pack(parcels.Failed("", "refused", "")) if heard.node == LIAR else heard.parcel,
    )
    assert stage.server.state.accounts.lost == {"refused": 3}
    assert find_difference_between(stage.server, other.server) is None
    assert set(made.told[LIAR]) == {"refused: a Train is not allowed here"}
    assert made.said.count(f"device {LIAR}: refused: refused: a Train is not allowed here") == 3


def test_unknown_words_are_refused_by_the_device(tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=2), tmp_path, rounds=2)
    device = stage.devices[0]

    def ask(parcel):
        told, _ = parcels.unpack_report(device.answer(parcel))
        assert isinstance(told, parcels.Failed)
        return f"{told.status}: {told.why}"

    hello = parcels.pack(parcels.Hello(parcels.PROTOCOL + 1, "r", 0))
    assert ask(hello) == "refused: protocol 2, this device speaks 1: install the same version"
    stage.begin()
    order = next(p for p in stage.port.waiting if p.to == 0)
    newer = (order.head + order.body).replace(b"Train", b"Trbin")
    assert "unknown kind of value 'Trbin'" in ask(newer)
    assert ask(b"junk").startswith("refused: cut short")


# -------------------------------------------------------------------------------------- how much one may hold


def test_connections_are_few_and_strangers_are_put_out(keys, tmp_path, monkeypatch):
    monkeypatch.setattr(doors, "STAY", 0.4)
    monkeypatch.setattr(doors, "STRANGERS", 4)
    stage = Stage(crowd(FEW), make("fedavg", clients=2), tmp_path, rounds=3, real=True)
    with fleet(stage, keys, tmp_path) as made:
        slow = [made.connect() for _ in range(6)]
        for connection in slow:
            with suppress(OSError):
                connection.sendall(b"GET /v1/next HTTP/1.1\r\nX")  # and never more
        mine = [made.connect(keys / "0") for _ in range(doors.EACH + 3)]
        assert [read_all(connection) for connection in slow] == [b""] * 6  # soon
        stage.server.run()
        assert sum(map(len, made.hub.doors.open.values())) <= 4 + 3 * doors.EACH
        for connection in (*slow, *mine):
            connection.close()
        wait_for(lambda: b"" not in made.hub.doors.open)
    assert stage.server.state.finished
    assert len([line for line in made.said if "more than 4 at a time" in line]) == 1
    assert len([line for line in made.said if f"more than {doors.EACH} at a time" in line]) == 1


def test_pieces_are_on_disk_and_no_more_than_a_report(keys, tmp_path):
    stage = Stage(crowd(FEW), make("fedavg", clients=2), tmp_path, rounds=2, real=True, limits=LIMITS)
    with fleet(stage, keys, tmp_path) as made:
        wait_for(lambda: len(made.hub.nodes()) == 3)
        wire, piece = made.agents[0].wire, bytes(LIMITS.bytes // 2)
        for i in range(5):
            name = hub.hashlib.sha256(piece + bytes([i])).hexdigest()
            status = wire._ask("PUT", f"/v1/parts/{name}", piece + bytes([i])).status
            assert status == (413 if i % 2 else 204)
            stored = sum(path.stat().st_size for path in (tmp_path / "blobs").iterdir())
            assert stored <= LIMITS.bytes
        stage.server.run()
    assert stage.server.state.finished


def test_a_large_report_comes_in_pieces_and_a_larger_one_is_bad(keys, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.deploy.https.wire.PART", 100_000)
    torch.set_num_threads(1)
    stage = Stage(crowd(FEW), make("fedavg", clients=3), tmp_path, rounds=2, real=True, limits=LIMITS)
    sizes = (LIMITS.bytes - 50_000, LIMITS.bytes + 500_000)

    with fleet(stage, keys, tmp_path, {LIAR: lambda node, count, report: bytes(sizes[count])}) as made:
        stage.server.run()
    lines = [line for line in made.said if line.startswith(f"device {LIAR}: bad")]
    assert stage.server.state.accounts.lost == {"bad": 2}
    assert lines[0] == f"device {LIAR}: bad: unreadable: cut short: 0 bytes"
    assert lines[1] == f"device {LIAR}: bad: bad: more than {LIMITS.bytes} bytes"


def test_joining_takes_little_and_fails_in_a_line(keys, tmp_path):
    said, known = [], []

    def join(asked):
        known.append(asked)
        raise OSError(28, "No space left on device")

    made = hub.Hub(("127.0.0.1", 0), keys, tmp_path / "blobs", {}.get, join=join, say=said.append)
    context = ssl.create_default_context(cafile=keys / keyfiles.CA)
    http = urllib3.HTTPSConnectionPool(*made.address, ssl_context=context, retries=False)
    try:
        assert http.request("POST", "/v1/join", body=b"x").status == 503
        assert http.request("POST", "/v1/join", body=bytes(hub.JOINING + 1)).status == 413
    finally:
        http.close()
        made.close()
    assert known == [b"x"]
    assert said[0] == "nobody can join: [Errno 28] No space left on device"


def test_lines_about_strangers_do_not_fill_a_disk():
    said, now = [], [0.0]
    say = doors.Sparing(said.append, lambda: now[0])
    for i in range(1000):
        say(f"line {i}")
        say("the same")
    assert len(said) == doors.LINES
    now[0] += doors.WINDOW
    say("the same")
    assert said[-2:] == [f"{2000 - doors.LINES} more lines of that kind in 600 s", "the same"]
