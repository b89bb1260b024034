"""What can't be deployed yet, and folders that a server doesn't go on with: one line each, with its fix."""

import pytest
from every import NAMES, make
from schedules import Stage
from test_commands import EXPERIMENT, write_rows
from test_parity import FLAT, crowd

from potluck.core.errors import ConfigError, SnapshotError
from potluck.core.messages import Move
from potluck.deploy.conduct.deployment import settle
from potluck.deploy.conduct.run_folder import ABOUT
from potluck.deploy.conduct.serve import serve
from potluck.deploy.demo import find_free_port
from potluck.deploy.members import founding, joining, roster
from potluck.deploy.members.roster import FILE, Common, Home, Roster, Seat
from potluck.engine import snapshot
from potluck.experiment import Experiment
from potluck.experiment.run_lock import lock_run

TIERED = [name for name in NAMES if name not in FLAT]


def make_roster():
    seats = [Seat(name=f"d{i}", user="u") for i in range(8)]
    common = Common(name="f", shape=[8], classes=4)
    return Roster(federation=common, server=Home(address="localhost:1"), devices=seats)


def settle_text(text, tmp_path):
    (tmp_path / "e.toml").write_text(text)
    return settle(Experiment.from_file(tmp_path / "e.toml"), make_roster(), {})


@pytest.mark.parametrize("name", TIERED)
def test_tiered_algorithms_are_refused(name, tmp_path):
    with pytest.raises(ConfigError) as caught:
        settle_text(f'algorithm = "{name}"\n[stop]\nrounds = 1\n', tmp_path)
    told = str(caught.value)
    assert f"algorithm = {name!r}" in told
    assert "which can't be deployed yet; take a flat one, or simulate it with `potluck run`" in told
    assert "\n" not in told


@pytest.mark.parametrize("key", ["train", "algorithms.fedavg.train"])
def test_noise_that_the_server_could_take_off_is_refused(key, tmp_path):
    with pytest.raises(ConfigError) as caught:
        settle_text(f"[stop]\nrounds = 1\n[{key}.privacy]\nclip = 1.0\nsigma = 2.0\n", tmp_path)
    told = str(caught.value)
    assert f"{key}.privacy = " in told
    assert "2.0" in told
    assert told.endswith("leave it out")


def test_priors_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"layers = \['prior'\]: prior can't be deployed yet.*; leave it out$"
    ):
        settle_text("layers = ['prior']\n[stop]\nrounds = 1\n", tmp_path)


def test_moves_are_refused(tmp_path):
    stage = Stage(crowd(), make("fedavg"), tmp_path, rounds=1)
    stage.begin()
    with pytest.raises(ConfigError, match=r"algorithm: it moves rows between devices.*simulate it"):
        stage.server.conductor.accept(stage.server.conductor.root, Move(0, 1, None))


@pytest.fixture
def home(tmp_path):
    """A federation of two invited devices, and an experiment."""
    (tmp_path / "few.toml").write_text(EXPERIMENT)
    rows = write_rows(tmp_path / "rows.npz")
    founding.found(tmp_path / "fed", "fed", f"127.0.0.1:{find_free_port()}", rows, None, True)
    for name in ("a", "b"):
        joining.invite(tmp_path / "fed", name)
    return tmp_path


def begin(home, said, *, text=""):
    """Start a server and end it at once."""
    (home / "e.toml").write_text((home / "few.toml").read_text() + text)
    experiment = Experiment.from_file(home / "e.toml")
    return serve(home / "fed", experiment, home / "run", until=lambda: True, say=said.append)


def test_a_made_up_world_is_set_aside_with_a_line_each(home):
    said = []
    assert begin(home, said, text='[fleet]\nsource = "mobile"\n') is None
    assert said == [
        "[data] is set aside: devices bring their own",
        "[fleet] is set aside: devices bring their own",
    ]


def test_folders_of_something_else_are_refused_in_a_line(home):
    said = []
    begin(home, said)
    with lock_run(home / "run"), pytest.raises(ConfigError, match="another process is computing this run"):
        begin(home, said)
    with pytest.raises(SnapshotError, match="the run of another experiment; put the old file back, or name"):
        begin(home, said, text="[train]\nepochs = 3\n")
    for old in snapshot.list_all(home / "run"):
        (home / "run" / old).write_bytes(b"damaged")
    with pytest.raises(SnapshotError) as caught:
        begin(home, said)
    assert "\n" not in str(caught.value)
    (home / "run" / ABOUT).write_text("{")
    with pytest.raises(SnapshotError, match="damaged; put the old file back"):
        begin(home, said)


def test_another_federation_does_not_go_on_with_a_run(home):
    said = []
    begin(home, said)
    joining.invite(home / "fed", "c")
    with pytest.raises(SnapshotError, match="the run of another experiment or federation"):
        begin(home, said)


def test_a_file_that_somebody_is_at_leaves_the_members_as_they_were(home):
    said = []
    members = joining.Members(home / "fed", said.append)
    good, print_of = (home / "fed" / FILE).read_text(), "sha256:1"
    found = roster.read(home / "fed")
    found.devices[0] = found.devices[0].model_copy(update={"certificate": print_of})
    roster.write(home / "fed", found)
    assert members.find(print_of) == 0
    for text in ("[[devices", good.replace("classes", "glasses")):
        (home / "fed" / FILE).write_text(text)
        assert members.find(print_of) == 0
        assert members.find(print_of) == 0
    (home / "fed" / FILE).unlink()
    assert members.find(print_of) == 0
    assert len(said) == 3
    assert all("the members are those of before" in line and "\n" not in line for line in said)
    (home / "fed" / FILE).write_text(good)
    assert members.find(print_of) is None
