"""The commands, as an engineer uses them: a federation, invitations, devices, a run, and what goes wrong."""

import json
import os
import stat
import threading

import numpy as np
import pytest
import torch
from typer.testing import CliRunner
from unpacked import unpack

import potluck
from potluck.cli.commands import app
from potluck.core.errors import ConfigError, DataError, PotluckError
from potluck.deploy import demo, parcels
from potluck.deploy.conduct.rehearsal import rehearse
from potluck.deploy.conduct.run_folder import load_deployment
from potluck.deploy.conduct.serve import serve
from potluck.deploy.conduct.standing import describe, look
from potluck.deploy.https.wire import Received
from potluck.deploy.members import joining, keyfiles, roster
from potluck.deploy.sample import make_sample
from potluck.deploy.work import join, rows, vocabulary
from potluck.deploy.work.agent import Agent
from potluck.deploy.work.manners import Manners
from potluck.deploy.work.working import work
from potluck.execute.plan import ExecutionPlan
from potluck.experiment import Experiment
from potluck.experiment.prepare import prepare

EXPERIMENT = """
name = "few"
algorithm = "fedavg"
[data]
source = "digits"
[model]
width = 0.1
[stop]
rounds = 3
[algorithms.fedavg]
clients = 2
"""


def call(*arguments):
    """What a command prints, and its exit code; errors that users mend come as they are."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    return result.output, result.exit_code


def write_rows(path, count=60, shape=(8,), classes=4, seed=0, **more):
    draw = np.random.default_rng(seed)
    split = np.repeat([0, 2], [count - 20, 20])
    arrays = {"x": draw.normal(size=(count, *shape)).astype("f4"), "y": draw.integers(classes, size=count)}
    arrays["y"][:classes] = np.arange(classes)
    np.savez(path, **{**arrays, "split": split, **more})
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A federation of two invited devices, at a port that is free."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.toml").write_text(EXPERIMENT)
    for i, name in enumerate(("a", "b")):
        write_rows(tmp_path / f"{name}.npz", seed=i)
    address = f"127.0.0.1:{demo.find_free_port()}"
    assert call("deploy", "init", "fed", "--address", address, "--like", "a.npz")[1] == 0
    for name in ("a", "b"):
        assert call("deploy", "invite", "fed", name)[1] == 0
    return tmp_path


def test_keys_are_for_their_owners_alone(home):
    for path in ("fed/ca.key", "fed/server.key", "fed/invites.json", "a.invite"):
        assert stat.S_IMODE((home / path).stat().st_mode) == 0o600, path
    secret = json.loads((home / "a.invite").read_text())["secret"]
    assert secret not in (home / "fed" / "invites.json").read_text()


def test_a_device_joins_works_and_leaves(home):
    """Joined before there is a server, certified when there is one; then the run, its folder, its report."""
    for name in ("a", "b"):
        said, code = call("deploy", "join", f"{name}.invite", "--data", f"{name}.npz")
        assert code == 0
        assert "40 train, 0 validation, 20 test rows" in said
        assert "no server" in said
        assert not (home / name / keyfiles.DEVICE).exists()
    agents, said = [], []
    devices = [
        threading.Thread(target=work, args=(home / name, agents.append, said.append), daemon=True)
        for name in ("a", "b")
    ]
    for device in devices:
        device.start()
    try:
        summary = serve(home / "fed", Experiment.from_file(home / "few.toml"), home / "run", say=said.append)
    finally:
        for agent in agents:
            agent.end()
        for device in devices:
            device.join(10)
    assert summary is not None
    assert summary["rounds"] == 3
    assert summary["finished"] is not None
    assert "[data] is set aside: devices bring their own" in said
    assert not (home / "a" / join.INVITE).exists()
    run = potluck.load(home / "run")
    assert list(run.models) == ["global"]
    assert run.devices["nodes"] == [0, 1]
    assert sum(map(sum, run.devices["rows"])) == 80
    assert "fedavg on real devices" in call("show", "run")[0]
    assert call("report", "run")[1] == 0
    page = (home / "run" / "report.html").read_text()
    assert "Times were measured, on real devices" in page
    drawn = unpack(page, "figures")
    assert "measured time" in drawn
    assert "virtual" not in page.partition("<script")[0] + drawn
    assert "equal" in call("deploy", "replay", "run")[0]
    said, code = call("deploy", "status", "run")
    assert code == 0
    assert said.startswith("finished: round 3")
    assert "  b: there, 40 rows" in said
    assert serve(home / "fed", Experiment.from_file(home / "few.toml"), home / "run") == summary


def test_a_rehearsal_says_who_is_there(home):
    call("deploy", "join", "a.invite", "--data", "a.npz")
    agents = []
    thread = threading.Thread(target=work, args=(home / "a", agents.append, lambda line: None), daemon=True)
    thread.start()
    found = rehearse(home / "fed", Experiment.from_file(home / "few.toml"), 5.0, None, lambda line: None)
    agents[0].end()
    thread.join(10)
    assert not found.good
    assert found.lines[1].startswith("a: 40 train, 0 validation, 20 test rows, potluck")
    assert found.lines[2] == "b: hasn't joined"
    assert found.lines[-1] == "1 there, 2 to begin with: not enough"


def test_an_invitation_is_used_once(home):
    at, told = join.prepare(home / "a.invite", home / "a", "a.npz")
    registrar = joining.Registrar(home / "fed")
    asked = (at / join.INVITE).read_bytes()
    assert registrar.admit(asked)[0] == 200
    assert registrar.admit(asked) == (403, b"no such invitation: it was used, revoked or replaced by another")
    assert registrar.admit(b"junk")[0] == 400
    assert registrar.admit(b'{"name": 1, "secret": 2, "request": 3}')[0] == 400
    wrong = json.loads((home / "b.invite").read_text()) | {"request": "none"}
    assert registrar.admit(json.dumps(wrong).encode())[0] == 400
    assert registrar.admit(json.dumps(wrong | {"secret": "x"}).encode())[0] == 403
    assert told.name == "a"


def test_an_old_invitation_is_refused(home, monkeypatch):
    join.prepare(home / "a.invite", home / "a", "a.npz")
    monkeypatch.setattr(joining.time, "time", lambda: os.stat(home / "a.invite").st_mtime + joining.DAY + 1)
    status, why = joining.Registrar(home / "fed").admit((home / "a" / join.INVITE).read_bytes())
    assert (status, why) == (403, b"this invitation is older than a day: ask for another")


def test_who_is_revoked_is_nobody(home):
    join.prepare(home / "a.invite", home / "a", "a.npz")
    joining.Registrar(home / "fed").admit((home / "a" / join.INVITE).read_bytes())
    members = joining.Members(home / "fed")
    print_of = members.roster.devices[0].certificate
    assert members.find(print_of) == 0
    assert call("deploy", "revoke", "fed", "a")[1] == 0
    assert members.find(print_of) is None
    with pytest.raises(ConfigError, match="no such device; known: a, b"):
        call("deploy", "revoke", "fed", "c")


WRONG = [
    (("init", "new", "--address", "nowhere", "--like", "a.npz"), ConfigError, "write host:port"),
    (("init", "fed", "--address", "h:1", "--like", "a.npz"), ConfigError, "holds a federation already"),
    (("init", "new", "--address", "h:1", "--like", "none.npz"), DataError, "can't be read"),
    (("invite", "new", "a"), ConfigError, "no such file; `potluck deploy init FOLDER` makes one"),
    (("join", "few.toml", "--data", "a.npz"), ConfigError, "not an invitation"),
    (("join", "none.invite", "--data", "a.npz"), ConfigError, "can't be read"),
    (("join", "a.invite", "--data", "nothing"), ConfigError, "give a file.npz or module:function"),
    (("device", "fed"), ConfigError, "`potluck deploy join INVITE` makes one"),
    (("serve", "fed", "none.toml", "--out", "run"), PotluckError, "none.toml"),
    (("replay", "fed"), PotluckError, "fed"),
]


@pytest.mark.parametrize("arguments, kind, match", WRONG)
def test_what_is_wrong_is_said_in_one_line(arguments, kind, match, home):
    with pytest.raises(kind, match=match) as caught:
        call("deploy", *arguments)
    assert "\n" not in str(caught.value)


REFUSED = [
    ('algorithm = "hierfl"', "needs edges between devices and server"),
    ("[train.privacy]\nclip = 1.0\nsigma = 1.0", "would protect nobody here"),
    ('[run]\ndtype = "float64"', "the federation's is 'float32'"),
    ("[deploy]\nstart_with = 9", "give 1 to 2"),
]


@pytest.mark.parametrize("text, match", REFUSED)
def test_what_cant_be_deployed_is_refused(text, match, home):
    (home / "other.toml").write_text(text + "\n")
    with pytest.raises(ConfigError, match=match):
        serve(home / "fed", Experiment.from_file(home / "other.toml"), home / "run")
    assert not (home / "run").exists()


FORM = rows.Form((8,), 4, torch.float32, 0.0, 2.0)
BAD_ROWS = [
    ({"x": np.zeros((60, 9), "f4")}, r"rows of shape \[9\]; the federation's are \[8\]"),
    ({"y": np.full(60, 4)}, "labels 4 to 4; the federation's are 0 to 3"),
    ({"y": np.zeros(59, int)}, "give one each"),
    ({"y": np.zeros(60)}, "whole numbers"),
    ({"split": np.full(60, 3)}, "0 train, 1 validation, 2 test"),
    ({"x": np.full((60, 8), np.nan, "f4")}, "NaN or infinite"),
]


@pytest.mark.parametrize("arrays, match", BAD_ROWS)
def test_rows_that_dont_fit_are_refused(arrays, match, tmp_path):
    write_rows(tmp_path / "rows.npz", **arrays)
    with pytest.raises(DataError, match=match):
        rows.load("rows.npz", FORM, tmp_path)


def test_rows_are_scaled_and_split(tmp_path):
    write_rows(tmp_path / "rows.npz")
    found = rows.load("rows.npz", FORM, tmp_path)
    raw = np.load(tmp_path / "rows.npz")["x"]
    assert torch.equal(found.pool.x, torch.from_numpy(raw) / 2)
    assert {part: len(places) for part, places in found.parts.items()} == {
        "train": 40, "validation": 0, "test": 20
    }  # fmt: skip


def test_only_a_device_of_its_own_file_runs_others_code():
    assert not any(name.startswith("deploy.") for name in vocabulary.learn())
    with pytest.raises(ConfigError, match=r"modules = \['nowhere'\]: can't be imported"):
        vocabulary.learn(["nowhere"])


@pytest.mark.slow
def test_a_demonstration_ends_with_the_simulators_bytes(tmp_path):
    """Processes of their own; and one other byte is found."""
    out = tmp_path / "demo"
    experiment = make_sample().with_overrides(["stop.rounds=3"])
    found = demo.demonstrate(experiment, out, 2, False, lambda line: None)
    assert found == (True, "", out / demo.OUT)
    deployment = load_deployment(found.run)
    assert describe(look(found.run, deployment.terms), ["x", "y"])[0].startswith("finished: round 3")
    (path,) = (found.run / "models").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    setting = prepare(Experiment.from_file(out / "experiment.toml"))
    sim = setting.start(ExecutionPlan())
    sim.run()
    assert "differs" in demo.compare(found.run, sim.find_models(), setting)


def test_a_difference_is_exit_1(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "demonstrate", lambda *_: demo.Outcome(False, "global: w differs", tmp_path))
    assert call("deploy", "demo") == ("not equal: global: w differs\n", 1)


def test_an_agent_ends_when_its_listener_breaks():
    """A fault of ours shows itself, in the thread that works."""

    class Broken:
        def receive(self):
            raise AssertionError("a fault")

    with pytest.raises(AssertionError, match="a fault"):
        Agent(None, Broken()).run()


def test_numbers_stay_when_others_join_later(home):
    found = roster.read(home / "fed")
    assert [seat.name for seat in found.devices] == ["a", "b"]
    assert found.size == 2
    call("deploy", "invite", "fed", "c", "--user", "carol")
    again = roster.read(home / "fed")
    assert again.find_seat("c") == 2
    assert again.number_users().tolist() == [-1, -1, 0]


def test_a_federation_may_look_like_an_experiment(home):
    said, code = call("deploy", "init", "other", "--address", "h:1", "--like", "few.toml")
    assert code == 0
    assert "rows of shape [1, 8, 8], 10 classes, float32" in said


def test_an_owner_says_how_long_how_often_and_when(tmp_path):
    slept = []
    manners = Manners(jobs_a_minute=60.0, ready=f"test -e {tmp_path / 'now'}")

    def sleep(seconds):
        slept.append(seconds)
        (tmp_path / "now").touch()
        return False

    manners.wait(sleep)
    assert slept == [10.0]  # it wasn't a good time
    manners.wait(sleep)
    assert 0.5 < slept[1] <= 1.0
    assert len(slept) == 2


def test_a_job_that_takes_too_long_is_refused():
    sent = []

    class Slow:
        allow, limits = frozenset(), parcels.BODY

        def answer(self, parcel, down, halt):
            while not halt():
                pass
            return b""

    class Line:
        def report(self, key, report, halt):
            sent.append((key, parcels.unpack_report(report)[0].why))
            return True

    Agent(Slow(), Line(), manners=Manners(longest=0.01))._work(Received("k", b"", 0.0))
    assert sent == [("k", "a job may take 0.01 s on this device")]


@pytest.mark.parametrize("text", ["longest = 0", 'jobs_a_minute = "x"', "ready = 3", "threads = 0", "x = 1"])
def test_what_an_owner_says_wrongly_is_named(text, home):
    call("deploy", "join", "a.invite", "--data", "a.npz")
    path = home / "a" / "device.toml"
    key = text.partition(" ")[0]
    kept = [line for line in path.read_text().splitlines() if not line.startswith(f"{key} =")]
    path.write_text("\n".join([text, *kept]))
    with pytest.raises(ConfigError, match=rf"device.toml: {key}"):
        call("deploy", "device", "a")


@pytest.mark.nightly
def test_a_demonstration_survives_kills(tmp_path):
    """Server, device, SIGTERM, 70 s without a server, all at once."""
    found = demo.demonstrate(make_sample(), tmp_path / "demo", 3, True, lambda line: None)
    assert found.equal, found.difference
