"""The Flower app: its folder, its port's logic, and that it needs no private name.

flwr isn't installed here. What the port does is tried with stand-ins of the same public shape; that it works
on a real SuperLink, `make flower` shows.
"""

import ast
import importlib
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from every import make
from schedules import Stage, find_difference, record
from test_parity import crowd
from typer.testing import CliRunner

from potluck.cli.commands import app as potluck
from potluck.deploy import demo, flower_folder, parcels
from potluck.deploy.conduct.here import WithServer
from potluck.deploy.members import roster
from potluck.deploy.port import Outgoing
from potluck.deploy.sample import make_sample
from potluck.experiment.prepare import prepare

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}


# ------------------------------------------------------------------------------- stand-ins for flwr's names


class RecordDict(dict):
    @property
    def config_records(self):
        return self


class Message:
    def __init__(self, content, *, dst_node_id=None, message_type=None, ttl=None, reply_to=None):
        self.content, self.to, self.ttl = content, dst_node_id, ttl
        self.error = SimpleNamespace(code=0, reason="")
        self.metadata = SimpleNamespace(reply_to_message_id=reply_to and reply_to.name)

    def has_content(self):
        return self.content is not None


class App:
    def query(self):
        return lambda function: function

    main = query


class Grid:
    """A SuperLink whose nodes answer as soon as anybody asks for replies."""

    def __init__(self, nodes):
        self.nodes, self.pushed, self.count = nodes, {}, 0  # by node id: its answer to a message

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        for message in messages:
            self.count += 1
            message.name = f"m{self.count}"
            self.pushed[message.name] = message
        return [message.name for message in messages]

    def pull_messages(self, names):
        found = [self.pushed.pop(name) for name in names if name in self.pushed]
        return [self.nodes[message.to](message) for message in found if message.to in self.nodes]


@pytest.fixture
def flower(monkeypatch):
    """potluck.deploy.flower on stand-ins; a port there doesn't wait between two questions."""
    shapes = {
        "flwr": {},
        "flwr.app": {"ConfigRecord": dict, "Context": object, "Message": Message, "RecordDict": RecordDict},
        "flwr.clientapp": {"ClientApp": App},
        "flwr.serverapp": {"Grid": Grid, "ServerApp": App},
    }
    for name, things in shapes.items():
        module = ModuleType(name)
        vars(module).update(things)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "potluck.deploy.flower", raising=False)
    module = importlib.import_module("potluck.deploy.flower")
    monkeypatch.setattr(module, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(module, "PULL_EVERY", 0.0)
    yield module
    sys.modules.pop("potluck.deploy.flower", None)


def make_node(flower, answer, name):
    """A node that is a device: its answer to a message, with its name."""

    def reply(message):
        parcel = flower._read(message, "head") + flower._read(message, "body")
        return Message(flower._wrap(report=answer(parcel), name=name.encode()), reply_to=message)

    return reply


def say_present(parcel):
    return parcels.pack(parcels.Present(parcels.PROTOCOL, "", {"train": 1}, [1, 0], {}))


def find(name):
    return {"a": 0, "b": 1}.get(name)


def settle_in(port):
    """A look, the answers, and another look."""
    port.nodes()
    port.poll(0.0)
    return dict(port.nodes())


# ------------------------------------------------------------------------------------------- the port's logic


def test_a_run_over_a_grid_equals_the_simulated_one(flower, tmp_path):
    torch.set_num_threads(1)
    federation, algorithm = crowd((12, 9, 15)), make("scaffold", clients=2)
    sim, _ = record(federation, algorithm, rounds=4)
    stage = Stage(federation, algorithm, tmp_path, rounds=4, real=True)
    grid = Grid({70 + i: make_node(flower, stage.devices[i].answer, f"device-{i}") for i in range(3)})
    port = WithServer(flower.GridPort(grid, lambda name: int(name[-1])), 3, stage.devices[3])
    stage.server.poster.port = port
    try:
        stage.server.run()
    finally:
        port.close()
    assert find_difference(sim, stage.server, spent=False) is None


def test_a_hello_costs_one_message(flower):
    grid = Grid({7: make_node(flower, say_present, "a")})
    port = flower.GridPort(grid, find)
    assert settle_in(port) == {0: "7"}
    port.post_all([Outgoing(0, "hello/7", b"x", b"")])
    (heard,) = port.poll(0.0)
    assert (heard.node, heard.parcel) == (0, say_present(b""))
    assert grid.count == 1


def test_what_is_under_way_is_not_sent_twice_and_what_is_called_off_not_at_all(flower):
    grid = Grid({7: make_node(flower, say_present, "a")})
    now = [0.0]
    port = flower.GridPort(grid, find, lasts=600.0, clock=lambda: now[0])
    settle_in(port)
    work = Outgoing(0, "r/2/1", b"head", b"body")
    port.post_all([work])
    port.post_all([work])
    assert grid.count == 2  # with the hello
    grid.pushed.clear()  # it is lost, and is sent again when its time is over
    now[0] = 700.0
    port.post_all([work])
    assert grid.count == 3
    port.post_all([Outgoing(0, "r/2/1", parcels.pack(parcels.CallOff("r/2/1")), b"")])
    assert (grid.count, port.sent) == (3, {})


def test_an_error_is_told_and_work_can_be_posted_again(flower):
    said = []
    grid = Grid({7: make_node(flower, say_present, "a")})
    port = flower.GridPort(grid, find, say=said.append)
    settle_in(port)

    def fail(message):
        reply = Message(None, reply_to=message)
        reply.error = SimpleNamespace(code=1, reason="out of memory")
        return reply

    grid.nodes[7] = fail
    port.post_all([Outgoing(0, "r/2/1", b"head", b"body")])
    assert port.poll(0.0) == []
    assert said == ["node 7: out of memory"]
    port.post_all([Outgoing(0, "r/2/1", b"head", b"body")])
    assert grid.count == 3


def test_a_name_belongs_to_the_first_who_says_it_while_it_is_there(flower):
    said = []
    grid = Grid({7: make_node(flower, say_present, "a")})
    port = flower.GridPort(grid, find, say=said.append)
    settle_in(port)
    grid.nodes[8] = make_node(flower, say_present, "a")
    assert settle_in(port) == {0: "7"}
    assert said == ["node 8: says that it is 'a', which another node is"]
    del grid.nodes[7]
    port.nodes()
    assert port.nodes() == {0: "8"}


def test_strangers_are_told_apart(flower, tmp_path):
    said = []

    def misconfigured(message):
        return flower.answer(message, SimpleNamespace(node_config={}))

    def elsewhere(message):
        config = {"potluck-device": str(tmp_path / "nowhere")}
        return flower.answer(message, SimpleNamespace(node_config=config))

    grid = Grid({7: make_node(flower, say_present, "z"), 8: misconfigured, 9: elsewhere})
    port = flower.GridPort(grid, find, say=said.append)
    assert settle_in(port) == {}
    assert "'z', whom federation.toml doesn't have" in said[0]
    assert "potluck-device" in said[1]
    assert "no such file" in said[2]
    settle_in(port)
    assert (grid.count, len(said)) == (3, 3)  # once each


# ------------------------------------------------------------------------------- the app's folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A federation of three, as a demonstration lays it out."""
    place = tmp_path_factory.mktemp("flower")
    demo.lay_out(prepare(make_sample().with_overrides(["data.clients=3"])), place)
    (place / "experiment.toml").write_text(make_sample().to_toml())
    return place


def write(place, *options):
    files = [str(place / "federation"), str(place / "experiment.toml")]
    return CliRunner().invoke(potluck, ["deploy", "flower", *files, *options])


def test_the_command_writes_an_app_without_keys_or_rows(place):
    done = write(place, "--out", str(place / "app"))
    assert done.exit_code == 0, done.output
    names = {path.name for path in (place / "app").iterdir()}
    assert names == {
        "pyproject.toml", "server_app.py", "client_app.py", "experiment.toml", roster.FILE
    }  # fmt: skip
    told = tomllib.loads((place / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert told["config"] == {flower_folder.RUN: str(place / "app-run")}
    for side in ("server", "client"):
        module, _, name = told["components"][f"{side}app"].partition(":")
        source = ast.parse((place / "app" / f"{module}.py").read_text())
        targets = [t.id for n in source.body if isinstance(n, ast.Assign) for t in n.targets]
        assert targets == [name]  # flwr looks for a plain assignment
    found = roster.read(place / "app")
    assert [seat.certificate for seat in found.devices] == ["", "", ""]
    assert found.server.data == str(place / "federation" / "server.npz")


def test_bad_input_is_refused_before_anything_is_written(place):
    write(place, "--out", str(place / "twice"))
    again = write(place, "--out", str(place / "twice"))
    assert "exists already" in str(again.exception)
    plain = make_sample().to_toml()
    (place / "experiment.toml").write_text(plain.replace('"fedavg"', '"hierfl"', 1))
    tiered = write(place, "--out", str(place / "tiered"))
    (place / "experiment.toml").write_text(plain)
    assert "hierfl" in str(tiered.exception)
    assert not (place / "tiered").exists()


# --------------------------------------------------------------------------------------- no private name


def list_imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def test_one_file_imports_flwr_and_public_names_alone():
    files = [p for room in ("potluck", "examples", "studies") for p in sorted((ROOT / room).rglob("*.py"))]
    users = {p for p in files for module, _ in list_imports(p) if module.split(".")[0] == "flwr"}
    assert users == {ROOT / "potluck/deploy/flower.py"}
    found = {(m, n) for m, n in list_imports(ROOT / "potluck/deploy/flower.py") if m.startswith("flwr")}
    assert {module for module, _ in found} <= PUBLIC
    assert not [name for _, name in found if name.startswith("_")]
    tree = ast.parse((ROOT / "potluck/deploy/flower.py").read_text())
    reached = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr.startswith("_")]
    assert {ast.unparse(n.value) for n in reached} <= {"self"}
